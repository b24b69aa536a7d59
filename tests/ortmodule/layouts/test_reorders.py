"""Reorders stand only where others read or make a value that does not lie row-major."""

import pytest
import torch
import torch.nn.functional as F
from conv_samples import CASES, Convs, laid_out, next_block, reorders
from pairs import options
from torch import nn

from ortmodule import ORTModule


def test_reorders_are_where_data_enters_and_leaves():
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 64, 7, 2, 3)
            self.blocks = nn.ModuleList(Convs(None, 64) for _ in range(4))

        def forward(self, x):
            h = F.relu(self.stem(x))
            for block in self.blocks:
                h = F.relu(block.third(F.relu(block.second(h))) + h)
            return h.mean((2, 3))

    net = Deep().eval()
    x = torch.randn(2, 3, 64, 64)
    ours, plain = ORTModule(net, options()), ORTModule(net, options(off=("layouts",)))
    with torch.no_grad():
        torch.testing.assert_close(ours(x), plain(x), rtol=1e-4, atol=1e-4)
    assert reorders(ours.explain()) == []
    assert len(laid_out(ours.explain())) == 9  # all convolutions with what joins them
    assert laid_out(plain.explain()) == []


class Stem(nn.Module):
    """As a ResNet begins."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.second, self.third = nn.Conv2d(64, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1)

    def forward(self, x):
        h = F.max_pool2d(F.relu(self.norm(self.first(x))), 3, 2, 1)
        return F.relu(self.third(F.relu(self.second(h))) + h)


class UNet(nn.Module):
    """Down by a pool, up by a convolution, and joined."""

    def __init__(self):
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
        self.same, self.last = nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(64, 32, 3, padding=1)

    def forward(self, x):
        first = F.relu(self.first(x))
        low = F.relu(self.down(F.avg_pool2d(F.max_pool2d(first, 3, 1, 1), 3, 1, 1)))
        left, right = low.chunk(2, 1)
        return self.last(torch.cat([F.relu(self.same(left)), first * right], 1))


class Interpolated(UNet):
    """Up by interpolation instead, twice the size and then to a size."""

    def forward(self, x):
        first = F.relu(self.first(x))
        low = F.relu(self.down(F.max_pool2d(first, 2)))
        left, right = F.interpolate(low, scale_factor=2).chunk(2, 1)
        near = F.interpolate(F.max_pool2d(right, 4), first.shape[2:], mode="bilinear")
        return self.last(torch.cat([F.relu(self.same(left)), first * near], 1))


@pytest.mark.parametrize("kind, count", [(Stem, 3), (UNet, 0), (Interpolated, 0)])
def test_pools_and_parts_of_channels_take_no_reorder(kind, count):
    """The stem's result is its last ReLU, which the backward reads again beside its gradient."""
    net, x = kind(), torch.randn(2, 3, 32, 32)
    ours = ORTModule(net, options())
    ours(x).sum().backward()
    report = ours.explain()
    assert {"MaxPool", "MaxPoolGrad"} <= set(laid_out(report))
    assert len(reorders(report)) == count
    net.eval()
    with torch.no_grad():
        ours(x)
    assert reorders(ours.explain()) == []


# How many steps of training and of inference make what does not lie row-major, at least; and the
# reorders of training: where its result, which is row-major, is read again by the backward.
UNMOVED = {
    "chain": (6, 2, 0),
    "residual": (11, 4, 3),
    "squeezed": (5, 2, 0),
    "dropped_paths": (7, 3, 1),
    "scaled_by_channel": (6, 2, 3),
    "transposed": (7, 3, 0),
    "transposed_without_bias": (7, 3, 0),
    "depthwise_3": (5, 2, 0),
    "depthwise_5": (5, 2, 0),
    "depthwise_7": (5, 2, 0),
    "masked": (4, 2, 0),
    "pooled_where_windows_overlap": (9, 4, 0),
    "cut_and_joined": (16, 6, 0),
    "of_some_rows": (21, 9, 0),
}


@pytest.mark.parametrize("name", UNMOVED)
def test_what_takes_blocks_needs_no_reorder(name):
    training, inference, moved = UNMOVED[name]
    net = Convs(CASES[name], 32)
    ours = ORTModule(net, options())
    y = ours(torch.randn(2, 3, 12, 12))
    y.square().mean().backward()
    report = ours.explain()
    assert len(reorders(report)) == moved and len(laid_out(report)) >= training
    net.eval()
    with torch.no_grad():
        ours(torch.randn(2, 3, 12, 12))
    report = ours.explain()
    assert reorders(report) == [] and len(laid_out(report)) >= inference


def test_rows_of_channels_are_the_bytes_of_a_transposition():
    """Reordered once, where the first convolution gives blocks."""
    net = Convs(lambda net, y: next_block(net, next_block(net, y)), 32)
    ours = ORTModule(net, options())
    ours(torch.randn(2, 3, 12, 12)).square().mean().backward()
    assert len(reorders(ours.explain())) == 1
    assert len(laid_out(ours.explain())) >= 20
