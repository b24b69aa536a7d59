"""Positions outside of a tensor: torch's own error, or torch's own reading of a negative one."""

import copy

import pytest
import torch
import torch.nn.functional as F
from pairs import close, options
from torch import nn

from ortmodule import ORTModule

X = torch.randn(5, 4)
ROWS, GRID = torch.tensor([3, 0]), torch.tensor([[3, 0, 2, 1], [1, 1, 0, 3]])

# name: what takes positions, good ones, and whether it reads a negative one from the end
TAKERS = {
    "index_select": (lambda x, i: x.index_select(0, i), ROWS, False),
    "gather": (lambda x, i: x.gather(0, i), GRID, False),
    "take_along_dim": (lambda x, i: x.take_along_dim(i), GRID, False),
    "scatter": (lambda x, i: x.scatter(0, i, x[:2] * 2), GRID, False),
    "scatter_add": (lambda x, i: x.scatter_add(0, i, x[:2]), GRID, False),
    "index_add": (lambda x, i: x.index_add(0, i, x[:2]), ROWS, False),
    "index_copy": (lambda x, i: x.index_copy(0, i, x[:2] * 3), ROWS, False),
    "index_fill": (lambda x, i: x.index_fill(0, i, 2.0) * x, ROWS, True),
    "index": (lambda x, i: x[i], ROWS, True),
    "index_put": (lambda x, i: x.index_put((i,), x[:2] * 2), ROWS, True),
    "one_hot": (lambda x, i: F.one_hot(i, 5).float() @ x, ROWS, False),
    "nll_loss": (lambda x, i: F.nll_loss(x[:2], i, ignore_index=-3), ROWS, False),
    "cross_entropy": (lambda x, i: F.cross_entropy(x[:2], i, ignore_index=-3), ROWS, False),
}


class Taker(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear, self.function = nn.Linear(4, 4), function

    def forward(self, x, positions):
        return self.function(self.linear(x), positions)


def step(module, positions):
    module.zero_grad()
    y = module(X, positions)
    y.square().sum().backward()
    return [y, *(p.grad.clone() for p in module.parameters())]


@pytest.mark.parametrize("name", TAKERS)
def test_positions(name):
    function, good, negative_is_fine = TAKERS[name]
    eager = Taker(function)
    ours = ORTModule(copy.deepcopy(eager), options(fallback="error"))
    bad = {"past": good.clone(), "negative": good.clone()}
    bad["past"].view(-1)[0], bad["negative"].view(-1)[0] = 77, -1
    for _ in range(2):
        for mine, theirs in zip(step(ours, good), step(eager, good), strict=True):
            close(mine, theirs, name)
    report = ORTModule(copy.deepcopy(eager), options())
    for what, positions in bad.items():
        if what == "negative" and negative_is_fine:
            for mine, theirs in zip(step(report, positions), step(eager, positions), strict=True):
                close(mine, theirs, name)
            continue
        with pytest.raises(Exception) as theirs:
            eager(X, positions)
        with pytest.raises(theirs.type) as mine:
            report(X, positions)
        assert str(mine.value) == str(theirs.value)
    assert not report.explain().fallbacks and not ours.explain().fallbacks


@pytest.mark.parametrize("position", [-1, -7, 77])
def test_take_along_dim_is_torchs(position):
    """Some torch wraps the position round, another refuses it: ours does what this one does."""
    positions = GRID.clone()
    positions[0, 0] = position
    module = Taker(lambda x, i: x.take_along_dim(i, 0))
    ours = ORTModule(copy.deepcopy(module), options())
    step(ours, GRID)
    try:
        expected = step(module, positions)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            step(ours, positions)
        return
    with pytest.warns(UserWarning, match="out of range"):
        found = step(ours, positions)
    for mine, theirs in zip(found, expected, strict=True):
        close(mine, theirs, "take_along_dim")
