"""What forward computes twice has two gradients, as in eager: their sum is taken behind both."""

import pytest
import torch
from captured import Function
from pairs import options
from torch.nn import functional as F

from ortmodule import ORTModule

X = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 0.5, 3.0, -2.0])
TWINS = {
    "sqrt_and_rsqrt": lambda x: x.sqrt() + x.rsqrt(),
    "powers": lambda x: x**-0.5 + x.rsqrt() + x.sqrt(),
    "where": lambda x: torch.where(x > 0, x.sqrt(), x.rsqrt()) + x.sqrt(),
    "reciprocals": lambda x: x.reciprocal().sqrt() + x.reciprocal(),
    "squares": lambda x: x.square().sqrt() + x.abs() + x.square(),
    "products": lambda x: x * x * x + x * x,
    "norms": lambda x: x[:, None].norm(dim=1) + x[:, None].square().sum(1).sqrt(),
    "softplus": lambda x: F.softplus(x) + x.exp().log1p() + x.exp(),
    "views": lambda x: x[:, None].exp().log() + x[:, None].exp(),
}


@pytest.mark.parametrize("name", TWINS)
def test_twins_have_gradients_of_their_own(name):
    module = Function(TWINS[name])
    ours, found = ORTModule(module, options(fallback="error")), []
    for each in (module, ours):
        x = X.clone().requires_grad_()
        y = each(x)
        y.sum().backward()
        found.append((y.detach(), x.grad))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5, equal_nan=True)
