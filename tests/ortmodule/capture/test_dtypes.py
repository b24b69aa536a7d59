"""Dtypes that torch's kernels refuse although a trace takes them, and numbers that a dtype cuts."""

import pytest
import torch
from torch import nn

from ortmodule import ORTModule


class Function(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return self.body(x)


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: (x > 0) - 1,
        lambda x: x - (x > 0),
        lambda x: 1 - (x > 0),
        lambda x: x - True,
        lambda x: (x > 0).floor(),
        lambda x: (x > 0).argmax(),
        lambda x: x.long().frac(),
        lambda x: x.long().var(),
        lambda x: torch.lerp(x.long(), x.long(), 0.3),
        lambda x: torch.addcdiv(x, x.long(), x.long() + 9),
        lambda x: x.index_add(0, torch.tensor([0]), x[:1].long()),
        lambda x: (x > 0) ** (x > 0),
        lambda x: x.long().div_(2),
    ],
)
def test_dtypes_that_a_trace_accepts_raise_as_in_eager(forward):
    x = torch.linspace(-2, 2, 12).view(3, 4)
    with pytest.raises((RuntimeError, NotImplementedError)):
        forward(x)
    model = ORTModule(Function(forward))
    for _ in range(2):
        with pytest.raises((RuntimeError, NotImplementedError)):
            model(x)


NUMBERS = (2**31, 2**40, 2**40 + 3, -(2**35) - 7, 2**62, -1, 200, 300)
OF_NUMBERS = {
    "mul": lambda x, n: x * n,
    "add": lambda x, n: x + n,
    "rsub": lambda x, n: n - x,
    "eq": lambda x, n: x == n,
    "where": lambda x, n: torch.where(x > 0, x, n),
    "and": lambda x, n: x & n,
}


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
@pytest.mark.parametrize("name", OF_NUMBERS)
def test_a_number_that_an_integer_dtype_does_not_hold(name, dtype):
    """It is cut to the dtype's bits, where torch takes it at all."""
    x = torch.tensor([0, 1, 3, 100, 127]).to(dtype)
    for number in NUMBERS:
        function = lambda x, number=number: OF_NUMBERS[name](x, number)  # noqa: E731
        try:
            want = function(x)
        except RuntimeError:
            continue
        assert torch.equal(ORTModule(Function(function))(x), want), number
