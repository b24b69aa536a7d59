"""Convolutions over sounds: rows of many elements and few channels, by eager's float64."""

import numpy as np
import pytest
import torch

from ortmodule import InferenceSession

from ..models import model, node, normal, port

# Channels in and out, kernel, dilation, stride, groups.
CASES = [(16, 16, 11, 5, 1, 1), (1, 8, 7, 1, 2, 1), (80, 32, 3, 1, 1, 1), (16, 1, 7, 1, 1, 1),
         (16, 32, 3, 2, 1, 4), (5, 6, 4, 1, 3, 1)]  # fmt: skip


def conv(name, x, w, y, dilation=1, stride=1, group=1):
    pad = dilation * (w.shape[2] - 1) // 2
    attrs = {"dilations": [dilation], "strides": [stride], "pads": [pad, pad], "group": group}
    return node("Conv", f"{x} {name}", y, **attrs)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_convolution(case):
    inner, outer, kernel, dilation, stride, group = case
    w = normal(outer, inner // group, kernel)
    nodes = [conv("w", "x", w, "h", dilation, stride, group), node("LeakyRelu", "h", "y")]
    made = model(nodes, [port("x", ["n", inner, "t"])], [port("y", None)], {"w": w})
    session = InferenceSession(made.SerializeToString())
    for length in (9001, 20000):
        x = normal(2, inner, length)
        wide = [torch.from_numpy(array).double() for array in (x, w)]
        pad = dilation * (kernel - 1) // 2
        h = torch.nn.functional.conv1d(
            *wide, stride=stride, padding=pad, dilation=dilation, groups=group
        )
        want = torch.nn.functional.leaky_relu(h, 0.01).numpy()
        np.testing.assert_allclose(session.run(None, {"x": x})[0], want, rtol=1e-4, atol=1e-4)
