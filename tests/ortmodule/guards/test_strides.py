"""Forwards that ask how a tensor lies in memory: sizes alone do not tell."""

import pytest
import torch
from torch import nn

from ortmodule import Options, ORTModule


class Asking(nn.Module):
    def __init__(self, ask):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.ask = ask

    def forward(self, x):
        return self.ask(x * self.weight, x)


def _column(size):
    return torch.randn(1, size).t()


def _slice(columns, kept):
    return torch.randn(6, columns)[:, :kept]


def _rows(size, stride):
    return torch.randn(64).as_strided((3, 2, size), (stride, stride, 1))


ONE_ROW = [_slice(10, 5)[:1], _slice(12, 5)[:1], _slice(12, 6)[:1], torch.randn(1, 5)]
CASES = {
    "axes of one element": (lambda y, x: y * x.stride(1), [
        torch.randn(4, 1), _column(4), torch.randn(5, 1), _column(5)]),
    "returned": (lambda y, x: (y, x.stride()), [
        _slice(10, 5), _slice(12, 5), _slice(12, 6), torch.randn(3, 4)]),
    "returned of one row": (lambda y, x: (y, x.stride()), ONE_ROW),
    "the order of axes": (lambda y, x: (y, x.dim_order()), [
        torch.randn(4, 1), _column(4), _slice(10, 5), torch.randn(5, 4).t()]),
    "of a view": (lambda y, x: y * x[:, 0].stride(0), [
        torch.randn(6, 4), torch.randn(3, 5), _slice(9, 4), _slice(10, 4), torch.randn(4, 3).t()]),
    "rows that overlap": (lambda y, x: y * x.stride(0), [_rows(5, 5), _rows(4, 5), _rows(4, 4)]),
    "another axis' size": (lambda y, x: y * x.stride(0), [
        torch.randn(3, 7), torch.randn(2, 8), torch.randn(5, 6).t(), torch.randn(4, 9).t()]),
    "whether without gaps": (lambda y, x: y + x.is_contiguous(), [
        _slice(10, 5)[:1], torch.randn(5, 1), _column(5), torch.randn(5, 2), _slice(8, 4)[:, ::2]]),
}  # fmt: skip


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_strides_are_the_calls(name, in_parts):
    ask, inputs = CASES[name]

    def ask_in_parts(y, x):
        if y.sum() > 1e9:
            y = y + 1
        return ask(y, x)

    module = Asking(ask_in_parts if in_parts else ask)
    ours = ORTModule(module, Options(fallback="report" if in_parts else "whole"))
    for x in inputs:
        torch.testing.assert_close(ours(x), module(x), rtol=0, atol=0)
    assert bool(ours.explain().breaks) == in_parts


def test_sizes_stay_free_where_they_give_the_strides():
    ours = ORTModule(Asking(lambda y, x: y * x.stride(0)), Options(fallback="whole"))
    for size in range(3, 9):
        x = torch.randn(2, size)
        assert torch.equal(ours(x), x * size)
    assert ours.explain().captures == 1
