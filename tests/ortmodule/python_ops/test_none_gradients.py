"""A Function's backward may give None for what asks for a gradient, in some calls or in all."""

import functools

import pytest
import torch
from pairs import Net, Pair
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ortmodule.python_ops.always_none import always_none

FLAGS = {"none": False}


class BySize(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.rows = x.shape[0]
        return x * 2 + w

    @staticmethod
    def backward(ctx, g):
        return g * 2, (None if ctx.rows == 3 else g.sum(0))


class ByFlag(BySize):
    @staticmethod
    def backward(ctx, g):
        if FLAGS["none"]:
            return g * 2, None
        return g * 2, g.sum(0)


def chosen(g):
    return None if FLAGS["none"] else g.sum(0)


class ByHelper(BySize):
    @staticmethod
    def backward(ctx, g):
        return g * 2, chosen(g)


class Never(BySize):
    @staticmethod
    def backward(ctx, g):
        return g * 2, None


class Nowhere(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return None


def from_two(backward):
    @functools.wraps(backward)
    def wrapper(ctx, g):
        first, _ = backward(ctx, g)
        return first, chosen(g)

    return wrapper


class ByDecorator(BySize):
    @staticmethod
    @from_two
    def backward(ctx, g):
        return g * 2, None


KINDS = {"by_flag": ByFlag, "by_helper": ByHelper, "never": Never}
KINDS["by_decorator"] = ByDecorator
AROUND = {"whole": lambda h: h, "in_parts": lambda h: h * 2 if h.sum() > 1e9 else h}


def net_of(forward):
    net = Net(forward)
    net.added = nn.Parameter(torch.rand(4))
    return net


def steps(pair, flags, loss=lambda y: y.square().sum()):
    for flag in flags:
        FLAGS["none"] = flag
        x = torch.rand(5, 3)
        for module in (pair.eager, pair.ours):
            module.zero_grad()
            loss(module(x)).backward()
        pair.compare()
    assert pair.report.captures
    return pair.eager


@pytest.mark.parametrize("sizes", [(5, 3, 6), (3, 3, 5)])
def test_for_some_sizes(sizes):
    pair = Pair(net_of(lambda net, x: net.second(BySize.apply(net.first(x), net.added))))
    for rows in sizes:
        pair.step(torch.randn(rows, 3))
        assert (pair.eager.added.grad is None) == (rows == 3)
    assert pair.report.captures


@pytest.mark.parametrize("flags", [(False, True, False), (True, False, True)])
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:ORTModule runs")
def test_in_some_calls(kind, around, flags):
    def forward(net, x):
        h = AROUND[around](net.first(x))
        return net.second(KINDS[kind].apply(h, net.added.exp().floor() + net.added.sin()))

    steps(Pair(net_of(forward)), flags)


def test_behind_two_functions():
    """Where the first gives none nothing is left of the second's either."""

    def forward(net, x):
        w = ByFlag.apply(net.first(x), net.added).tanh()
        return net.second(ByFlag.apply(x.new_ones(5, 4), w.sum(0)))

    steps(Pair(net_of(forward)), (False, True, False))


def test_beside_another_way():
    """What comes another way is there."""
    pair = Pair(net_of(lambda net, x: ByFlag.apply(net.first(x), net.added.exp()) * net.added))
    assert steps(pair, (False, True, False, True)).added.grad.any()


def test_a_way_that_is_not_gone():
    """One output's gradient comes by the Function, the other's does not."""

    def forward(net, x):
        return ByFlag.apply(net.first(x), net.added.exp()), net.added * 3

    for k in (0, 1):
        steps(Pair(net_of(forward)), (True, False, True), lambda y, k=k: y[k].sum())


def test_nothing_of_an_infinite_slope_is_left():
    """Zeros through it would be NaN."""
    pair = Pair(net_of(lambda net, x: ByFlag.apply(net.first(x), net.added.sqrt())))
    for module in (pair.eager, pair.ours):
        nn.init.zeros_(module.added)
    steps(pair, (False, True, False))


def test_zeros_that_meet_an_infinite_slope_are_told():
    pair = Pair(net_of(lambda net, x: ByFlag.apply(net.first(x), net.added.sqrt()) + net.added))
    steps(pair, (False, True))
    nn.init.zeros_(pair.ours.added)
    with pytest.raises(RuntimeError, match="gave None as a gradient that another call of it gives"):
        pair.ours(torch.rand(5, 3)).sum().backward()


def test_a_literal_none_meets_nothing():
    pair = Pair(net_of(lambda net, x: Never.apply(net.first(x), net.added.sqrt()) + net.added))
    for module in (pair.eager, pair.ours):
        nn.init.zeros_(module.added)
    assert steps(pair, (False,)).added.grad.isfinite().all()


def test_each_backward_of_one_call():
    pair = Pair(net_of(lambda net, x: net.second(ByFlag.apply(net.first(x), net.added.sin()))))
    x = torch.rand(5, 3)
    ys = [module(x).sum() for module in (pair.eager, pair.ours)]
    for flag, keep in ((False, True), (True, True), (False, False)):
        FLAGS["none"] = flag
        for module, y in zip((pair.eager, pair.ours), ys, strict=True):
            module.zero_grad()
            y.backward(retain_graph=keep)
        pair.compare()


def test_a_gradient_of_a_gradient():
    pair = Pair(net_of(lambda net, x: net.second(ByFlag.apply(net.first(x), net.added.sin()))))
    for flag in (True, False):
        FLAGS["none"] = flag
        x = torch.rand(5, 3)
        found = []
        for module in (pair.eager, pair.ours):
            y = module(x).square().sum()
            asked = list(module.parameters())
            found.append(torch.autograd.grad(y, asked, create_graph=True, allow_unused=True))
        for a, b in zip(*found, strict=True):
            assert (a is None) == (b is None)
            assert a is None or torch.allclose(a, b, 1e-4, 1e-4)


def test_a_result_requires_grad_all_the_same():
    pair = Pair(net_of(lambda net, x: Nowhere.apply(net.first(x))))
    assert pair.ours(torch.rand(5, 3)).requires_grad
    assert steps(pair, (False, False)).first.weight.grad is None


def test_what_a_code_tells():
    def some(ctx, g):
        (a,) = ctx.saved_tensors
        return (g * a).sum(dim=0), None, g.contiguous()[:, None] * -2, None

    def kept(ctx, g):
        w = None
        return g, w

    def with_loop(ctx, g):
        for _ in range(2):
            g = g * 2
        return g, None

    def given_up(ctx, g):
        for _ in ctx.skipped:
            return None
        return g

    assert not always_none(given_up) and not always_none(from_two(some))
    assert always_none(once_differentiable(some)) == {1, 3}
    assert always_none(some) == {1, 3}
    assert always_none(lambda ctx, g: None) == {0}
    assert always_none(lambda ctx, g: (None, None)) == {0, 1}
    assert always_none(lambda ctx, g: ((None, 1), None)[g]) == set()
    assert always_none(lambda ctx, g: (g, max(None, None))) == set()
    assert not always_none(kept) and not always_none(with_loop) and not always_none(len)
    assert not always_none(ByFlag.backward)
