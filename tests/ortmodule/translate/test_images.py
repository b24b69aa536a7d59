"""torch's and torchvision's operators on images, under ORTModule and exported, against eager."""

import itertools

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from captured import Function
from pairs import options
from torchvision import ops

from ortmodule import ORTModule


def grid_sampled(mode, padding_mode, align_corners):
    return lambda x, g: F.grid_sample(x, g, mode, padding_mode, bool(align_corners))


IMAGE, VOLUME = torch.randn(2, 3, 7, 6), torch.randn(1, 2, 4, 5, 3)
PLACES, IN_VOLUME = torch.rand(2, 5, 9, 2) * 3 - 1.5, torch.rand(1, 3, 4, 2, 3) * 3 - 1.5
BOXES = torch.tensor([[0, 0.3, 0.2, 5.2, 6.1], [1, 2.1, 1.3, 7.4, 7.2], [1, -3.0, 2.0, 1.1, 9.3]])
COLUMNS = torch.randn(2, 12, 9)
OFFSET, KERNEL = torch.randn(2, 18, 7, 6), torch.randn(4, 3, 3, 3)
PADDING = ("zeros", "border", "reflection")
CALLS = {
    **{f"grid_sample_{m}_{p}_{int(a)}": (grid_sampled(m, p, a), IMAGE, PLACES)
       for m, p, a in itertools.product(("bilinear", "nearest", "bicubic"), PADDING, (0, 1))},
    **{f"grid_sample_3d_{m}_{p}": (grid_sampled(m, p, False), VOLUME, IN_VOLUME)
       for m, p in itertools.product(("bilinear", "nearest"), PADDING)},
    **{f"roi_align_{ratio}_{aligned}": (lambda x, r=ratio, a=bool(aligned): ops.roi_align(
        x, BOXES.to(x.dtype), (3, 2), 0.7, r, a), IMAGE)
       for ratio, aligned in itertools.product((-1, 2), (0, 1))},
    "roi_align_of_lists": (lambda x: ops.roi_align(
        x, [BOXES[:1, 1:].to(x.dtype), BOXES[1:, 1:].to(x.dtype)], 3), IMAGE),
    "roi_pool": (lambda x: ops.roi_pool(x, BOXES.to(x.dtype), (3, 2), 0.8), IMAGE),
    "deform_conv": (lambda x, o, w: ops.deform_conv2d(x, o, w, padding=1), IMAGE, OFFSET, KERNEL),
    "deform_conv_of_groups": (lambda x, o, w, m, b: ops.deform_conv2d(
        x, o, w, b, stride=2, padding=(1, 2), dilation=(1, 2), mask=m),
        torch.randn(2, 4, 7, 6), torch.randn(2, 24, 4, 3), torch.randn(6, 2, 2, 3),
        torch.rand(2, 12, 4, 3), torch.randn(6)),
    "deform_conv_of_no_offsets": (lambda x, o, w: ops.deform_conv2d(x, o * 0, w, padding=1),
                                  IMAGE, OFFSET, KERNEL),
    "unfold": (lambda x: F.unfold(x, (3, 2), dilation=(1, 2), padding=1, stride=(2, 1)), IMAGE),
    "unfold_one": (lambda x: F.unfold(x[0], 2), IMAGE),
    "fold": (lambda x: F.fold(x, (4, 5), (2, 3), padding=(1, 0), stride=(2, 1)), COLUMNS),
    "fold_one": (lambda x: F.fold(x[0], (4, 5), (2, 3), padding=(1, 0), stride=(2, 1)), COLUMNS),
    "fold_of_unfold": (lambda x: F.fold(F.unfold(x, 3, padding=1), x.shape[2:], 3, padding=1),
                       IMAGE),
}  # fmt: skip
# One of each operator.
EACH = ["grid_sample_bilinear_zeros_0", "grid_sample_3d_nearest_border", "roi_align_2_1",
        "roi_pool", "fold", "deform_conv_of_groups"]  # fmt: skip


def of_torch(report):
    return [step for step in report.steps if step.provider == "aten"]


def leaves_of(tensors):
    return [x.clone().requires_grad_() if x.is_floating_point() else x for x in tensors]


@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients(name):
    check(name, torch.float32)


@pytest.mark.parametrize("name", EACH)
def test_in_double_precision(name):
    check(name, torch.float64)


def check(name, dtype):
    function, *tensors = CALLS[name]
    tensors = [x.to(dtype) if x.is_floating_point() else x for x in tensors]
    ours, found = ORTModule(Function(function), options(fallback="error")), []
    for module in (Function(function), ours):
        given = leaves_of(tensors)
        y = module(*given)
        dy = torch.linspace(-1, 1, y.numel()).view(y.shape).to(dtype)
        leaves = [x for x in given if x.requires_grad]
        found.append([y, *torch.autograd.grad(y, leaves, dy)])
    near = 1e-4 if dtype is torch.float32 else 1e-10
    torch.testing.assert_close(found[1], found[0], rtol=near, atol=near)
    assert not of_torch(ours.explain())


# Of the newest opset onnxruntime has no kernel for regions.
@pytest.mark.parametrize("name", [name for name in EACH if not name.startswith("roi")])
def test_export(name, tmp_path):
    """As onnxruntime computes the file."""
    function, *tensors = CALLS[name]
    ours = ORTModule(Function(function), options(fallback="error"))
    ours.export_onnx(tmp_path / "net.onnx", tuple(tensors))
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    ports = [port.name for port in session.get_inputs()]
    feed = dict(zip(ports, [x.numpy() for x in tensors], strict=True))
    np.testing.assert_allclose(session.run(None, feed)[0], function(*tensors), rtol=1e-4, atol=1e-4)
