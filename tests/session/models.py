"""Small ONNX models made with onnx.helper, for the session tests."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

KINDS = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}


def port(name, shape, kind="float32"):
    return helper.make_tensor_value_info(name, KINDS[kind], shape)


def node(op, inputs, outputs, **attrs):
    """A node from names separated by spaces."""
    names = outputs.split()
    return helper.make_node(op, inputs.split(), names, name=f"node_{names[0]}", **attrs)


def model(nodes, inputs, outputs, weights=None, opset=21):
    """A model; `weights` are arrays by name."""
    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def normal(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def mlp():
    nodes = [
        node("Gemm", "x w b", "h", transB=1),
        node("Relu", "h", "r"),
        node("MatMul", "r v", "s"),
        node("Softmax", "s", "y", axis=-1),
    ]
    weights = {"w": normal(5, 4), "b": normal(5), "v": normal(5, 3)}
    return model(nodes, [port("x", ["n", 4])], [port("y", ["n", 3])], weights), {"x": normal(2, 4)}


def conv_net():
    nodes = [
        node("Conv", "x w b", "c", pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", "c", "r"),
        node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", "p", "g"),
        node("Flatten", "g", "y"),
    ]
    weights = {"w": normal(4, 3, 3, 3), "b": normal(4)}
    made = model(nodes, [port("x", ["n", 3, 16, 16])], [port("y", ["n", 4])], weights)
    return made, {"x": normal(2, 3, 16, 16)}


def attention_block():
    nodes = [
        node("MatMul", "x wq", "q"),
        node("MatMul", "x wk", "k"),
        node("MatMul", "x wv", "v"),
        node("Transpose", "k", "kt", perm=[0, 2, 1]),
        node("MatMul", "q kt", "scores"),
        node("Mul", "scores scale", "scaled"),
        node("Softmax", "scaled", "p", axis=-1),
        node("MatMul", "p v", "mixed"),
        node("Add", "x mixed", "sum"),
        node("LayerNormalization", "sum gain", "y"),
    ]
    weights = {"wq": normal(8, 8), "wk": normal(8, 8) + 1, "wv": normal(8, 8)}
    weights |= {"scale": np.float32(0.35), "gain": normal(8)}
    ports = [port("x", ["n", "t", 8])], [port("y", ["n", "t", 8])]
    return model(nodes, *ports, weights), {"x": normal(2, 3, 8)}


def reductions_13():
    nodes = [
        node("ReduceMean", "x", "mean", axes=[1], keepdims=0),
        node("ReduceMax", "x", "max", axes=[-1]),
        node("ReduceSum", "x axes", "sum"),
        node("ReduceL2", "x", "norm", axes=[0, 2]),
    ]
    outputs = [port("mean", ["n", 4]), port("max", ["n", 3, 1]), port("sum", ["n", 1, 4])]
    outputs.append(port("norm", [1, 3, 1]))
    made = model(nodes, [port("x", ["n", 3, 4])], outputs, {"axes": ints(1)}, opset=13)
    return made, {"x": normal(2, 3, 4)}


def shape_arithmetic():
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Unsqueeze", "n zeros", "n1"),
        node("Concat", "n1 rest", "target", axis=0),
        node("Reshape", "x target", "y"),
    ]
    weights = {"zero": np.array(0, np.int64), "zeros": ints(0), "rest": ints(2, -1)}
    made = model(nodes, [port("x", ["n", 4, 6])], [port("y", ["n", 2, 12])], weights)
    return made, {"x": normal(3, 4, 6)}


def constants():
    nodes = [
        node("Constant", "", "f", value_float=1.5),
        node("Constant", "", "fs", value_floats=[1.0, 2.0, 3.0]),
        node("Constant", "", "i", value_int=1),
        node("Constant", "", "is", value_ints=[3, 1]),
        node("Constant", "", "t", value=numpy_helper.from_array(normal(3))),
        node("Mul", "x f", "a"),
        node("Add", "a fs", "b"),
        node("Sub", "b t", "c"),
        node("Reshape", "c is", "d"),
        node("Gather", "d i", "y", axis=0),
    ]
    return model(nodes, [port("x", [3])], [port("y", [1])]), {"x": normal(3)}


def split_and_where():
    nodes = [
        node("Split", "x sizes", "a b", axis=1),
        node("Greater", "a b", "more"),
        node("Where", "more a b", "y"),
        node("Not", "more", "less"),
    ]
    outputs = [port("y", ["n", 2]), port("less", ["n", 2], "bool")]
    made = model(nodes, [port("x", ["n", 4])], outputs, {"sizes": ints(2, 2)})
    return made, {"x": normal(3, 4)}


def embedding():
    nodes = [
        node("Gather", "table ids", "e"),
        node("Slice", "e start end axis step", "cut"),
        node("ReduceSum", "cut axis", "y", keepdims=0),
    ]
    weights = {"table": normal(7, 4), "start": ints(0), "end": ints(9), "axis": ints(1)}
    weights["step"] = ints(2)
    made = model(nodes, [port("ids", ["n", "t"], "int64")], [port("y", ["n", 4])], weights)
    return made, {"ids": np.array([[1, 2, 3], [4, 5, 6]], np.int64)}


def batch_norm():
    names = {name: np.abs(normal(3)) + 0.5 for name in ("gain", "bias", "mean", "var")}
    nodes = [node("BatchNormalization", "x gain bias mean var", "y")]
    shape = ["n", 3, "h", 4]
    return model(nodes, [port("x", shape)], [port("y", shape)], names), {"x": normal(2, 3, 5, 4)}


def top_k():
    nodes = [node("TopK", "x k", "values at", axis=-1)]
    outputs = [port("values", ["n", 2]), port("at", ["n", 2], "int64")]
    return model(nodes, [port("x", ["n", 5])], outputs, {"k": ints(2)}), {"x": normal(3, 5)}


def expand_and_pad():
    nodes = [
        node("Expand", "x shape", "e"),
        node("Pad", "e pads value", "p"),
        node("Erf", "p", "y"),
    ]
    weights = {"shape": ints(2, 3, 4), "pads": ints(0, 1, 0, 0, 0, 2), "value": np.float32(0.5)}
    return model(nodes, [port("x", [3, 1])], [port("y", [2, 4, 6])], weights), {"x": normal(3, 1)}


def trilu_cumsum():
    nodes = [
        node("Trilu", "x", "t", upper=0),
        node("CumSum", "t axis", "c"),
        node("Clip", "c low high", "y"),
    ]
    weights = {"axis": np.array(1, np.int64), "low": np.float32(-1), "high": np.float32(1)}
    return model(nodes, [port("x", ["n", 4])], [port("y", ["n", 4])], weights), {"x": normal(4, 4)}


def half_precision():
    """Small whole numbers, so that the order of sums does not matter."""
    nodes = [
        node("Cast", "x", "h", to=TensorProto.FLOAT16),
        node("MatMul", "h w", "m"),
        node("Pad", "m pads", "p"),
        node("ReduceSum", "p axes", "s", keepdims=0),
        node("CumSum", "s axis", "c"),
        node("Cast", "c", "y", to=TensorProto.FLOAT),
    ]
    weights = {"w": np.rint(2 * normal(4, 3)).astype(np.float16), "pads": ints(0, 1, 0, 0)}
    weights |= {"axes": ints(1), "axis": np.array(0, np.int64)}
    made = model(nodes, [port("x", ["n", 4])], [port("y", ["n"])], weights)
    return made, {"x": np.rint(2 * normal(5, 4))}


ALL = [mlp, conv_net, attention_block, reductions_13, shape_arithmetic, constants]
ALL += [split_and_where, embedding, batch_norm, top_k, expand_and_pad, trilu_cumsum, half_precision]
