"""Sizes that are used after an operator which torch takes apart while it is translated: they stay
sizes, so one capture serves other ones, with eager's values and gradients."""

import pytest
import torch
import torch.nn.functional as F
from pairs import Net, Pair
from torch import nn

AFTER = {
    "interpolate_bilinear": lambda y: F.interpolate(y, size=(16, 16), mode="bilinear"),
    "interpolate_nearest": lambda y: F.interpolate(y, size=(16, 16), mode="nearest"),
    "interpolate_bicubic": lambda y: F.interpolate(y, size=(9, 9), mode="bicubic"),
    "interpolate_antialias": lambda y: F.interpolate(
        y, size=(16, 16), mode="bilinear", antialias=True
    ),
    "interpolate_area": lambda y: F.interpolate(y, size=(4, 4), mode="area"),
    "interpolate_twice": lambda y: F.interpolate(y, scale_factor=2.0, mode="bilinear"),
    "interpolate_linear": lambda y: F.interpolate(y.flatten(2), size=16, mode="linear"),
    "interpolate_trilinear": lambda y: F.interpolate(
        y[:, :, None], size=(2, 9, 9), mode="trilinear"
    ),
    "adaptive_avg_pool": lambda y: F.adaptive_avg_pool2d(y, (3, 3)),
    # A small grid: of a large one the gradients of the weights cancel.
    "grid_sample": lambda y: F.grid_sample(
        y, y[:, :2].permute(0, 2, 3, 1) / 8, align_corners=False
    ),
    "fold": lambda y: F.fold(F.unfold(y, 3, padding=1), y.shape[2:], 3, padding=1),
    "kthvalue": lambda y: y.kthvalue(2, -1)[0],
    "svdvals": torch.linalg.svdvals,
    "embedding_bag": lambda y: F.embedding_bag(
        torch.zeros(y.shape[0], y.shape[2], dtype=torch.long), y.reshape(-1, y.shape[3])
    ),
    "cdist": lambda y: torch.cdist(y.flatten(2), y.flatten(2)),
}
SHAPES = [(2, 3, 8, 8), (2, 3, 12, 12), (4, 3, 10, 6), (3, 3, 8, 16), (2, 3, 8, 8)]


def forward_of(after, branches: bool):
    def forward(module, x):
        if branches and x.detach().sum() > 1e9:
            return x
        y = after(module.conv(x))
        height, total = x.shape[2], y.mean() * (x.shape[2] * 2)
        total = total + torch.arange(height, dtype=x.dtype).sum() * y.sum() * 1e-3
        total = total + x.new_ones(height, x.shape[0]).sum() * y.std()
        return total + x.view(x.shape[0], x.shape[1] * height, x.shape[3]).mean()

    return forward


def pair_of(after, branches: bool = False) -> Pair:
    net = Net(forward_of(after, branches))
    net.conv = nn.Conv2d(3, 3, 1)
    return Pair(net)


@pytest.mark.parametrize("name", AFTER)
def test_sizes_after_an_operator_stay_sizes(name):
    torch.manual_seed(0)  # sums that cancel leave fewer digits of some draws
    pair = pair_of(AFTER[name])
    for shape in SHAPES:
        pair.step(torch.randn(shape))
    assert pair.report.captures == 1
    assert all("step of the plan" in reason for reason in pair.report.reasons()), pair.report


@pytest.mark.parametrize("name", ["interpolate_bilinear", "interpolate_nearest", "fold"])
def test_sizes_after_an_operator_in_parts(name):
    pair = pair_of(AFTER[name], branches=True)
    for shape in SHAPES:
        pair.step(torch.randn(shape))
    assert not any("eager" in str(found) for found in pair.report.fallbacks), pair.report


class Kernel(nn.Module):
    """Of sizes that differ, and that broadcast only where they are 1."""

    def forward(self, x, y):
        z = F.interpolate(x, size=y.shape[2:], mode="bilinear") + y
        return z.mean() * x.shape[2] - z.sum() * y.shape[3]


def test_sizes_of_several_inputs():
    pair = Pair(Kernel())
    for small, large in [(4, 8), (5, 9), (8, 8), (3, 12), (8, 4)]:
        pair.step(torch.randn(2, 3, small, small), torch.randn(2, 3, large, large), backward=False)


ATTENTION = {
    "self": (lambda q, k: (q, q, q), ((2, 5, 5), (3, 6, 6), (5, 4, 4))),
    "cross": (lambda q, k: (q, k, k), ((2, 5, 7), (3, 5, 7), (4, 6, 7), (5, 9, 4))),
    "equal_lengths_first": (lambda q, k: (q, k, k), ((2, 5, 5), (3, 5, 7), (4, 6, 6))),
    "one_query": (lambda q, k: (q, k, k), ((2, 1, 3), (2, 1, 4), (2, 1, 7))),
    "own_values": (lambda q, k: (q, k, k * 2), ((2, 5, 7), (3, 4, 9))),
}


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("name", ATTENTION)
def test_one_capture_of_attention_serves_other_lengths(name, mask):
    given, sizes = ATTENTION[name]

    def forward(module, q, k):
        seen = q.new_ones(q.shape[2], k.shape[2]).tril() if mask else None
        return F.scaled_dot_product_attention(*given(q, k), seen).flatten(1)

    pair = Pair(Net(forward))
    for batch, queries, keys in sizes:
        pair.step(torch.randn(batch, 2, queries, 8), torch.randn(batch, 2, keys, 8))
    assert pair.report.captures == 1 and not pair.report.fallbacks
