"""Which domains and opsets a file may have, and which of its ops are read."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from ortmodule import InferenceSession
from ortmodule._native import core

from ..models import node, normal, port
from .cases import f, made

Error = core().Error


def model(nodes, opsets, weights=(), ir_version=8, sparse=()):
    graph = helper.make_graph(
        nodes, "g", [port("x", [2, 3])], [port("y", None)], list(weights),
        sparse_initializer=list(sparse),
    )  # fmt: skip
    ids = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(graph, opset_imports=ids, ir_version=ir_version)


def run(made, x):
    return InferenceSession(made.SerializeToString()).run(None, {"x": x})[0]


def test_a_file_of_another_domain_alone():
    x = normal(2, 3)
    only = node("QuickGelu", "x", "y", domain="com.microsoft")
    got = run(model([only], {"com.microsoft": 1}), x)
    np.testing.assert_allclose(got, x / (1 + np.exp(-1.702 * x)), 1e-5)


def test_files_before_opsets_are_of_opset_1():
    x = normal(2, 3)
    made = model([node("Relu", "x", "y")], {}, ir_version=2)
    del made.opset_import[:]
    np.testing.assert_array_equal(run(made, x), np.maximum(x, 0))


REFUSED = {
    "the model imports no opset": ([node("Relu", "x", "y")], {}),
    r"node 'node_y' \(Relu\): the model imports no opset of domain 'ai.onnx'": (
        [node("Relu", "x", "y")], {"com.microsoft": 1},
    ),
    r"node 'node_y' \(Gelu\): the model imports no opset of domain 'com.microsoft'": (
        [node("Gelu", "x", "y", domain="com.microsoft")], {"": 21},
    ),
    "has opset 2 of domain 'com.microsoft', supported are 1 to 1": (
        [node("Gelu", "x", "y", domain="com.microsoft")], {"": 21, "com.microsoft": 2},
    ),
    "has opset 6 of domain 'ai.onnx.ml', supported are 1 to 5": (
        [node("Relu", "x", "y")], {"": 21, "ai.onnx.ml": 6},
    ),
    "op 'com.microsoft::Frobnicate' of opset 1 is not known": (
        [node("Frobnicate", "x", "y", domain="com.microsoft")], {"com.microsoft": 1},
    ),
    "op 'Frobnicate' of opset 21 is not known": ([node("Frobnicate", "x", "y")], {"": 21}),
    "op 'ort::Sizes' of opset 1 is not known": (
        [node("Sizes", "", "y", domain="ort")], {"": 21, "ort": 1},
    ),
    r"node 'node_y' \(Conv\): .* runs on the machine that wrote the file alone: save it with": (
        [node("Conv", "x x", "y", domain="com.microsoft.nchwc")],
        {"": 21, "com.microsoft.nchwc": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message):
    nodes, opsets = REFUSED[message]
    made = model(nodes, opsets)
    if not opsets:
        del made.opset_import[:]
    with pytest.raises(Error, match=message):
        InferenceSession(made.SerializeToString())


def test_ops_of_microsoft_are_exported_as_their_parts(tmp_path):
    x = normal(2, 3)
    made = model([node("QuickGelu", "x", "y", domain="com.microsoft")], {"com.microsoft": 1})
    onnx.save(made, tmp_path / "one.onnx")
    graph = core().read_onnx(str(tmp_path / "one.onnx"))
    core().export_onnx(graph, {}, {}, [("y", "y")], str(tmp_path / "two.onnx"))
    written = onnx.load(tmp_path / "two.onnx")
    assert {each.domain for each in written.graph.node} == {""}
    onnx.checker.check_model(written, full_check=True)
    np.testing.assert_array_equal(run(written, x), run(made, x))


# --- sparse tensors ------------------------------------------------------------------------------


def sparse(values, indices, dims, name="w"):
    tensor = helper.make_tensor(name, TensorProto.FLOAT, [len(values)], values)
    kind = TensorProto.INT64
    shape = np.shape(indices)
    places = helper.make_tensor("", kind, shape, np.ravel(indices))
    return helper.make_sparse_tensor(tensor, places, dims)


def added(*tensors):
    return model([node("Add", "x w", "y")], {"": 21}, sparse=tensors)


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]], ids=["flat", "places"])
def test_sparse_initializers_are_made_dense(indices):
    x, dense = normal(2, 3), np.zeros((2, 3), np.float32)
    dense[0, 1], dense[1, 2] = 3, -4
    np.testing.assert_array_equal(run(added(sparse([3, -4], indices, [2, 3])), x), x + dense)


def test_a_sparse_constant():
    x = normal(2, 3)
    constant = helper.make_node("Constant", [], ["w"], sparse_value=sparse([2.0], [2], [3]))
    made = model([constant, node("Add", "x w", "y")], {"": 21})
    np.testing.assert_array_equal(run(made, x), x + np.array([0, 0, 2], np.float32))


HOSTILE = {
    "has an element at 6": ([1.0], [6], [2, 3]),
    "has an element at -1": ([1.0], [-1], [2, 3]),
    "has an element at 3 of axis 1": ([1.0], [[0, 3]], [2, 3]),
    "has negative size -2": ([1.0], [0], [-2, 3]),
    r"indices of shape \[2\], expected int64 \[1\] or \[1, 2\]": ([1.0], [0, 1], [2, 3]),
    "has more than 1073741824 bytes when it is dense": ([1.0], [0], [1 << 20, 1 << 20]),
}


@pytest.mark.parametrize("message", HOSTILE)
def test_sparse_tensors_are_checked(message):
    with pytest.raises(Error, match=f"sparse tensor 'w'.*{message}"):
        InferenceSession(added(sparse(*HOSTILE[message])).SerializeToString())


# --- messages ------------------------------------------------------------------------------------

MESSAGES = {
    "mask has shape .3., expected one of": (
        "Attention", [f(2, 3, 6), f(6, 24), f(24), np.ones(3, np.int32)], {"num_heads": 4}, 1,
    ),
    "attribute 'do_rotary' is 1, which is not supported": (
        "Attention", [f(2, 3, 6), f(6, 24), f(24)], {"num_heads": 4, "do_rotary": 1}, 1,
    ),
    "activation 'Frobnicate' is not known": (
        "FusedGemm", [f(2, 3), f(3, 4)], {"activation": "Frobnicate"}, 1,
    ),
    "activation 'Relu' has 1 numbers, expected 0": (
        "FusedConv", [f(1, 1, 4), f(1, 1, 2)],
        {"activation": "Relu", "activation_params": [1.0]}, 1,
    ),
    "bits is 3, expected 2, 4 or 8": (
        "MatMulNBits", [f(2, 32), np.zeros((4, 2, 8), np.uint8), f(4, 2)],
        {"N": 4, "K": 32, "bits": 3, "block_size": 16}, 1,
    ),
    "block_size is 12, expected positive sizes and a power of two": (
        "MatMulNBits", [f(2, 32), np.zeros((4, 2, 8), np.uint8), f(4, 2)],
        {"N": 4, "K": 32, "block_size": 12}, 1,
    ),
    "shape .4. has 4 elements, the input .1. has 1": (
        "MatMulNBits",
        [f(2, 32), np.zeros((4, 2, 8), np.uint8), f(4, 2), None, None, f(1)],
        {"N": 4, "K": 32, "block_size": 16}, 1,
    ),
    "k_quant_type is 'PER_TENSOR', expected NONE": (
        "GroupQueryAttention",
        [*[f(1, 1, 8)] * 3, None, None, np.zeros(1, np.int32), np.array(1, np.int32)],
        {"num_heads": 1, "kv_num_heads": 1, "k_quant_type": "PER_TENSOR"}, 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES)
def test_errors_name_the_node(message):
    built, feed = made(*MESSAGES[message])
    with pytest.raises(Error, match=message) as caught:
        InferenceSession(built.SerializeToString()).run(None, feed)
    assert "the_node" in str(caught.value)
