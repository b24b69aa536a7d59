"""Numbers that a module in parts reads out of tensors: what it computes with them, with either
sign."""

import math
import operator

import pytest
import torch
from torch import nn

from ..pairs import Pair

COMPUTED = {
    "abs": abs,
    "minus abs": lambda v: -abs(v),
    "least of abs": lambda v: min(abs(v), 2.0),
    "root of abs": lambda v: math.sqrt(abs(v)),
    "abs of an integer": lambda v: abs(int(v * 3)),
    "__abs__": lambda v: v.__abs__(),
    "operator.abs": operator.abs,
    "__neg__": lambda v: v.__neg__(),
    "__round__": lambda v: v.__round__(1),
    "__floor__": lambda v: v.__floor__(),
    "ratio": lambda v: v.as_integer_ratio()[0] > 0,
    "conjugate": lambda v: v.conjugate(),
    "of several types": lambda v: 2 if isinstance(min(v, 1), int) else 3,
    "largest": lambda v: 2 if isinstance(max(0, v), int) else 3,
}


class Reads(nn.Module):
    def __init__(self, computed):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.computed, self.kept = computed, 1.0

    def forward(self, x):
        y = self.first(x)
        self.kept = self.computed(y.sum().item())
        return self.second(y * self.kept)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", COMPUTED)
def test_a_number_of_either_sign(name):
    torch.manual_seed(0)
    pair = Pair(Reads(COMPUTED[name]))
    for value in (1.0, -1.0, 1.0, -0.2, 0.1, -0.1, 0.3):
        pair.step(torch.full((2, 4), value))
        assert type(pair.twin.kept) is type(pair.eager.kept)
        assert pair.twin.kept == pytest.approx(pair.eager.kept, rel=1e-4)


class Rounds(nn.Module):
    def __init__(self, digits):
        super().__init__()
        self.first, self.digits = nn.Linear(4, 4), digits

    def forward(self, x, number):
        y = self.first(x)
        if y.sum() > 1e9:
            y = y * 2
        return y * round(number, *self.digits)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("digits", [(), (0,), (-1,), (-2,)])
def test_a_whole_number_is_rounded(digits):
    torch.manual_seed(0)
    pair = Pair(Rounds(digits))
    for number in (3, 12, 27, 5, 15, -7, 160):
        pair.step(torch.ones(2, 4), number)
