"""A trace in whose symbols sympy drowns is given up soon."""

import pytest
import torch
from torch import nn

from ortmodule.capture import budget
from tests.ortmodule.pairs import Pair


def test_too_slow_a_pace(monkeypatch):
    """After a while, and by how many calls were made."""
    budget.pace()(0)
    monkeypatch.setattr(budget, "_PATIENCE", 0.0)
    look = budget.pace()
    look(1_000_000)
    with pytest.raises(budget.TooSlow):
        look(0)


class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x).mean(1)


def _too_slow(times: int, monkeypatch) -> None:
    """The first traces with symbols are."""
    left = [times]

    def slow():
        left[0] -= 1
        this = left[0] >= 0

        def look(_made):
            if this:
                raise budget.TooSlow

        return look

    monkeypatch.setattr("ortmodule.capture.trace.pace", slow)


def test_first_axes_stay_symbols(monkeypatch):
    """One capture serves each batch, where symbols for all sizes take too long."""
    _too_slow(1, monkeypatch)
    torch.manual_seed(0)
    pair = Pair(Slow())
    for batch in (3, 5, 2):
        pair.step(torch.randn(batch, 6, 4))
    pair.through_engine(captures=1)
    pair.step(torch.randn(3, 7, 4))
    pair.through_engine(captures=2)


def test_exact_sizes_where_the_first_axes_take_too_long(monkeypatch):
    _too_slow(4, monkeypatch)
    torch.manual_seed(0)
    pair = Pair(Slow())
    pair.step(torch.randn(3, 6, 4))
    pair.step(torch.randn(3, 6, 4))
    pair.through_engine(captures=1)
    pair.step(torch.randn(5, 6, 4))
    pair.through_engine(captures=2)


def test_work_that_calls_nothing_ends_too(monkeypatch):
    """By an error from outside, after a while."""
    monkeypatch.setattr(budget, "_GRACE", 0.05)
    with pytest.raises(budget.OutOfTime):
        budget.Budget(0.05).run(_endless, last=True)


def test_work_that_looks_ends_by_itself():
    given = budget.Budget(0.05)
    with pytest.raises(budget.OutOfTime):
        given.run(lambda: _endless(given.look), last=True)


def _endless(look=lambda: None):
    while True:
        look()
