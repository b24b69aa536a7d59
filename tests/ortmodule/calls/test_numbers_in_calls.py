"""A number among the arguments that is another from call to call makes no capture a value."""

import math

import pytest
import torch
from pairs import Pair, close
from torch import nn
from torch.nn import functional as F

from ortmodule import Options, ORTModule


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.function = function

    def forward(self, *args):
        return self.function(self.linear, *args)


def steps(function, values, captures=None, sizes=(4,)):
    """One step a value in eager and under ORTModule; `captures`: so many, all whole."""
    pair = Pair(Net(function))
    for step, value in enumerate(values):
        given = torch.randn(sizes[step % len(sizes)], 8)
        results = []
        for net in (pair.eager, pair.ours):
            net.zero_grad()
            result = net(given, value)
            result = result if isinstance(result, tuple) else (result,)
            if result[0].requires_grad:
                result[0].float().sum().backward()
            results.append(result)
        close(results[1], results[0], f"the output for {value}")
        assert [type(r) for r in results[1]] == [type(r) for r in results[0]]
        pair.compare()
    if captures is not None:
        pair.through_engine(captures)
    return pair


INTEGERS = {
    "slice": lambda linear, x, k: linear(x)[:, :k],
    "positions": lambda linear, x, k: linear(x) + torch.arange(k, k + 8),
    "product": lambda linear, x, k: linear(x) * k,
    "returned": lambda linear, x, k: (linear(x), k + 1),
    "quotient": lambda linear, x, k: linear(x) * (1 / k),
    "made_a_tensor": lambda linear, x, k: linear(x) * torch.tensor(k),
    "of_integers": lambda linear, x, k: (x > 0).long() * k + linear(x).sum().long() * 0,
    "of_bytes": lambda linear, x, k: (x > 0).to(torch.int8) * k,
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_symbols(name):
    steps(INTEGERS[name], range(2, 8), captures=2)


def test_integers_and_sizes_are_symbols_together():
    function = lambda linear, x, k: linear(x)[:, :k] * x.shape[0]  # noqa: E731
    steps(function, [2, 3, 4, 5, 6, 7], captures=2, sizes=(3, 4, 5))


def test_integers_of_either_sign_zero_and_one():
    values = [3, 1 << 33, -3, 0, 1, -1, 7, 10**9, -7, 1 << 45]
    steps(lambda linear, x, k: linear(x) * (k % 10), values)


FLOATS = {
    "product": lambda linear, x, k: linear(x) * k,
    "product_without_dimensions": lambda linear, x, k: linear(x).sum() * k,
    "of_integers": lambda linear, x, k: linear(x) + torch.arange(8) * k,
    "of_halves": lambda linear, x, k: linear(x).bfloat16() * k + k,
    "of_doubles": lambda linear, x, k: linear(x).double() * k,
    "alpha": lambda linear, x, k: torch.add(linear(x), x, alpha=k),
    "chosen": lambda linear, x, k: torch.where(x > k, linear(x), k),
    "filled": lambda linear, x, k: linear(x).masked_fill(x > k, -k) + torch.full((8,), k),
    "made_a_tensor": lambda linear, x, k: linear(x) * torch.tensor(k),
    "clamped": lambda linear, x, k: linear(x).clamp(max=k),
}


@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_inputs(name):
    steps(FLOATS[name], [0.1, 0.2, 1 / 3, 1 / 7, 0.5, 2.25], captures=2)


def test_a_float_is_a_double_until_it_meets_a_tensor():
    values = [0.1, 0.2, 0.3, 0.7, 1e3]
    steps(lambda linear, x, k: linear(x) * ((k + 1e16) - 1e16) / k, values)
    steps(lambda linear, x, k: linear(x) * (1 - k), values, captures=2)


def test_floats_that_are_no_numbers():
    values = [1.0, 2.0, math.inf, -0.0, math.nan, 1e300, 1e-300]
    steps(lambda linear, x, k: x * k, values, captures=3)  # NaN by its value


BY_VALUE = {
    "range": lambda linear, x, k: sum(linear(x) * j for j in range(int(k) + 1)),
    "branch": lambda linear, x, k: linear(x) * k if k > 3 else linear(x),
    "kind": lambda linear, x, k: linear(x) * k if isinstance(k, (int, float)) else linear(x),
    "key": lambda linear, x, k: linear(x) * {2: 1.0, 3: 5.0}.get(k, 7.0),
    "slope": lambda linear, x, k: F.leaky_relu(linear(x), k),
    "probability": lambda linear, x, k: linear(x) * F.dropout(torch.ones(1), 0.0 * k),
}


@pytest.mark.parametrize("name", BY_VALUE)
@pytest.mark.parametrize("make", [int, float])
def test_what_no_symbol_can_be(name, make):
    pair = steps(BY_VALUE[name], [make(v) for v in (2, 3, 4, 5, 6, 2, 3)])
    assert pair.report.captures <= 4


def test_numbers_in_containers():
    pair = Pair(Net(lambda linear, x, d: linear(x) * d["step"] + d["rate"]))
    for step in range(2, 9):
        pair.step(torch.randn(4, 8), {"step": step, "rate": step / 3})
    pair.through_engine(2)


def test_a_number_that_forward_counts_in_its_arguments():
    def function(linear, x, d):
        d["n"] += 1
        return linear(x) * d["n"]

    ours = ORTModule(Net(function))
    counted, x = {"n": 2}, torch.randn(4, 8)
    for n in range(3, 9):
        close(ours(x, counted), ours.module.linear(x) * n, "the output")
        assert counted["n"] == n and type(counted["n"]) is int
    assert ours.explain().captures == 2


def test_what_is_read_out_of_a_tensor_is_a_float():
    pair = Pair(Net(lambda linear, x: linear(x) * x.max().item() + linear(x).sum().item()))
    for _ in range(3):
        pair.step(torch.randn(4, 8))
    pair.through_engine(1)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x, scale):
        return torch.nn.functional.leaky_relu(self.linear(x), scale)


@pytest.mark.parametrize("make", [float, lambda i: i / 7])
def test_thirty_values_of_a_constant_make_two_captures(make):
    model, x = ORTModule(Scaled()), torch.randn(4, 3)
    for i in range(30):
        torch.testing.assert_close(model(x, make(i)), model.module(x, make(i)))
    report = model.explain()
    assert report.captures == 2
    assert "a number among the arguments" in str(report)


def test_a_value_that_comes_again_is_captured():
    model, x = ORTModule(Scaled()), torch.randn(4, 3)
    for i in range(30):
        model(x, float(i % 3))
    assert model.explain().captures == 3


def test_whoever_wants_an_error_gets_the_captures():
    model, x = ORTModule(Scaled(), Options(fallback="error")), torch.randn(4, 3)
    for i in range(4):
        model(x, float(i))
    assert model.explain().captures == 4
