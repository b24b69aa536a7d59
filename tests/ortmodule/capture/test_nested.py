"""Nested tensors, which have no sizes: a module may hold one, and what reads one runs eagerly."""

import gc

import pytest
import torch
from torch import nn

from ortmodule import ORTModule

X = torch.linspace(-1, 1, 15).reshape(5, 3)
pytestmark = pytest.mark.filterwarnings("ignore")


def nested(layout):
    torch.manual_seed(0)
    return torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)], layout=layout)


def padded(tensor):
    return torch.nested.to_padded_tensor(tensor, 0.0)


USES = {
    "its rank": lambda s, x: s.l(x) * s.held.dim(),
    "its values": lambda s, x: s.l(x) + padded(s.held * 2).sum(),
    "a refusal": lambda s, x: (s.l(x) if x.sum() > 0 else s.l(x) * 2) * s.held.dim(),
}


class Holds(nn.Module):
    def __init__(self, layout, use, buffer):
        super().__init__()
        self.l, self.use = nn.Linear(3, 2), use
        if buffer:
            self.register_buffer("held", nested(layout))
        else:
            self.held = nested(layout)

    def forward(self, x):
        return USES[self.use](self, x)


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("buffer", [False, True])
def test_a_module_that_holds_one(layout, use, buffer):
    module = Holds(layout, use, buffer)
    model = ORTModule(module)
    for _ in range(3):
        torch.testing.assert_close(model(X), module(X))
        module.l.extra = gc.collect()  # written to: a watch that is gone must not hear of it
    report = model.explain()
    assert report.captures + len(report.fallbacks) + len(report.warm_ups) > 0
    if use == "its rank" and not buffer:
        assert report.captures == 1 and report.fallbacks == []


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_one_among_the_arguments(layout):
    class Takes(nn.Module):
        def forward(self, x):
            return padded(x) * 2

    model, given = ORTModule(Takes()), nested(layout)
    torch.testing.assert_close(model(given), padded(given) * 2)
    assert "nested tensor" in str(model.explain().fallbacks)
