"""Dtypes that torch's kernels refuse although a trace takes them."""

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
