"""Positions that count from the end of an axis whose size is another in each call."""

import pytest
import torch
import torch.nn.functional as F
from captured import Function
from pairs import options

from ortmodule import ORTModule

ROWS = torch.tensor([[0, 1], [1, 2]])


def written(x):
    x = x * 1
    x.narrow(0, -2, 2).mul_(3)
    return x


CASES = {
    "narrow": lambda x: x.narrow(0, -2, 2) * 2,
    "one row": lambda x: x.narrow(0, -2, 1) * 2,
    "a write": written,
    "known sizes": lambda x: x.narrow(1, -2, 2) * 2,
    "the padding of an embedding": lambda x: F.embedding(ROWS, x, padding_idx=-1),
}


@pytest.mark.parametrize("name", CASES)
def test_from_the_end(name):
    module = Function(CASES[name])
    ours = ORTModule(module, options(fallback="error"))
    for size in (4, 3, 6):
        found = []
        for function in (ours, module):
            x = torch.arange(5.0 * size).view(size, 5).requires_grad_()
            y = function(x)
            y.square().sum().backward()
            found.append((y.detach(), x.grad))
        torch.testing.assert_close(*found)
