"""Two sizes that depend on data and meet: against eager, in float64, also where one of them is 1."""

import itertools

import pytest
import torch
from pairs import options
from torch import nn

from ortmodule import ORTModule


class Two(nn.Module):
    """A module whose forward is `function(x, y)`."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(x, y)


def rows(x):
    """A mask of x's rows."""
    return x[:, 0] > 0


def given(n, count, columns):
    """n rows of which the first `count` begin with a positive number."""
    x = -torch.rand(n, columns, dtype=torch.float64) - 0.1
    x[:count, 0] *= -1
    return x


def step(module, x, y):
    """The result and both gradients; None where the call raises."""
    x, y = (v.clone().requires_grad_() for v in (x, y))
    try:
        z = module(x, y)
    except (RuntimeError, IndexError):
        return None
    (z * torch.arange(1.0, z.numel() + 1, dtype=z.dtype).reshape(z.shape)).sum().backward()
    return z.detach(), x.grad, y.grad


def assigned(x, where, value):
    x = x.clone()
    x[where] = value
    return x


def put(x, y, accumulate):
    where = (torch.where(rows(x))[0],)
    return x.index_put(where, y[rows(y)], accumulate=accumulate)


ASSIGNED = {
    "elements": lambda x, y: assigned(x, x > 0, y[y > 0]),
    "rows": lambda x, y: assigned(x, rows(x), y[rows(y)]),
    "columns": lambda x, y: assigned(x, (rows(x), slice(0, 2)), y[rows(y), :2]),
    "rows_of_one": lambda x, y: assigned(x, rows(x), y[rows(y)][:, :1]),
    "across": lambda x, y: assigned(x, rows(x), y[rows(y), 0]),
    "places_known": lambda x, y: assigned(x, torch.tensor([0, 2, 1]), y[rows(y)]),
    "index_put": lambda x, y: put(x, y, False),
    "index_put_added": lambda x, y: put(x, y, True),
}


@pytest.mark.parametrize("name", ASSIGNED)
def test_a_selected_value_is_broadcast_where_it_is_one(name):
    """Its gradient is the sum; where it is neither one nor as many as the places, eager raises."""
    torch.manual_seed(0)
    module = Two(ASSIGNED[name])
    ours, agreed = ORTModule(module, options()), 0
    for here, there in itertools.product((0, 1, 2, 3, 5), (0, 1, 3, 4)):
        x, y = given(5, here, 3), given(6, there, 3)
        got, want = step(ours, x, y), step(module, x, y)
        assert (got is None) == (want is None), (here, there)
        for a, b in zip(got or (), want or (), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
        agreed += want is not None
    assert agreed >= 5 and ours.explain().captures == 1
    assert not ours.explain().fallbacks
