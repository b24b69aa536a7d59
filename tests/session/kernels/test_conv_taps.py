"""Convolutions in bfloat16 whose window is a whole number of steps, or never meets the image:
oneDNN's for AMX were wrong, or wrote beyond their memory."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

from ortmodule import InferenceSession

CASES = [(48, 2, 2), (80, 2, 2), (112, 2, 2), (48, 4, 2), (48, 4, 4), (40, 4, 4), (16, 4, 4)]


# Of x and w, then pads and dilations: taps before and behind an axis, and none on it.
NEVER = [
    ((1, 16, 1, 7, 7), (16, 16, 2, 2, 2), [1, 0, 0], [2, 1, 1]),
    ((1, 3, 2, 7, 7), (5, 3, 2, 1, 2), [1, 0, 0], [3, 1, 1]),
    ((2, 16, 7, 1), (16, 16, 2, 2), [0, 1], [1, 2]),
    ((1, 16, 1, 7), (16, 16, 4, 2), [3, 0], [2, 1]),
    ((1, 16, 1), (16, 16, 2), [1], [2]),
]


def convolved(x, w, op="Conv", **attrs):
    kind, axes = TensorProto.BFLOAT16, [f"axis{i}" for i in range(x.dim())]
    ports = [helper.make_tensor_value_info(name, kind, axes) for name in "xy"]
    nodes = [helper.make_node(op, ["x", "w"], ["y"], **attrs)]
    bits = w.view(torch.uint8).numpy().tobytes()
    weights = [helper.make_tensor("w", kind, list(w.shape), bits, raw=True)]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], weights)
    opsets = [helper.make_opsetid("", 22)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return InferenceSession(data).run(None, {"x": x})[0].astype(np.float64)


@pytest.mark.parametrize("width", [12, 24])
@pytest.mark.parametrize(("channels", "kernel", "stride"), CASES)
def test_a_window_of_whole_steps_is_summed_right(channels, kernel, stride, width):
    x = torch.randn(2, channels, 4, width).bfloat16()
    w = torch.randn(32, channels, 2, kernel).bfloat16() / 16
    y = convolved(x, w, strides=[1, stride])
    want = torch.nn.functional.conv2d(x.double(), w.double(), stride=[1, stride]).numpy()
    np.testing.assert_allclose(y, want, atol=0.02 * np.abs(want).max())


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize(("image", "window", "pads", "dilations"), NEVER)
def test_windows_that_never_meet_the_image_give_zeros(image, window, pads, dilations, op):
    """The transposed one is what the gradient of x runs, over an x as y is."""
    x, w = torch.randn(image).bfloat16(), torch.randn(window).bfloat16()
    axes = len(pads)
    attrs = {"padding": pads, "dilation": dilations}
    want = getattr(torch.nn.functional, f"conv{axes}d")(x.double(), w.double(), **attrs)
    if op == "ConvTranspose":
        x = want.bfloat16() + 1
        transposed = getattr(torch.nn.functional, f"conv_transpose{axes}d")
        want = transposed(x.double(), w.double(), **attrs)
    y = convolved(x, w, op, pads=[*pads, *pads], dilations=dilations)
    assert y.shape == want.shape and y.size > 0
    np.testing.assert_array_equal(y, want.numpy())
