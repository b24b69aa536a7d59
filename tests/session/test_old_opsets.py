"""Models of older opsets: against onnxruntime, and against numpy for what it no longer reads."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs, helper

from ortmodule import InferenceSession
from ortmodule._native import core

from .against import theirs

C = core()
F = TensorProto.FLOAT
RANDOM = np.random.default_rng(3)


def normal(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def made(opset, nodes, feed, outputs=("y",), constants=None):
    element = helper.np_dtype_to_tensor_dtype
    ports = [helper.make_tensor_value_info(n, element(x.dtype), x.shape) for n, x in feed.items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    for result in results:
        result.type.tensor_type.elem_type = F
    start = [onnx.numpy_helper.from_array(x, n) for n, x in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", ports, results, start)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=6)


def run(model, feed):
    return InferenceSession(model.SerializeToString()).run(None, feed)


def one(op, inputs, *, outputs=("y",), **attrs):
    return [helper.make_node(op, inputs, outputs, name="it", **attrs)]


X = normal(2, 3, 4)
IMAGE = normal(2, 6, 4, 4)
# What onnxruntime reads too: (opset, nodes, feed, constants).
SAME = {
    "clip": (7, one("Clip", ["x"], min=-0.5, max=0.5), {"x": X}, {}),
    "clip without max": (7, one("Clip", ["x"], min=-0.5), {"x": X}, {}),
    "dropout": (7, one("Dropout", ["x"], ratio=0.3), {"x": X}, {}),
    "pad": (7, one("Pad", ["x"], pads=[0, 1, 2, 0, 0, 1], value=2.0), {"x": X}, {}),
    "reduce": (11, one("ReduceMax", ["x"], axes=[1], keepdims=0), {"x": X}, {}),
    "reduce all": (11, one("ReduceSum", ["x"]), {"x": X}, {}),
    "squeeze": (9, one("Squeeze", ["x"], axes=[1]), {"x": normal(2, 1, 3)}, {}),
    "unsqueeze": (9, one("Unsqueeze", ["x"], axes=[0, 2]), {"x": X}, {}),
    "slice": (7, one("Slice", ["x"], starts=[1, -3], ends=[9, 4], axes=[1, 2]), {"x": X}, {}),
    "split": (11, one("Split", ["x"], outputs=("y", "z"), axis=2, split=[1, 3]), {"x": X}, {}),
    "equal parts": (13, one("Split", ["x"], outputs=("y", "z"), axis=2), {"x": X}, {}),
    "top k": (7, one("TopK", ["x"], outputs=("y", "z"), k=2, axis=-1), {"x": X}, {}),
    "softmax of all but one axis": (11, one("Softmax", ["x"], axis=1), {"x": X}, {}),
    "softmax by default": (7, one("Softmax", ["x"]), {"x": X}, {}),
    "softmax of the last axis": (9, one("Softmax", ["x"], axis=2), {"x": X}, {}),
    "log softmax": (11, one("LogSoftmax", ["x"], axis=0), {"x": X}, {}),
    "hardmax": (11, one("Hardmax", ["x"], axis=1), {"x": X}, {}),
    "prelu": (7, one("PRelu", ["x", "s"]), {"x": X, "s": normal(3, 1)}, {}),
    "gemm": (7, one("Gemm", ["a", "b", "c"]), {"a": X[0], "b": X[1].T, "c": normal(3)}, {}),
    "batch normalization": (
        7,
        one("BatchNormalization", ["x", "s", "b", "m", "v"], epsilon=1e-3),
        {"x": X, **{n: np.abs(normal(3)) for n in "sbmv"}},
        {},
    ),
    **{
        f"batch normalization of one axis, {opset}": (
            opset,
            one("BatchNormalization", ["x", "s", "b", "m", "v"]),
            {"x": normal(5), **{n: np.abs(normal(1)) for n in "sbmv"}},
            {},
        )
        for opset in (7, 14, 15)
    },
    "group normalization": (
        18,
        one("GroupNormalization", ["x", "s", "b"], num_groups=3),
        {"x": IMAGE, "s": normal(3), "b": normal(3)},
        {},
    ),
    "scatter": (
        9,
        one("Scatter", ["x", "i", "u"], axis=1),
        {"x": X[0], "u": normal(1, 2)},
        {"i": np.array([[1, 2]])},
    ),
    "one hot of a float": (
        9,
        one("OneHot", ["i", "d", "v"]),
        {"i": np.array([1, 2, 0]), "d": np.array(4.0, np.float32), "v": normal(2)},
        {},
    ),
    "average pool": (7, one("AveragePool", ["x"], kernel_shape=[2, 2]), {"x": IMAGE}, {}),
    "pow": (7, one("Pow", ["x", "e"]), {"x": np.abs(X), "e": normal(4)}, {}),
    "concat": (4 + 3, one("Concat", ["x", "x"], axis=1), {"x": X}, {}),
    "cumsum": (11, one("CumSum", ["x", "a"]), {"x": X}, {"a": np.array(1, np.int32)}),
}


@pytest.mark.parametrize("name", SAME)
def test_as_onnxruntime(name):
    opset, nodes, feed, constants = SAME[name]
    model = made(opset, nodes, feed, nodes[0].output, constants)
    for port in model.graph.output[1:]:
        port.type.tensor_type.elem_type = TensorProto.INT64 if name == "top k" else F
    for got, want in zip(run(model, feed), theirs(model, feed), strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


FLAT = np.exp(X.reshape(2, 12)) / np.exp(X.reshape(2, 12)).sum(1, keepdims=True)
# What only numpy tells: (opset, nodes, feed, constants, result).
BEFORE = {
    "an axis of the first operand": (
        6,
        one("Add", ["x", "b"], broadcast=1, axis=1),
        {"x": X, "b": X[0, :, 0].copy()},
        {},
        X + X[0, :, 0][:, None],
    ),
    "a negative axis": (
        6,
        one("Mul", ["x", "b"], broadcast=1, axis=-2),
        {"x": X, "b": X[0, :, 0].copy()},
        {},
        X * X[0, :, 0][:, None],
    ),
    "the last axes": (
        1,
        one("Sub", ["x", "b"], broadcast=1, consumed_inputs=[0, 0]),
        {"x": X, "b": X[0, 0].copy()},
        {},
        X - X[0, 0],
    ),
    "a slope for each channel": (
        6,
        one("PRelu", ["x", "s"]),
        {"x": X, "s": np.array([0.1, 0.2, 0.3], np.float32)},
        {},
        np.where(X > 0, X, X * np.array([0.1, 0.2, 0.3], np.float32)[:, None]),
    ),
    "shape": (1, one("Reshape", ["x"], shape=[0, -1]), {"x": X}, {}, X.reshape(2, 12)),
    "tiles": (
        1,
        one("Tile", ["x", "t", "a"]),
        {"x": X},
        {"t": np.array(3.0, np.float32), "a": np.array(1.0, np.float32)},
        np.tile(X, (1, 3, 1)),
    ),
    "a dtype's name": (1, one("Cast", ["x"], to="FLOAT"), {"x": X.astype("f8")}, {}, X),
    "paddings": (1, one("Pad", ["x"], paddings=[0, 0, 0, 1, 0, 0]), {"x": X}, {},
                 np.pad(X, ((0, 1), (0, 0), (0, 0)))),
    "axis 1": (1, one("Concat", ["x", "x"]), {"x": X}, {}, np.concatenate([X, X], 1)),
    "softmax": (1, one("Softmax", ["x"]), {"x": X}, {}, FLAT.reshape(2, 3, 4)),
    "test mode": (6, one("Dropout", ["x"], is_test=1), {"x": X}, {}, X),
    "selu": (1, one("Selu", ["x"]), {"x": X}, {},
             np.float32(1.0507) * np.where(X > 0, X, np.float32(1.6732) * (np.exp(X) - 1))),
}  # fmt: skip


@pytest.mark.parametrize("name", BEFORE)
def test_before_onnxruntime(name):
    opset, nodes, feed, constants, want = BEFORE[name]
    got = run(made(opset, nodes, feed, nodes[0].output, constants), feed)[0]
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_mask_was_of_the_input_before_opset_10():
    nodes = one("Dropout", ["x"], outputs=("y", "mask"))
    model = made(7, nodes, {"x": X}, ("y", "mask"))
    assert run(model, {"x": X})[1].dtype == np.float32


@pytest.mark.parametrize("op, gates, opset", [("GRU", 3, 1), ("GRU", 3, 3), ("RNN", 1, 1)])
def test_a_recurrent_layer_that_says_whether_it_gives_all_steps(op, gates, opset):
    nodes = one(op, ["x", "w", "r"], outputs=("y", "h"), hidden_size=4, output_sequence=1)
    feed = {"x": normal(5, 2, 3), "w": normal(1, 4 * gates, 3), "r": normal(1, 4 * gates, 4)}
    got = run(made(opset, nodes, feed, ("y", "h")), feed)
    nodes[0].attribute.pop()  # onnxruntime reads no such file
    for mine, want in zip(got, theirs(made(7, nodes, feed, ("y", "h")), feed), strict=True):
        np.testing.assert_allclose(mine, want, rtol=1e-5, atol=1e-6)


def test_scan_of_opset_8_has_batches():
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Identity", ["t"], ["u"])],
        "body",
        [helper.make_tensor_value_info(n, F, [2]) for n in ("s", "x")],
        [helper.make_tensor_value_info(n, F, [2]) for n in ("t", "u")],
    )
    feed = {"s": normal(3, 2), "x": normal(3, 4, 2)}
    nodes = one("Scan", ["", "s", "x"], outputs=("y", "z"), num_scan_inputs=1, body=body)
    last, every = run(made(8, nodes, feed, ("y", "z")), feed)
    want = feed["s"][:, None] + np.cumsum(feed["x"], 1)
    np.testing.assert_allclose(every, want, rtol=1e-5)
    np.testing.assert_allclose(last, want[:, -1], rtol=1e-5)
    backward = one("Scan", ["", "s", "x"], outputs=("y", "z"), num_scan_inputs=1, body=body,
                   directions=[1])  # fmt: skip
    _, every = run(made(8, backward, feed, ("y", "z")), feed)
    want = feed["s"][:, None] + np.cumsum(feed["x"][:, ::-1], 1)
    np.testing.assert_allclose(every, want, rtol=1e-5)


def test_scan_of_opset_8_with_lengths_is_refused():
    body = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["u"])],
        "body",
        [helper.make_tensor_value_info("x", F, [2])],
        [helper.make_tensor_value_info("u", F, [2])],
    )
    feed = {"l": np.array([4, 4, 4]), "x": normal(3, 4, 2)}
    nodes = one("Scan", ["l", "x"], num_scan_inputs=1, body=body)
    with pytest.raises(C.Error, match="sequence_lens of opset 8 is not supported"):
        run(made(8, nodes, feed), feed)


NORM = {"x": X, **{n: np.abs(normal(3)) for n in "sbmv"}}
REFUSED = {
    "is_test is 0: training in opset 6": (
        6, one("BatchNormalization", list(NORM), consumed_inputs=[0] * 5), NORM),
    "spatial is 0": (7, one("BatchNormalization", list(NORM), spatial=0), NORM),
    "it has 3 outputs: training in opset 9": (
        9, one("BatchNormalization", list(NORM), outputs=("y", "p", "q")), NORM),
    "axis 2 does not lay rank 2 on rank 3": (
        6, one("Add", ["x", "b"], broadcast=1, axis=2), {"x": X, "b": X[0]}),
    "attribute 'to' is 'HALF'": (1, one("Cast", ["x"], to="HALF"), {"x": X}),
    "tiles, axis or the rank": (
        1, one("Tile", ["x", "t", "t"]), {"x": X, "t": np.array(1.0, np.float32)}),
    "axis 3 does not exist, the input has rank 3": (
        1, one("Tile", ["x", "t", "t"]), {"x": X}, {"t": np.array(3.0, np.float32)}),
    "num_groups is 0": (
        18, one("GroupNormalization", ["x", "s", "s"], num_groups=0),
        {"x": IMAGE, "s": normal(3)}),
    "attribute 'num_groups' is missing": (
        18, one("GroupNormalization", ["x", "s", "s"]), {"x": IMAGE, "s": normal(3)}),
    "attribute 'height_scale' or 'width_scale' is missing": (
        1, one("Upsample", ["x"], height_scale=2.0), {"x": IMAGE}),
    "input 1 is missing": (6, one("Add", ["x"], broadcast=1, axis=0), {"x": X}),
    "attribute 'shape' is missing": (1, one("Reshape", ["x"]), {"x": X}),
    "attribute 'k' is missing": (1, one("TopK", ["x"], outputs=("y", "z")), {"x": X}),
    "attribute 'paddings' is missing": (1, one("Pad", ["x"]), {"x": X}),
    "no attribute 'pads'": (2, one("Pad", ["x"]), {"x": X}),
    "attribute 'starts' or 'ends' is missing": (1, one("Slice", ["x"], starts=[0]), {"x": X}),
    "attribute 'scales' is missing": (7, one("Upsample", ["x"]), {"x": IMAGE}),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_refused(message):
    opset, nodes, feed, *constants = REFUSED[message]
    with pytest.raises(C.Error, match=message):
        run(made(opset, nodes, feed, nodes[-1].output, *constants), feed)


@pytest.mark.parametrize("op", ["Add", "PRelu"])
def test_ranks_that_an_old_meaning_needs(op):
    attrs = {"broadcast": 1, "axis": 0} if op == "Add" else {}
    model = made(6, one(op, ["x", "b"], **attrs), {"x": X, "b": X[0, 0]})
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(C.Error, match="opset 6 needs operands of known rank"):
        run(model, {"x": X, "b": X[0, 0]})


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_softmax_of_unknown_rank(axis):
    model = made(11, one("Softmax", ["x"], axis=axis), {"x": X})
    want = run(model, {"x": X})[0]
    model.graph.input[0].type.tensor_type.ClearField("shape")
    np.testing.assert_allclose(run(model, {"x": X})[0], want, rtol=1e-6)


def test_every_version_of_every_op_is_read():
    """An op's version that the table forgets would be refused as one of another meaning."""
    known = {schema["name"] for schema in C.schemas()}
    forgotten = []
    for schema in defs.get_all_schemas_with_history():
        if schema.domain or schema.name not in known or schema.deprecated:
            continue
        node = helper.make_node(
            schema.name, [f"x{i}" for i in range(max(schema.min_input, 1))], ["y"]
        )
        feed = {name: normal(2, 3) for name in node.input}
        try:
            run(made(schema.since_version, [node], feed), feed)
        except C.Error as error:
            if "another meaning" in str(error):
                forgotten.append((schema.name, schema.since_version))
        except RuntimeError:
            pass
    assert forgotten == []
