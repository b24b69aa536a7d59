"""Comparisons with a draw from [0, 1): one that no value can change is no branch on data."""

import operator

import pytest
import torch
from pairs import Net, Pair
from torch import nn


class Dropped(nn.Module):
    """As transformers' layerdrop: a draw for each layer, which is passed over below `rate`."""

    def __init__(self, rate):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))
        self.rate = rate

    def forward(self, x):
        for layer in self.layers:
            if torch.rand([]) < self.rate:
                continue
            x = layer(x).tanh()
        return x + torch.rand_like(x)


def batch(size=5):
    return torch.randn(size, 3, generator=torch.Generator().manual_seed(size))


@pytest.mark.parametrize("rate", [0.0, -1.0, 1.0, 2, 0])
def test_a_layer_that_is_never_or_always_dropped(rate):
    pair = Pair(Dropped(rate))
    for size in (5, 5, 4):  # a step compares what is drawn afterwards
        pair.step(batch(size))
    assert pair.report.captures == 1 and not pair.report.not_whole


def test_a_layer_that_may_be_dropped_is_a_branch_on_data():
    pair = Pair(Dropped(0.0))
    pair.step(batch())
    pair.each(lambda m: setattr(m, "rate", 0.5))
    for _ in range(3):
        pair.step(batch())
    pair.fell_back("data-dependent")


@pytest.mark.parametrize("compare", ["lt", "le", "gt", "ge"])
@pytest.mark.parametrize("bound", [-0.5, 0.0, 0.3, 1.0, 1.5])
@pytest.mark.parametrize("draw", [torch.rand, torch.rand_like])
def test_answers_are_eagers(compare, bound, draw):
    function = getattr(operator, compare)

    def forward(net, x):
        drawn = draw(x) if draw is torch.rand_like else draw(5, 3)
        return net.second(net.first(x) * function(drawn, bound)[:, :1])

    pair = Pair(Net(forward))
    for _ in range(2):
        pair.step(batch())


def test_other_draws_are_no_constants():
    def forward(net, x):
        scale = 2.0 if torch.randn([]) < 0.0 else 1.0
        return net.second(net.first(x)) * scale

    pair = Pair(Net(forward))
    for _ in range(3):
        pair.step(batch())
    pair.fell_back("data-dependent")
