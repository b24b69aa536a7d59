"""Models of one op of ai.onnx.ml, and what onnxruntime and onnx's reference make of them."""

import tempfile
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from ortmodule import InferenceSession, SessionOptions
from ortmodule._native import core

Error = core().Error
DOMAIN = "ai.onnx.ml"
KINDS = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "int16": TensorProto.INT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "object": TensorProto.STRING,
}


def tensor(array):
    """A tensor attribute."""
    array = np.asarray(array)
    values = [text.encode() for text in array.ravel()] if array.dtype == object else array.ravel()
    return helper.make_tensor("t", KINDS[array.dtype.name], array.shape, values)


def port(name, array):
    """Of the array's dtype and rank: its sizes are free, but for the last one of a matrix."""
    shape = [f"{name}{axis}" for axis in range(array.ndim)]
    if array.ndim == 2:
        shape[1] = array.shape[1]
    return helper.make_tensor_value_info(name, KINDS[array.dtype.name], shape)


def open_port(name, kind):
    info = helper.ValueInfoProto(name=name)
    info.type.tensor_type.elem_type = kind
    return info


def made(op, feed, outputs, opset=3, domain=DOMAIN, **attrs):
    """A model of one node that reads `feed` and gives `outputs`, kinds by name."""
    node = helper.make_node(
        op, list(feed), list(outputs), name=f"node_{op}", domain=domain, **attrs
    )
    inputs = [port(name, array) for name, array in feed.items()]
    infos = [open_port(name, kind) for name, kind in outputs.items()]
    graph = helper.make_graph([node], "g", inputs, infos)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def ours(model, feed, providers=None):
    return InferenceSession(model.SerializeToString(), providers=providers).run(None, feed)


def theirs(model, feed):
    onnxruntime.set_default_logger_severity(4)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)


def reference(model, feed):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return ReferenceEvaluator(model).run(None, feed)


def same(got, want, rtol=1e-5, atol=1e-6):
    assert len(got) == len(want)
    for mine, other in zip(got, want, strict=True):
        other = np.asarray(other)
        assert mine.shape == other.shape
        if mine.dtype.kind == "f":
            assert mine.dtype == other.dtype
            np.testing.assert_allclose(mine, other, rtol, atol)
        else:
            assert mine.tolist() == other.tolist()


def saved(model):
    """As a session saves it, which is a valid file."""
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        options = SessionOptions()
        options.optimized_model_filepath = file.name
        InferenceSession(model.SerializeToString(), options)
        again = onnx.load(file.name)
    if all(port.type.tensor_type.HasField("shape") for port in again.graph.input):
        onnx.checker.check_model(again)
    return again


def agree(model, feed, oracle=theirs, **tolerance):
    """On both providers, and as it is saved."""
    want = oracle(model, feed)
    for providers in (None, ("reference",)):
        same(ours(model, feed, providers), want, **tolerance)
    same(ours(saved(model), feed), want, **tolerance)


def refused(model, message):
    """When it is loaded, by one line that names the node."""
    with pytest.raises(Error, match=message) as caught:
        InferenceSession(model.SerializeToString())
    assert "\n" not in str(caught.value) and "node_" in str(caught.value)
