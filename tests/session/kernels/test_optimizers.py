"""Steps of Adagrad, Adam and Momentum (ai.onnx.preview.training) against onnx's reference."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from ortmodule import InferenceSession
from ortmodule._native import core

KINDS = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE}
DOMAIN = "ai.onnx.preview.training"
CASES = {
    "adagrad": ("Adagrad", 1, {"norm_coefficient": 0.01, "decay_factor": 0.1, "epsilon": 1e-5}),
    "adagrad, defaults": ("Adagrad", 1, {}),
    "adam": ("Adam", 2, {"norm_coefficient": 0.01, "norm_coefficient_post": 0.02, "alpha": 0.95}),
    "adam, defaults": ("Adam", 2, {}),
    "momentum": (
        "Momentum", 1, {"alpha": 0.9, "beta": 0.2, "mode": "standard", "norm_coefficient": 0.01},
    ),
    "nesterov": (
        "Momentum", 1, {"alpha": 0.9, "beta": 0.2, "mode": "nesterov", "norm_coefficient": 0.01},
    ),
}  # fmt: skip
SHAPES = [(3, 4), (5,), ()]


def made(op, states, attrs, dtype, count):
    """A step of the first `count` parameters, and a feed without T."""
    rng = np.random.default_rng(0)
    feed = {"R": np.array(0.1, dtype)}
    for kind in range(2 + states):
        for i in range(count):
            # A second moment is not negative.
            each = np.abs(rng.standard_normal(SHAPES[i])) + 0.1
            feed[f"x{kind}_{i}"] = np.asarray(each, dtype)
    names = list(feed)[1:]
    outputs = [f"y{i}" for i in range((1 + states) * count)]
    node = helper.make_node(op, ["R", "T", *names], outputs, "step", domain=DOMAIN, **attrs)
    ports = [helper.make_tensor_value_info(n, KINDS[dtype], x.shape) for n, x in feed.items()]
    ports.append(helper.make_tensor_value_info("T", TensorProto.INT64, []))
    told = [helper.make_tensor_value_info(name, KINDS[dtype], None) for name in outputs]
    graph = helper.make_graph([node], "g", ports, told)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), feed


@pytest.mark.parametrize("providers", [("reference",), None], ids=["reference", "default"])
@pytest.mark.parametrize("dtype", KINDS, ids=lambda dtype: dtype.__name__)
@pytest.mark.parametrize("name", CASES)
def test_steps(name, dtype, providers):
    model, feed = made(*CASES[name], dtype, 3)
    session = InferenceSession(model.SerializeToString(), providers=providers)
    reference = ReferenceEvaluator(model)
    for count in (0, 1, 7):
        each = feed | {"T": np.array(count)}
        pairs = zip(session.run(None, each), reference.run(None, each), strict=True)
        for got, want in pairs:
            assert got.dtype == dtype
            np.testing.assert_allclose(got, want, 1e-5, 1e-6)


def test_tensors_are_counted():
    model, _ = made("Adam", 2, {}, np.float32, 1)
    del model.graph.node[0].input[-1]
    with pytest.raises(core().Error, match="it has 3 tensors, expected 4 of each parameter"):
        InferenceSession(model.SerializeToString())
