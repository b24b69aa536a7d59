"""Operators whose fake results come from their operands' sizes, not by torch's decomposition."""

import pytest
import torch
import torch.nn.functional as F
from captured import Function
from pairs import Pair, options

from ortmodule import ORTModule

X, GRID = torch.randn(2, 3, 9, 11), torch.rand(2, 7, 5, 2) * 2 - 1


def sampled(x, grid):
    return F.grid_sample(x, grid, "bicubic", "reflection", False)


def decomposed(*_):
    raise AssertionError("it is decomposed")


def test_a_trace_does_not_decompose_it(monkeypatch):
    """Into some thousand operators, which would take a second."""
    operator = torch.ops.aten.grid_sampler_2d.default
    monkeypatch.setitem(torch._decomp.decomposition_table, operator, decomposed)
    pair = Pair(Function(sampled), fallback="error")
    pair.step(X, GRID)
    pair.step(X[:, :, 2:, 1:], GRID[:, 1:])
    assert pair.report.captures == 1


@pytest.mark.parametrize("order", [torch.channels_last, torch.contiguous_format])
def test_a_result_lies_as_eagers(order):
    x = X.contiguous(memory_format=order)
    ours = ORTModule(Function(sampled), options(fallback="error"))(x, GRID)
    assert ours.stride() == sampled(x, GRID).stride()


@pytest.mark.parametrize(
    "x, grid", [(X.double(), GRID), (X, GRID[:1]), (X, GRID[..., :1]), (X[0], GRID)]
)
def test_a_wrong_call_is_eagers_error(x, grid):
    with pytest.raises(Exception) as theirs:
        sampled(x, grid)
    with pytest.raises(type(theirs.value)) as ours:
        ORTModule(Function(sampled), options())(x, grid)
    assert str(ours.value).splitlines()[0] == str(theirs.value).splitlines()[0]
