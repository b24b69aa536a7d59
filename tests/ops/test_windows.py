"""Pooling windows of many shapes against torch: strides, pads, dilations, NaN, up to three axes."""

import numpy as np
import pytest
import torch
from onnx import helper

from ortmodule import InferenceSession

MAXIMA = (torch.max_pool1d, torch.max_pool2d, torch.max_pool3d)
AVERAGES = tuple(getattr(torch.nn.functional, f"avg_pool{n}d") for n in (1, 2, 3))


def pooled(op: str, x: np.ndarray, **attributes) -> np.ndarray:
    dtype = helper.np_dtype_to_tensor_dtype(x.dtype)
    given = helper.make_tensor_value_info("x", dtype, x.shape)
    made = helper.make_tensor_value_info("y", dtype, [None] * x.ndim)
    node = helper.make_node(op, ["x"], ["y"], **attributes)
    model = helper.make_model(
        helper.make_graph([node], "pool", [given], [made]),
        opset_imports=[helper.make_opsetid("", 22)],
    )
    model.ir_version = 10
    return InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_windows_are_as_torchs(axes, dtype):
    random = np.random.default_rng(axes)
    for trial in range(12):
        size = random.integers(9, (300, 40, 12)[axes - 1], axes).tolist()
        kernel, strides, dilations = (random.integers(1, most, axes).tolist() for most in (5, 4, 3))
        pads = [int(random.integers(0, k // 2 + 1)) for k in kernel]
        x = random.standard_normal((2, 3, *size)).astype(dtype)
        t = torch.from_numpy(x)
        window = {"kernel_shape": kernel, "strides": strides, "pads": pads * 2}
        for include in (0, 1):
            want = AVERAGES[axes - 1](t, kernel, strides, pads, count_include_pad=bool(include))
            got = pooled("AveragePool", x, count_include_pad=include, **window)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        if trial % 2:
            x.flat[random.integers(0, x.size, 3)] = np.nan
        want = MAXIMA[axes - 1](t, kernel, strides, pads, dilations)
        np.testing.assert_array_equal(pooled("MaxPool", x, dilations=dilations, **window), want)
