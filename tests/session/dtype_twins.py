"""onnx's node tests with float32 exchanged for another floating dtype, where ONNX allows that.

Called by test_onnx.py. The oracle is onnx's own reference in float64, on the numbers that the
dtype can hold; nothing heavy may run on our reference provider.
"""

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from ortmodule import InferenceSession
from ortmodule._native import core

DTYPES = {
    "float16": (TensorProto.FLOAT16, np.dtype(np.float16)),
    "bfloat16": (TensorProto.BFLOAT16, np.dtype(ml_dtypes.bfloat16)),
    "float64": (TensorProto.DOUBLE, np.dtype(np.float64)),
}
_EPS = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-23, "float64": 1e-12}
# In float64 onnx's reference rounds these to float32, or their attributes are float32's numbers.
_ROUGH = {"Attention", "BatchNormalization", "Erf", "Gelu", "GroupNormalization", "LRN"}
_ROUGH |= {"DeformConv", "GridSample", "HardSigmoid", "HardSwish", "LeakyRelu"}
_FLOAT32 = {"AffineGrid"}  # onnx's reference gives that, whatever goes in
_CUBIC = {"GridSample", "Resize"}  # and its terms cancel: 3 bits more


def twin(model: onnx.ModelProto, name: str) -> onnx.ModelProto | None:
    """The model with `name` in place of float32; None where an op's schema does not allow it."""
    if any(node.op_type in _FLOAT32 for node in model.graph.node):
        return None
    kind, dtype = DTYPES[name]
    made = onnx.ModelProto()
    made.CopyFrom(model)
    ports = [*made.graph.input, *made.graph.output, *made.graph.value_info]
    for tensor_type in (port.type.tensor_type for port in ports):
        if tensor_type.elem_type == TensorProto.FLOAT:
            tensor_type.elem_type = kind
    for tensor in _tensors(made.graph):
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(dtype)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for node in made.graph.node:
        for attribute in node.attribute:
            if attribute.name in {"to", "dtype"} and attribute.i == TensorProto.FLOAT:
                attribute.i = kind
    try:
        onnx.checker.check_model(made)
        onnx.shape_inference.infer_shapes(made, check_type=True, strict_mode=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return None
    return made


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t


def failure(case, name: str) -> str | None:
    """Why the twin of a case does not pass on cpu; None where it does, or where there is none."""
    made, wide = twin(case.model, name), twin(case.model, "float64")
    if made is None or wide is None:
        return None
    dtype = DTYPES[name][1]
    inputs = _cast(case.data_sets[0][0], np.dtype(np.float32), dtype)
    ports = [port.name for port in made.graph.input]
    session = InferenceSession(made.SerializeToString(), providers=("cpu",))
    try:
        got = session.run(None, dict(zip(ports, inputs, strict=True)))
    except core().Error as error:
        return f"error: {error}"
    exact = _cast(inputs, dtype, np.dtype(np.float64))
    wanted = ReferenceEvaluator(wide).run(None, dict(zip(ports, exact, strict=True)))
    near = _EPS[name]
    if name == "float64" and any(node.op_type in _ROUGH for node in wide.graph.node):
        near = _EPS["float32"]
    if name == "float64" and any(node.op_type in _CUBIC for node in wide.graph.node):
        near = 8 * _EPS["float32"]
    for ours, theirs in zip(got, map(np.asarray, wanted), strict=True):
        expected = dtype if theirs.dtype == np.float64 else theirs.dtype
        if ours.dtype != expected:
            return f"dtype: {ours.dtype}, expected {expected}"
        try:
            _compare(ours, theirs, near)
        except AssertionError as error:
            return "wrong: " + " ".join(str(error).split())[:200]
    return None


def _compare(ours: np.ndarray, theirs: np.ndarray, near: float) -> None:
    if theirs.dtype != np.float64:
        np.testing.assert_array_equal(ours, theirs)
        return
    with np.errstate(over="ignore"):  # as the half does
        theirs = theirs.astype(ours.dtype).astype(np.float64)
    scale = np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0)
    np.testing.assert_allclose(ours.astype(np.float64), theirs, rtol=2 * near, atol=near * scale)


def _cast(arrays: list, source: np.dtype, dtype: np.dtype) -> list[np.ndarray]:
    arrays = [np.asarray(x) for x in arrays]
    return [x.astype(dtype) if x.dtype == source else x for x in arrays]
