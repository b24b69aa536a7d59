"""NaN, infinities and what no integer is, in values and gradients: as in eager, whether they come
when the graph runs or are constants of it. And numbers that rounding takes most of: a large mean,
very many elements."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ortmodule import ORTModule

NAN, INF = float("nan"), float("inf")
ODD = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -3.0, 300.0, -300.0, 1e10, -1e10, 1e30, -7.0]
ROWS = [[NAN] * 4, [INF, 1, 2, 3], [-INF] * 4, [1, NAN, 2, 3], [INF, -INF, 0, 1], [1.0] * 4]


class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def equal(ours, theirs, what, rtol=2e-5):
    torch.testing.assert_close(ours, theirs, rtol=rtol, atol=1e-6, equal_nan=True, msg=what)


def compare(function, *args, slopes=None):
    """Results and gradients of both; `slopes`: the gradient that comes back."""
    eager = Call(function)
    found = []
    for module in (eager, ORTModule(copy.deepcopy(eager))):
        given = [a.clone().requires_grad_(a.is_floating_point()) for a in args]
        out = module(*given)
        if out.requires_grad:
            out.backward(torch.ones_like(out) if slopes is None else slopes(out))
        found.append((out.detach(), [a.grad for a in given]))
    equal(found[1][0], found[0][0], "the result")
    for k, (theirs, mine) in enumerate(zip(found[0][1], found[1][1], strict=True)):
        assert (mine is None) == (theirs is None)
        if theirs is not None:
            equal(mine, theirs, lambda m, k=k: f"the gradient of argument {k}: {m}")


INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("to", INTEGERS, ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_casts_to_integers_run_and_folded(dtype, to):
    def folded(x):
        return torch.tensor(ODD, dtype=dtype).to(to), x + 1

    x = torch.tensor(ODD, dtype=dtype)
    expected = x.to(to)
    run = ORTModule(Call(lambda x: x.to(to)))
    assert torch.equal(run(x), expected)
    constant = ORTModule(Call(folded))
    assert torch.equal(constant(torch.ones(2))[0], expected)
    assert not run.explain().fallbacks and not constant.explain().fallbacks


ELEMENTWISE = {
    "sign": torch.sign,
    "sgn": torch.sgn,
    "abs": torch.abs,
    "softplus": lambda x: F.softplus(x, beta=3.0),
    "nan_to_num": torch.nan_to_num,
}


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_elementwise(name, dtype):
    compare(ELEMENTWISE[name], torch.tensor(ODD * 8, dtype=dtype))


REDUCED = {
    "nansum": lambda x: x.nansum(-1),
    "nanmean": lambda x: x.nanmean(-1),
    "nansum_of_all": torch.nansum,
    "var": lambda x: x.var(-1),
    "nan_to_num": lambda x: x.nan_to_num().sum(-1),
}


@pytest.mark.parametrize("slope", [1.0, NAN, INF])
@pytest.mark.parametrize("name", REDUCED)
def test_rows(name, slope):
    """A slope of zero is a product: of a gradient that is no number it is none."""
    compare(
        REDUCED[name],
        torch.tensor(ROWS),
        slopes=lambda out: torch.full_like(out, slope),
    )


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_ignored_rows_that_are_not_finite(reduction):
    target = torch.tensor([0, -100, -100, 1, -100, -100])
    compare(lambda x: F.cross_entropy(x, target, reduction=reduction), torch.tensor(ROWS))


def test_cross_entropy_of_a_constant_row_is_exact():
    """Folded: the logarithm of the sum is nothing beside a large maximum."""

    def forward(x):
        rows = torch.full((2, 13), 1e30)
        return F.cross_entropy(rows, torch.tensor([0, 5]), reduction="none") + x

    compare(forward, torch.zeros(2))


def test_weights_that_are_infinite_for_other_classes():
    weight = torch.tensor([1.0, 2.0, 1.0, INF])
    compare(lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2]), weight), torch.randn(3, 4))


@pytest.mark.parametrize("mean", [0.0, 1e4, 1e5])
@pytest.mark.parametrize("name", ["var", "std"])
def test_moments_of_a_large_mean(name, mean):
    x = torch.randn(33, 64) + mean
    ours = ORTModule(Call(lambda x: getattr(x, name)(-1)))(x)
    exact, eager = getattr(x.double(), name)(-1), getattr(x, name)(-1)
    error, theirs = (ours - exact).abs().max(), (eager - exact).abs().max()
    assert error <= 2 * theirs + 1e-6 * exact.max()


def test_a_product_of_very_many_elements():
    x = torch.rand(1_000_000)
    exact = x.double().square().sum()
    for function in (torch.dot, torch.inner, torch.matmul):
        error = ORTModule(Call(function))(x, x) - exact
        assert abs(error) <= 1e-6 * exact


BETAS = [0.1, 2.0, 1e-30, 0.0, -1.0, 5.0, 1e30, 7.5]


def test_a_beta_that_is_another_in_each_call():
    eager = Call(lambda x, beta: F.softplus(x, beta=beta))
    ours = ORTModule(copy.deepcopy(eager))
    for beta in BETAS:
        pair = [torch.linspace(-3, 3, 40).requires_grad_() for _ in range(2)]
        results = [module(x, beta) for module, x in zip((eager, ours), pair, strict=True)]
        equal(results[1], results[0], f"beta {beta}")
        for result in results:
            result.sum().backward()
        equal(pair[1].grad, pair[0].grad, f"the gradient, beta {beta}")


@pytest.mark.parametrize("k", [0.25, 1e30, -1e30, 1.0])
def test_products_that_cancel_leave_nothing(k):
    compare(lambda x: x * k + x * (1 - k), torch.randn(100))
    compare(lambda x, a: x * a + x * -a, torch.randn(100), torch.full((100,), k))


@pytest.mark.parametrize("bounds", [(NAN, None), (None, NAN), (NAN, 1.0), (0.0, NAN)], ids=str)
def test_a_bound_that_is_none(bounds):
    """Alone it bounds nothing, beside another all is NaN, whether it stands in the code or comes
    from the caller."""
    x = torch.tensor(ODD[1:])
    compare(lambda x: x.clamp(*bounds), x)
    eager = Call(lambda x, low, high: x.clamp(low, high) * 2)
    ours = ORTModule(copy.deepcopy(eager))
    for some in (
        bounds,
        tuple(b and 0.5 for b in bounds),
        tuple(b and 2.5 for b in bounds),
        bounds,
    ):
        found = []
        for module in (eager, ours):
            given = x.clone().requires_grad_()
            out = module(given, *some)
            out.sum().backward()
            found.append((out.detach(), given.grad))
        equal(found[1][0], found[0][0], f"{some}")
        equal(found[1][1], found[0][1], f"the gradient, {some}")
