"""A tile program holds no sizes: one made for a batch serves every other, with eager's results."""

import pytest
import torch
from zoo import bert, loss_of

from ortmodule import Options, ORTModule
from ortmodule._native import core

SIZES = [(batch, 12) for batch in range(2, 17)] + [(3, length) for length in range(5, 20)]


def test_a_training_graph_bound_to_thirty_sizes_makes_no_program_anew():
    module, first = bert(dropout=0.0, batch=20, length=33)
    model = ORTModule(module.train(), Options(fallback="error"))
    loss_of(model(**first)).backward()
    made, captures = core().tile_programs(), model.explain().captures
    for batch, length in SIZES:
        _, inputs = bert(dropout=0.0, batch=batch, length=length)
        gradients = []
        for forward in (model, module):
            module.zero_grad()
            loss_of(forward(**inputs)).backward()
            gradients.append([p.grad.clone() for p in module.parameters()])
        for ours, eager in zip(*gradients, strict=True):
            torch.testing.assert_close(ours, eager, atol=2e-5, rtol=2e-4)
    assert model.explain().captures == captures
    assert core().tile_programs() == made > 0


class ScaledSum(torch.nn.Module):
    """Rows times one number of them all, summed."""

    def forward(self, x):
        return (x * (x > 0).to(x.dtype).mean()).sum(-1)


class CenteredSoftmax(torch.nn.Module):
    """A gradient that subtracts a row's sum of products."""

    def forward(self, x):
        return torch.softmax(torch.sin(x), -1).sum(-1)


@pytest.mark.parametrize("module", [ScaledSum(), CenteredSoftmax()])
@pytest.mark.parametrize("first", [(1, 1, 6), (7, 5, 6)])
def test_one_row_is_as_many(module, first):
    model = ORTModule(module, Options(fallback="error"))
    for sizes in (first, (1, 1, 6), (2, 1, 6), (1, 4, 6), (1, 1, 1), (1, 1, 130)):
        x = torch.randn(sizes, requires_grad=True)
        (ours,) = torch.autograd.grad(model(x).sin().sum(), x)
        (eager,) = torch.autograd.grad(module(x).sin().sum(), x)
        torch.testing.assert_close(model(x), module(x))
        torch.testing.assert_close(ours, eager)
