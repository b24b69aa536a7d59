"""A number among the arguments that is another from call to call makes no capture a value."""

import pytest
import torch
from torch import nn

from ortmodule import Options, ORTModule


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x, scale):
        return self.linear(x) * scale


@pytest.mark.parametrize("make", [float, lambda i: i / 7, int])
def test_thirty_values_make_two_captures(make):
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
