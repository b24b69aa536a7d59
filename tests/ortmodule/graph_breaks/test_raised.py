"""Layers that raise what forward catches, and a backward within forward."""

import copy

import pytest
import torch
from pairs import Pair
from torch import nn


def block() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Sigmoid())


class Picky(nn.Module):
    """As a layer that takes no lengths."""

    def __init__(self):
        super().__init__()
        self.within, self.called = block(), []

    def forward(self, x, *lengths):
        x = self.within(x)
        if lengths:
            raise TypeError("lengths")
        return x


class Tries(nn.Module):
    """Calls a layer with lengths first; `cut`: a branch on data comes before it."""

    def __init__(self, cut):
        super().__init__()
        self.cut, self.first, self.layer, self.last = cut, block(), Picky(), block()

    def forward(self, x):
        x = self.first(x)
        if self.cut and x.sum() > 1e9:
            x = x * 2
        try:
            x = self.layer(x, 1)
        except TypeError:
            x = self.layer(x)
        return self.last(x)


def marked(layer, _inputs, output):
    layer.called.append(output is None)


def test_a_layer_that_raises_is_captured():
    pair = Pair(Tries(cut=False))
    for _ in range(2):
        pair.step(torch.rand(5, 3))
    pair.through_engine(captures=1)
    assert not pair.report.not_whole


@pytest.mark.filterwarnings("ignore:ORTModule")
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("of_all", [False, True])
def test_hooks_that_are_always_called(cut, of_all):
    pair = Pair(Tries(cut))

    def only(layer, *rest):
        if isinstance(layer, Picky):
            marked(layer, *rest)

    home = nn.modules.module.register_module_forward_hook
    handles = [home(only, always_call=True)] if of_all else []
    pair.each(lambda m: of_all or m.layer.register_forward_hook(marked, always_call=True))
    try:
        for _ in range(3):
            x = torch.rand(5, 3)
            found = []
            for module in (pair.eager, pair.ours):
                module.layer.called.clear()
                module(x).sum().backward()
                found.append(list(module.layer.called))
            assert found[0] == found[1] == [True, False]
        pair.compare()
    finally:
        for handle in handles:
            handle.remove()


class Force(nn.Module):
    """The slope of an energy is part of the result, as in models of molecules."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.energy = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())

    def forward(self, x):
        x = self.first(x).tanh()
        if x.sum() > 1e9:
            x = x * 2
        energy = self.energy(x).sum(1)
        (slope,) = torch.autograd.grad(energy.sum(), x, create_graph=True)
        return energy + slope.square().sum(1)


@pytest.mark.filterwarnings("ignore:ORTModule")
def test_a_second_run_within_forward_is_nothing_for_dynamo():
    module = Force()
    pair = Pair(copy.deepcopy(module))
    for size in (5, 5, 5):
        pair.step(torch.rand(size, 3))
    assert len(pair.report.parts) >= 2
    files = {found.file for found in pair.report.breaks}
    assert files == {__file__}, files
