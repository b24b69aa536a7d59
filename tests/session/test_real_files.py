"""What files of others have: outputs declared with another rank, sizes of -1, and an error in a
branch or a loop that no run comes to. Compared with onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

from ortmodule import InferenceSession, _native

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def info(name, shape=None, dtype=T.FLOAT):
    return h.make_tensor_value_info(name, dtype, shape)


def constants(**arrays):
    return [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]


def model(nodes, x=(2, 3, 4), y=None, given=(), **arrays) -> bytes:
    inputs, outputs = [info("x", x), *given], [info("y", y)]
    graph = h.make_graph(nodes, "g", inputs, outputs, constants(**arrays))
    opsets = [h.make_opsetid("", 17)]
    return h.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def same(file: bytes, **feed):
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    theirs = onnxruntime.InferenceSession(file, quiet, providers=["CPUExecutionProvider"])
    expected = theirs.run(None, {"x": X, **feed})[0]
    (found,) = InferenceSession(file).run(None, {"x": X, **feed})
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


RANKS = {
    "fewer": model([h.make_node("Relu", ["x"], ["y"])], y=[2, 3]),
    "none": model([h.make_node("ReduceSum", ["x"], ["y"], keepdims=1)], y=[]),
    "more": model([h.make_node("Reshape", ["x", "s"], ["y"])], y=["a", 12], s=np.array([-1])),
    "of_symbols": model(
        [h.make_node("Reshape", ["x", "s"], ["y"])], ["a", "b", "c"], ["a", 12], s=np.array([-1])
    ),
}


@pytest.mark.parametrize("name", RANKS)
def test_an_output_has_the_rank_that_is_computed(name, capfd):
    same(RANKS[name])
    assert "warning: graph output 'y' is declared float32[" in capfd.readouterr().err


def test_an_output_of_another_dtype_is_an_error():
    relu = h.make_node("Relu", ["x"], ["y"])
    graph = h.make_graph([relu], "g", [info("x", [2])], [info("y", [2], T.DOUBLE)])
    with pytest.raises(_native.core().Error, match="is declared float64"):
        InferenceSession(h.make_model(graph, ir_version=8).SerializeToString())


def test_a_size_of_minus_one_is_open():
    shape = [h.make_node("Shape", ["x"], ["all"]), h.make_node("Slice", ["all", "z", "o"], ["n"])]
    rest = [
        h.make_node("Concat", ["n", "open", "four"], ["to"], axis=0),
        h.make_node("Reshape", ["x", "to"], ["a"]),
        h.make_node("Slice", ["to", "o", "two"], ["middle"]),
        h.make_node("Concat", ["n", "middle"], ["flat"], axis=0),
        h.make_node("Reshape", ["a", "flat"], ["y"]),
    ]
    numbers = {"z": [0], "o": [1], "two": [2], "open": [-1], "four": [4]}
    arrays = {name: np.array(value) for name, value in numbers.items()}
    same(model([*shape, *rest], [-1, 3, 4], [-1, -1], **arrays))
    same(model([h.make_node("Reshape", ["x", "s"], ["y"])], [-1, 3, -1], [-1, 12],
               s=np.array([-1, 12])))  # fmt: skip


def branch(*nodes, **arrays):
    return h.make_graph(list(nodes), "b", [], [info("y")], constants(**arrays))


WRONG = branch(
    h.make_node("Gather", ["k", "at"], ["y"]), k=np.ones(3, np.float32), at=np.array([7])
)


def chosen(taken: bool):
    right = branch(h.make_node("Relu", ["x"], ["y"]))
    node = h.make_node("If", ["c"], ["y"], then_branch=right, else_branch=WRONG)
    return model([node], given=[info("c", [], T.BOOL)]), {"c": np.array(taken)}


def test_an_error_in_a_branch_is_one_where_it_is_taken():
    file, feed = chosen(True)
    same(file, **feed)
    file, feed = chosen(False)
    with pytest.raises(_native.core().Error, match="index 7 is out of range"):
        InferenceSession(file).run(None, {"x": X, **feed})


@pytest.mark.parametrize("trips", [0, 1])
def test_an_error_in_a_loop_is_one_where_it_runs(trips):
    nodes = [
        h.make_node("Identity", ["go"], ["on"]),
        h.make_node("Gather", ["k", "at"], ["e"]),
        h.make_node("Add", ["v", "e"], ["w"]),
    ]
    takes = [info("i", [], T.INT64), info("go", [], T.BOOL), info("v")]
    gives = [info("on", [], T.BOOL), info("w")]
    arrays = constants(k=np.ones(3, np.float32), at=np.array([7]))
    body = h.make_graph(nodes, "l", takes, gives, arrays)
    file = model([h.make_node("Loop", ["m", "", "x"], ["y"], body=body)], m=np.array(trips))
    if trips == 0:
        same(file)
        return
    with pytest.raises(_native.core().Error, match="index 7 is out of range"):
        InferenceSession(file).run(None, {"x": X})
