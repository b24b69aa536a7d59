"""An empty batch, first or after another: eager's values, gradients and statistics."""

import pytest
import torch
import torch.nn.functional as F
from captured import Function
from pairs import Pair
from torch import nn


class Parts(nn.Module):
    """`forward(x, *parts)` as a module that owns the parts."""

    def __init__(self, forward, *parts):
        super().__init__()
        self.function, self.parts = forward, nn.ModuleList(parts)

    def forward(self, x):
        return self.function(x, *self.parts)


def chain(*parts):
    return nn.Sequential(*parts)


IMAGE, SEQUENCE, ROWS = (3, 8, 8), (5, 16), (16,)
MODULES = {
    "lstm": (
        lambda: Parts(
            lambda x, lstm, head: head(lstm(x)[0].mean(1)),
            nn.LSTM(16, 8, num_layers=2, bidirectional=True, batch_first=True),
            nn.Linear(16, 3),
        ),
        SEQUENCE,
    ),
    "attention": (lambda: nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True), SEQUENCE),
    "batch_norm_rows": (lambda: chain(nn.BatchNorm1d(16), nn.Linear(16, 6)), ROWS),
    "batch_norm_planes": (lambda: chain(nn.BatchNorm2d(3), nn.Conv2d(3, 6, 3)), IMAGE),
    "batch_norm_without_statistics": (
        lambda: chain(
            nn.BatchNorm2d(3, affine=False, track_running_stats=False), nn.Conv2d(3, 6, 3)
        ),
        IMAGE,
    ),
    "group_norm": (lambda: chain(nn.GroupNorm(3, 3), nn.Conv2d(3, 6, 3)), IMAGE),
    "pools": (
        lambda: chain(nn.Conv2d(3, 6, 3, groups=3), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)),
        IMAGE,
    ),
    "transposed_conv": (lambda: chain(nn.ConvTranspose2d(3, 6, 3), nn.ReLU()), IMAGE),
    "cross_entropy": (
        lambda: Parts(
            lambda x, net: F.cross_entropy(net(x), torch.zeros(x.shape[0], dtype=torch.long)),
            nn.Linear(16, 4),
        ),
        ROWS,
    ),
    "loss_of_nothing": (
        lambda: Parts(lambda x, net: F.mse_loss(net(x), x), nn.Linear(16, 16)),
        ROWS,
    ),
    "reductions": (
        lambda: Parts(
            lambda x, net: net(x).logsumexp(0) + net(x).cumsum(0).sum(0),
            nn.Linear(16, 16),
        ),
        ROWS,
    ),
    "products": (
        lambda: Parts(lambda x, net: torch.bmm(net(x), x.transpose(1, 2)), nn.Linear(16, 16)),
        SEQUENCE,
    ),
}


@pytest.mark.parametrize("sizes", [[0, 3], [3, 0, 3]], ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_empty_batch(name, sizes):
    make, shape = MODULES[name]
    pair = Pair(make())
    for size in sizes:
        pair.step(torch.randn(size, *shape))
    pair.through_engine(captures=2)


def test_view_with_a_size_that_is_zero():
    """ONNX's Reshape reads a 0 as "the input's size" unless told otherwise."""
    pair = Pair(Function(lambda x: x.view(7, 0, 4).transpose(0, 1) + 1.0))
    pair.step(torch.randn(4, 7, 0))
    pair.through_engine()
