"""torch's interpolate under ORTModule and in its exports, against eager."""

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from pairs import Net, Pair, options
from torch import nn

from ortmodule import ORTModule

LINE, IMAGE, VOLUME = (2, 3, 7), (2, 3, 7, 6), (1, 2, 4, 5, 3)
CALLS = {
    "nearest_1d": (LINE, {"scale_factor": 2}),
    "nearest_2d": (IMAGE, {"scale_factor": 2}),
    "nearest_2d_by_size": (IMAGE, {"size": (5, 11)}),
    "nearest_2d_of_an_odd_factor": (IMAGE, {"scale_factor": 2.1}),
    "nearest_2d_wide": ((1, 1, 2, 90), {"scale_factor": (1.9, 1.7)}),
    "nearest_3d": (VOLUME, {"scale_factor": (1.5, 0.5, 3)}),
    "exact_1d": (LINE, {"scale_factor": 0.6, "mode": "nearest-exact"}),
    "exact_2d": (IMAGE, {"size": (5, 11), "mode": "nearest-exact"}),
    "exact_3d": (VOLUME, {"scale_factor": 1.5, "mode": "nearest-exact"}),
    "linear": (LINE, {"scale_factor": 1.6, "mode": "linear"}),
    "bilinear": (IMAGE, {"scale_factor": 2, "mode": "bilinear"}),
    "bilinear_smaller": (IMAGE, {"scale_factor": 0.4, "mode": "bilinear"}),
    "bilinear_to_one": (IMAGE, {"size": 1, "mode": "bilinear"}),
    "bilinear_of_an_odd_factor": (IMAGE, {"scale_factor": (1.7, 2.3), "mode": "bilinear"}),
    "bilinear_recomputed": (
        IMAGE,
        {"scale_factor": (1.7, 2.3), "mode": "bilinear", "recompute_scale_factor": True},
    ),
    "bilinear_corners": (IMAGE, {"scale_factor": 1.7, "mode": "bilinear", "align_corners": True}),
    "trilinear": (VOLUME, {"size": (3, 8, 5), "mode": "trilinear"}),
    "bicubic": (IMAGE, {"scale_factor": 1.9, "mode": "bicubic"}),
    "bicubic_corners": (IMAGE, {"size": (4, 9), "mode": "bicubic", "align_corners": True}),
    "bilinear_filtered": (IMAGE, {"size": (3, 9), "mode": "bilinear", "antialias": True}),
    "bicubic_filtered": (IMAGE, {"scale_factor": 0.5, "mode": "bicubic", "antialias": True}),
}


class Interpolate(nn.Module):
    def __init__(self, **given):
        super().__init__()
        self.given = given

    def forward(self, x):
        return F.interpolate(x, **self.given)


def both(name, dtype=torch.float32, **fields):
    shape, given = CALLS[name]
    module = Interpolate(**given)
    x = torch.randn(shape, dtype=dtype)
    return module, ORTModule(module, options(fallback="error", **fields)), x


def of_torch(report):
    return [step for step in report.steps if step.provider == "aten"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients(name, dtype):
    if "filtered" in name and dtype is torch.bfloat16:
        pytest.skip("torch has no kernel for it")
    eager, ours, x = both(name, dtype)
    found = []
    for module in (eager, ours):
        given = x.clone().requires_grad_()
        y = module(given)
        dy = torch.linspace(-1, 1, y.numel()).view(y.shape).to(dtype)
        found.append([y, *torch.autograd.grad(y, given, dy)])
    near = {"rtol": 0.05, "atol": 0.05} if dtype is torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(found[1], found[0], **near)
    assert not of_torch(ours.explain())


@pytest.mark.parametrize("name", ["nearest_2d", "bilinear", "bicubic", "bicubic_filtered"])
def test_second_order(name):
    eager, ours, x = both(name)
    found = []
    for module in (eager, ours):
        given = x.clone().requires_grad_()
        (dx,) = torch.autograd.grad(module(given).pow(3).sum(), given, create_graph=True)
        found.append(torch.autograd.grad(dx.square().sum(), given)[0])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-3)


SIZES = {
    "doubled": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "by_a_size": lambda x: F.interpolate(x, (x.shape[3], x.shape[2] * 2), mode="bicubic"),
    "to_a_number": lambda x: F.interpolate(x, (9, 9)),
    "filtered": lambda x: F.interpolate(x, (5, x.shape[3]), mode="bilinear", antialias=True),
}


@pytest.mark.parametrize("name", SIZES)
def test_one_capture_serves_other_sizes(name):
    pair = Pair(Net(lambda module, x: SIZES[name](module.second(module.first(x)))))
    for height in (4, 7, 12, 5):
        pair.step(torch.randn(2, 3, height, 3))
    pair.through_engine(captures=1)
    assert not of_torch(pair.report)


def test_bytes_are_moved_and_weighed_by_torch():
    x = torch.randint(0, 255, (1, 3, 5, 6), dtype=torch.uint8)
    for given in ({"scale_factor": 2}, {"size": (4, 9), "mode": "bilinear"}):
        module = Interpolate(**given)
        ours = ORTModule(module, options(fallback="error"))
        torch.testing.assert_close(ours(x), module(x), rtol=0, atol=0)
        assert len(of_torch(ours.explain())) == ("mode" in given)


# Of a factor that makes twice the size torch makes a 2, if the image is small. ONNX does not.
@pytest.mark.parametrize("name", sorted(CALLS.keys() - {"nearest_2d_of_an_odd_factor"}))
def test_export(name, tmp_path):
    """As onnxruntime computes the file, which has no attribute of ours."""
    module, ours, x = both(name)
    ours.export_onnx(tmp_path / "net.onnx", (x,))
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    np.testing.assert_allclose(y, module(x).numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("sizes", [(0, 3, 4, 4), (2, 0, 4, 4), (2, 3, 0, 4)])
def test_an_axis_without_elements_is_torchs_to_refuse(mode, sizes):
    def ends(call):
        try:
            return call(torch.zeros(sizes)).shape
        except Exception as error:
            return str(error)

    net = nn.Upsample(scale_factor=2, mode=mode)
    assert ends(ORTModule(net, options())) == ends(net)
