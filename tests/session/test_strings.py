"""Strings pass unharmed through what only moves data; an op that computes with them is refused when
the model is loaded. And casts from and to every dtype, as numpy has them."""

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from ortmodule import InferenceSession
from ortmodule._native import core

from .models import ints, node

Error = core().Error
TEXTS = np.array([["a", "", "äöü"], ["a longer text than any short string", "b", "c"]], object)


def strings(nodes, weights=None, shape=("n", "m"), out="STRING"):
    x = helper.make_tensor_value_info("x", TensorProto.STRING, list(shape))
    y = helper.make_tensor_value_info("y", getattr(TensorProto, out), None)
    tensors = []
    for name, array in (weights or {}).items():
        kind = TensorProto.STRING if array.dtype == object else TensorProto.INT64
        if array.dtype == bool:
            kind = TensorProto.BOOL
        values = [t.encode() for t in array.ravel()] if array.dtype == object else array.ravel()
        tensors.append(helper.make_tensor(name, kind, array.shape, values))
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=8)
    return InferenceSession(made.SerializeToString())


MOVES = {
    "Identity": ([node("Identity", "x", "y")], {}, TEXTS),
    "Reshape": ([node("Reshape", "x s", "y")], {"s": ints(3, 2)}, TEXTS.reshape(3, 2)),
    "Squeeze": (
        [node("Unsqueeze", "x s", "u"), node("Squeeze", "u s", "y")],
        {"s": ints(1)},
        TEXTS,
    ),
    "Unsqueeze": ([node("Unsqueeze", "x s", "y")], {"s": ints(0)}, TEXTS[None]),
    "Flatten": ([node("Flatten", "x", "y", axis=0)], {}, TEXTS.reshape(1, 6)),
    "Transpose": ([node("Transpose", "x", "y")], {}, TEXTS.T),
    "Concat": (
        [node("Concat", "x w x", "y", axis=0)],
        {"w": np.array([["one", "two", "three"]], object)},
        np.concatenate([TEXTS, [["one", "two", "three"]], TEXTS]),
    ),
    "Slice": ([node("Slice", "x s e", "y")], {"s": ints(1), "e": ints(9)}, TEXTS[1:]),
    "Gather": ([node("Gather", "x s", "y", axis=1)], {"s": ints(2, 0)}, TEXTS[:, [2, 0]]),
    "Expand": ([node("Expand", "x s", "y")], {"s": ints(2, 2, 3)}, np.stack([TEXTS, TEXTS])),
    "Tile": ([node("Tile", "x s", "y")], {"s": ints(1, 2)}, np.tile(TEXTS, (1, 2))),
    "GatherND": ([node("GatherND", "x s", "y")], {"s": ints(1, 1)}, TEXTS[1, 1]),
    "Split": ([node("Split", "x s", "_ y", axis=1)], {"s": ints(1, 2)}, TEXTS[:, 1:]),
    "Where": (
        [node("Where", "c x w", "y")],
        {"c": np.array([True, False, True]), "w": np.array(["w"], object)},
        np.where([True, False, True], TEXTS, "w"),
    ),
    "Constant": ([node("Identity", "w", "y")], {"w": TEXTS}, TEXTS),
}


@pytest.mark.parametrize("kind", MOVES)
@pytest.mark.parametrize("shape", [("n", "m"), (2, 3)], ids=str)
def test_moves(kind, shape):
    nodes, weights, want = MOVES[kind]
    session = strings(nodes, weights, shape)
    for _ in range(2):
        got = session.run(None, {"x": TEXTS})[0]
        assert got.dtype == object and got.shape == np.shape(want)
        assert got.tolist() == np.array(want, object).tolist()


def test_results_outlive_the_feed():
    got = strings([node("Identity", "x", "y")]).run(None, {"x": np.array([["x" * 1000]], object)})
    assert got[0][0, 0] == "x" * 1000


def test_numpy_kinds_of_strings():
    session = strings([node("Identity", "x", "y")])
    for feed in (np.array([["a", "bc"]]), np.array([[b"a", b"bc"]])):
        assert session.run(None, {"x": feed})[0].tolist() == [["a", "bc"]]


@pytest.mark.parametrize("op", ["Max", "Add"])
def test_computing_with_strings_is_refused_at_load(op):
    with pytest.raises(Error, match="string"):
        strings([node(op, "x x", "y")])


# --- casts ---

KINDS = {
    "bool": TensorProto.BOOL,
    "int8": TensorProto.INT8,
    "int16": TensorProto.INT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
    "uint16": TensorProto.UINT16,
    "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64,
    "float16": TensorProto.FLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "bfloat16": TensorProto.BFLOAT16,
}
NUMPY = {name: np.dtype(name if name != "bfloat16" else ml_dtypes.bfloat16) for name in KINDS}


def values_of(kind):
    if kind == "bool":
        return np.array([True, False])
    if kind.startswith(("int", "uint")):
        info = np.iinfo(kind)
        numbers = [info.min, info.max, 0, 1, 2, 100, info.max // 2, info.max - 1, info.min + 1]
        return np.array(numbers, kind)
    numbers = [0.0, -0.0, 1.0, 2.5, 100.0, 0.25, 1e-40 if kind == "float64" else 0.5]
    if kind == "float64":
        numbers.append(1e-300)  # true, though zero as a float
    return np.array(numbers).astype(NUMPY[kind])


@pytest.mark.parametrize("provider", ["cpu", "reference"])
@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_cast(kind, to, provider):
    x = helper.make_tensor_value_info("x", KINDS[kind], ["n"])
    y = helper.make_tensor_value_info("y", KINDS[to], ["n"])
    graph = helper.make_graph([node("Cast", "x", "y", to=KINDS[to])], "g", [x], [y])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = InferenceSession(made.SerializeToString(), providers=(provider, "reference"))
    feed = values_of(kind)
    got = session.run(None, {"x": feed})[0]
    with np.errstate(all="ignore"):
        narrow = feed.astype(np.float32) if kind == "bfloat16" else feed
        want = narrow.astype(NUMPY[to])
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got.astype(object), want.astype(object))


@pytest.mark.parametrize("to", ["float32", "bool"])
def test_cast_of_a_size_of_its_own_beside_a_program(to):
    """uint64 is the dtype of the random key too: a tile program knows it by its role."""
    nodes = [node("Cast", "x", "c", to=KINDS[to]), node("Cast", "c", "f", to=TensorProto.FLOAT)]
    nodes += [node("Mul", "f w", "y")]
    x = helper.make_tensor_value_info("x", TensorProto.UINT64, ["n", "m"])
    w = helper.make_tensor_value_info("w", TensorProto.FLOAT, ["n", "m"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "m"])
    graph = helper.make_graph(nodes, "g", [x, w], [y])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=8)
    feed = {"x": np.array([[0, 3, 2**63]], np.uint64), "w": np.array([[1, 2, 3]], np.float32)}
    want = feed["x"].astype(to).astype(np.float32) * feed["w"]
    got = InferenceSession(made.SerializeToString()).run(None, feed)[0]
    np.testing.assert_allclose(got, want)
