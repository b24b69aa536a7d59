"""Attributes and optional inputs at their corners: onnxruntime's answer, or one error."""

import itertools

import numpy as np
import pytest

from .against import agree, refused
from .models import model, node, normal, port


def windows(op, kernel, **attrs):
    """A pool or convolution along one axis; its size is open."""
    nodes = [node(op, "x" if "Pool" in op else "x w", "y", kernel_shape=[kernel], **attrs)]
    weights = {} if "Pool" in op else {"w": normal(1, 1, kernel)}
    return model(nodes, [port("x", [1, 1, "n"])], [port("y", None)], weights)


SAME = ["SAME_UPPER", "SAME_LOWER"]
WINDOWED = ["MaxPool", "AveragePool", "Conv"]


@pytest.mark.parametrize("op, auto_pad", itertools.product(WINDOWED, SAME))
def test_windows_that_leave_out_elements(op, auto_pad):
    """One element at most: of more, onnxruntime's ops leave out different ones."""
    for kernel, stride, size in itertools.product([1, 2], [1, 2, 3, 4], range(3, 10)):
        made = windows(op, kernel, strides=[stride], auto_pad=auto_pad)
        left_out = size - (size - 1) // stride * stride - kernel
        if left_out > 1:
            refused(made, {"x": normal(1, 1, size)}, "reach of auto_pad's windows")
        elif left_out < 1 or op != "MaxPool":  # onnxruntime refuses one for MaxPool alone
            agree(made, {"x": normal(1, 1, size)})


@pytest.mark.parametrize("op, auto_pad", itertools.product(WINDOWED[:2], SAME))
def test_pools_with_dilations_and_auto_pad(op, auto_pad):
    feed = {"x": normal(1, 1, 7)}
    agree(windows(op, 1, dilations=[2], auto_pad=auto_pad), feed)
    refused(windows(op, 2, dilations=[2], auto_pad=auto_pad), feed, "auto_pad .* with dilations")


@pytest.mark.parametrize("auto_pad", SAME)
def test_transposed_windows_that_do_not_meet(auto_pad):
    for kernel, stride, more in itertools.product([1, 2, 3], [1, 2, 3, 4], [0, 1]):
        attrs = {"strides": [stride], "output_padding": [more], "auto_pad": auto_pad}
        made, feed = windows("ConvTranspose", kernel, **attrs), {"x": normal(1, 1, 5)}
        if more >= stride:
            continue
        if kernel + more < stride:
            refused(made, feed, "reach of the kernel")
        else:
            agree(made, feed)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [[4, 0, 2], [0, 0, 0], [4, 4, 1]])
def test_a_sequence_of_no_steps(direction, lengths):
    count = 2 if direction == "bidirectional" else 1
    nodes = [node("LSTM", "x w r b lens h c", "y y_h y_c", hidden_size=4, direction=direction)]
    weights = {"w": normal(count, 16, 3), "r": normal(count, 16, 4), "b": normal(count, 32)}
    weights |= {"h": normal(count, 3, 4), "c": normal(count, 3, 4)}
    weights["lens"] = np.array(lengths, np.int32)
    ports = [port(name, None) for name in ("y", "y_h", "y_c")]
    agree(model(nodes, [port("x", [4, 3, 3])], ports, weights), {"x": normal(4, 3, 3)})
