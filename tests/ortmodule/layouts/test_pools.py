"""Pools of values that lie as blocks of channels or with their channels last."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conv_samples import Convs, laid_out
from pairs import options
from torch import nn

from ortmodule import ORTModule

POOLS = {
    "max": lambda y, f: f.max_pool(y, 3, 2, 1),
    "max_without_overlap": lambda y, f: f.max_pool(y, 2),
    "max_dilated": lambda y, f: f.max_pool(y, 3, 1, 1, dilation=2),
    "max_of_wide_windows": lambda y, f: f.max_pool(y, 5, 1, 2),
    "max_beyond_the_edge": lambda y, f: f.max_pool(y, 3, 2, 0, ceil_mode=True),
    "max_of_few": lambda y, f: f.max_pool(y, 1, 3),
    "average": lambda y, f: f.avg_pool(y, 2),
    "average_padded": lambda y, f: f.avg_pool(y, 3, 2, 1),
    "average_without_pads": lambda y, f: f.avg_pool(y, 3, 1, 1, count_include_pad=False),
    "average_of_wide_windows": lambda y, f: f.avg_pool(y, 5, 1, 2, count_include_pad=False),
    "average_beyond_the_edge": lambda y, f: f.avg_pool(y, 3, 2, 1, ceil_mode=True),
}


class PoolsOf:
    """torch's pools of one number of axes."""

    def __init__(self, axes: int):
        self.max_pool = getattr(F, f"max_pool{axes}d")
        self.avg_pool = getattr(F, f"avg_pool{axes}d")


@pytest.mark.parametrize(
    "axes, size, dtype",
    [
        (1, (13,), torch.float32),
        (2, (11, 13), torch.float32),
        (2, (11, 13), torch.bfloat16),
        (3, (7, 6, 9), torch.float32),
    ],
)
@pytest.mark.parametrize("name", POOLS)
def test_pools(name, axes, size, dtype):
    """Of small whole numbers, so that many are equal and sums are exact."""
    pools, kind = PoolsOf(axes), getattr(nn, f"Conv{axes}d")
    net = nn.Sequential(kind(2, 32, 1), kind(32, 16, 1)).to(dtype)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randint(-1, 2, p.shape))

    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = net

        def forward(self, x):
            return self.second(POOLS[name](F.relu(self.first(x)) - 1, pools))

    x, pooled, found = torch.randint(-2, 3, (2, 2, *size)), Pooled(), []
    exact = copy.deepcopy(pooled).double()
    ours = ORTModule(pooled, options(fallback="error"))
    plain = ORTModule(pooled, options(off=("layouts",)))
    for module, owner in ((exact, exact), (plain, pooled), (ours, pooled)):
        owner.zero_grad()
        given = x.to(next(owner.parameters()).dtype).requires_grad_()
        y = module(given)
        (y * (torch.arange(y.numel()).view(y.shape) % 3 - 1)).sum().backward()
        found.append([y, given.grad, *(p.grad for p in owner.parameters())])
    assert sum("Pool" in name for name in laid_out(ours.explain())) == 2
    near = {"rtol": 1e-5, "atol": 1e-4} if dtype is torch.float32 else {"rtol": 0.05, "atol": 1.0}
    torch.testing.assert_close(found[2], [t.to(dtype) for t in found[0]], **near)
    same = {"rtol": 0.0, "atol": 0.0} if name.startswith("max") else near
    torch.testing.assert_close(found[2], found[1], **same)


def test_maxima_that_are_nan():
    net = Convs(lambda net, y: net.third(F.max_pool2d(y, 3, 2, 1)), 32)
    ours, x = ORTModule(net, options()), torch.randn(2, 3, 12, 12)
    x[0, 0, 5, 5], x[1, 2, 0, 11] = float("nan"), float("inf")
    given = [x.clone().requires_grad_(), x.clone().requires_grad_()]
    y, expected = ours(given[0]), net(given[1])
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
    for one in (y, expected):
        one.nan_to_num(0, 0, 0).sum().backward()
    torch.testing.assert_close(given[0].grad, given[1].grad, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_indices_of_maxima_are_row_major(tmp_path):
    from ortmodule import InferenceSession

    class Maxima(Convs):
        def forward(self, x):
            y, index = F.max_pool2d(F.relu(self.first(x)), 3, 2, 1, return_indices=True)
            return self.second(y), index

    net, path = Maxima(None, 32).eval(), tmp_path / "net.onnx"
    x = torch.randn(2, 3, 13, 12)
    torch.onnx.export(net, (x,), str(path), dynamo=False, input_names=["x"])
    y, index = InferenceSession(path).run(None, {"x": x.numpy()})
    expected = net(x)
    np.testing.assert_allclose(y, expected[0].detach().numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(index, expected[1].numpy())
