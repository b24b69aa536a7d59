"""scatter_reduce and index_reduce against eager: values and gradients, where numbers tie."""

import itertools

import pytest
import torch
from captured import Function
from pairs import options, same_outcomes
from torch import nn

from ortmodule import ORTModule

REDUCED = ("sum", "prod", "mean", "amax", "amin")
CASES = [
    *itertools.product(["scatter_reduce"], REDUCED, [True, False]),
    *itertools.product(["index_reduce"], REDUCED[1:], [True, False]),
]
INDEX = {
    "scatter_reduce": torch.tensor([[0, 3, 1, 1, 2], [0, 0, 1, 3, 2], [2, 0, 1, 3, 3]]),
    "index_reduce": torch.tensor([0, 2, 2]),
}


class Reduced(nn.Module):
    def __init__(self, op, reduce, include_self):
        super().__init__()
        self.op, self.kept = op, (reduce, include_self)

    def forward(self, x, src):
        reduce, include_self = self.kept
        return getattr(x, self.op)(0, INDEX[self.op], src, reduce, include_self=include_self)


X = torch.tensor([[0, 1, -2, 2, 1], [2, 0, 1, -1, 1], [1, 1, 0, 2, -1], [0, 0, 1, 2, 2]])
SRC = torch.tensor([[0, 1, 1, -1, 2], [0, 2, 1, 0, 2], [1, 2, 0, 2, 2]])


def result(module, dtype, x=X, src=SRC):
    x, src = (each.to(dtype, copy=True) for each in (x, src))
    if not dtype.is_floating_point:
        return [module(x, src)]
    y = module(x.requires_grad_(), src.requires_grad_())
    dy = torch.linspace(1, 2, y.numel()).view(y.shape).to(dtype)
    return [y, *torch.autograd.grad(y, [x, src], dy)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("op, reduce, include_self", CASES)
def test_as_eager(op, reduce, include_self, dtype):
    module = Reduced(op, reduce, include_self)
    ours = ORTModule(module, options(fallback="error"))
    torch.testing.assert_close(result(ours, dtype), result(module, dtype), equal_nan=True)
    of_torch = [step for step in ours.explain().steps if step.provider == "aten"]
    assert bool(of_torch) == (reduce == "mean" and dtype is torch.int64)


@pytest.mark.parametrize("least", [float("inf"), -float("inf")])
@pytest.mark.parametrize("op, reduce, include_self", CASES[6:10] + CASES[14:])
def test_infinities_share_a_gradient_among_themselves(op, reduce, include_self, least):
    """Also where all that is written is the number which another one is always larger than."""
    module = Reduced(op, reduce, include_self)
    x, src = X.double().masked_fill(X == 1, least), SRC.double().masked_fill(SRC == 2, least)
    ours = result(ORTModule(module, options(fallback="error")), torch.float64, x, src)
    torch.testing.assert_close(ours, result(module, torch.float64, x, src), equal_nan=True)


LARGER = {
    "scatter": lambda x, i, src: x.scatter(1, i, src),
    "scatter_": lambda x, i, src: x.clone().scatter_(1, i, src),
    "scatter_add": lambda x, i, src: x.scatter_add(1, i, src),
    "reduce": lambda x, i, src: x.scatter(1, i, src.detach(), reduce="add"),
    **{n: lambda x, i, src, n=n: x.scatter_reduce(0, i, src, n) for n in REDUCED},
    **{f"{n} of a constant": lambda x, i, src, n=n: x.scatter_reduce(0, i, src.detach(), n)
       for n in REDUCED},
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:ORTModule runs this module in eager")
@pytest.mark.parametrize("name", LARGER)
def test_a_source_that_is_larger_in_some_calls(name):
    """Torch's backward raises where it has a gradient of the index's size for it."""

    def step(function, larger):
        draw = torch.Generator().manual_seed(larger)
        x, src = (torch.randn(n, 4, generator=draw).requires_grad_() for n in (6, 3 + larger))
        index = torch.randint(0, 4, (3, 4), generator=draw)
        function(x, index, src).square().sum().backward()
        return [x.grad, src.grad]

    same_outcomes(Function(LARGER[name]), step, (0, 0, 1, 2, 0))
