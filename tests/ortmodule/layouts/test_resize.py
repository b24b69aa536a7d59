"""Interpolation of values that lie as blocks of channels or with their channels last."""

import copy

import pytest
import torch
import torch.nn.functional as F
from conv_samples import laid_out
from pairs import options
from torch import nn

from ortmodule import ORTModule

WAYS = {
    "nearest": {"scale_factor": 2},
    "nearest_of_an_odd_factor": {"scale_factor": 1.7},
    "exact": {"scale_factor": 0.6, "mode": "nearest-exact"},
    "linear": {"scale_factor": 2, "mode": "linear"},
    "linear_smaller": {"scale_factor": 0.6, "mode": "linear"},
    "corners": {"scale_factor": 1.7, "mode": "linear", "align_corners": True},
    "cubic": {"scale_factor": 1.6, "mode": "bicubic"},
    "filtered": {"scale_factor": 0.5, "mode": "bilinear", "antialias": True},
}
LAST = {2: torch.channels_last, 3: torch.channels_last_3d}
LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


class Between(nn.Module):
    """Two convolutions with an interpolation between them."""

    def __init__(self, axes, channels, **given):
        super().__init__()
        kind = getattr(nn, f"Conv{axes}d")
        self.first, self.second = kind(2, channels, 1), kind(channels, 16, 1)
        self.given = given

    def forward(self, x):
        return self.second(F.interpolate(F.relu(self.first(x)), **self.given) * 0.5)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    "axes, size, dtype",
    [
        (1, (13,), torch.float32),
        (2, (11, 13), torch.float32),
        (2, (11, 13), torch.bfloat16),
        (3, (5, 6, 7), torch.float32),
    ],
)
@pytest.mark.parametrize("name", WAYS)
def test_between_convolutions(name, axes, size, dtype, last):
    given = dict(WAYS[name])
    if given.get("mode") == "linear":
        given["mode"] = LINEAR[axes]
    if axes != 2 and given.get("mode", "").startswith("bi"):
        pytest.skip("torch has it for images alone")
    if name == "filtered" and dtype is torch.bfloat16:
        pytest.skip("torch has no kernel of it for halves")
    net = Between(axes, 32, **given)
    exact, found = copy.deepcopy(net).double(), []
    ours = ORTModule(net.to(dtype), options(fallback="error"))
    x = torch.randn(2, 2, *size).to(dtype)
    if last and axes > 1:
        x = x.contiguous(memory_format=LAST[axes])
    for module, owner in ((exact, exact), (ours, net)):
        there = x.to(next(owner.parameters()).dtype).requires_grad_()
        y = module(there)
        y.square().mean().backward()
        found.append([y, there.grad, *(p.grad for p in owner.parameters())])
    assert {"Resize", "ort::ResizeGrad"} & set(laid_out(ours.explain()))
    near = {"rtol": 1e-4, "atol": 1e-5} if dtype is torch.float32 else {"rtol": 0.1, "atol": 0.05}
    torch.testing.assert_close(found[1], [t.to(dtype) for t in found[0]], **near)
