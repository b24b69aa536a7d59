"""Convolutions in bfloat16 whose window is a whole number of steps: oneDNN's for AMX were wrong."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

from ortmodule import InferenceSession

CASES = [(48, 2, 2), (80, 2, 2), (112, 2, 2), (48, 4, 2), (48, 4, 4), (40, 4, 4), (16, 4, 4)]


@pytest.mark.parametrize("width", [12, 24])
@pytest.mark.parametrize(("channels", "kernel", "stride"), CASES)
def test_a_window_of_whole_steps_is_summed_right(channels, kernel, stride, width):
    kind = TensorProto.BFLOAT16
    x = torch.randn(2, channels, 4, width).bfloat16()
    w = torch.randn(32, channels, 2, kernel).bfloat16() / 16
    ports = [helper.make_tensor_value_info(name, kind, ["a", "b", "c", "d"]) for name in "xy"]
    steps = [1, stride]
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], strides=steps)]
    bits = w.view(torch.uint8).numpy().tobytes()
    weights = [helper.make_tensor("w", kind, list(w.shape), bits, raw=True)]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], weights)
    opsets = [helper.make_opsetid("", 22)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    (y,) = InferenceSession(data).run(None, {"x": x})
    want = torch.nn.functional.conv2d(x.double(), w.double(), stride=steps).numpy()
    np.testing.assert_allclose(y.astype(np.float64), want, atol=0.02 * np.abs(want).max())
