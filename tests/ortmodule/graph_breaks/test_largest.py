"""Python's own min() and max() of tensors, in parts: one of the arguments, as it is."""

import pytest
import torch
from pairs import Pair, close
from torch import nn


class Net(nn.Module):
    def __init__(self, choose):
        super().__init__()
        self.first, self.choose = nn.Linear(3, 1), choose

    def forward(self, x):
        y = self.first(x).sum()
        return self.choose(y * 2 if y > 1e9 else y)


CHOICES = {
    "equals": lambda y: max(y * 1, y.detach()),
    "equals the other way": lambda y: min(y.detach(), y * 1),
    "a number": lambda y: y * max(y, 50.0),
    "a number of the same size": lambda y: max(y - y, 0.0) * 2 + y,
    "another type": lambda y: max(y, (y + 1).double()),
    "of a list": lambda y: min([y, y * 1, y.detach()]),
    "of three": lambda y: max(y.detach(), y * 1, y),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("choose", CHOICES.values(), ids=CHOICES)
def test_one_of_the_arguments(choose):
    pair = Pair(Net(choose))
    for rows in (5, 4):
        found = []
        for module in (pair.eager, pair.ours):
            module.zero_grad()
            x = torch.linspace(-1, 1, rows * 3).reshape(rows, 3).requires_grad_()
            y = module(x)
            if y.requires_grad:
                y.backward()
            found.append((y.detach(), x.grad))
        (theirs, gradient), (ours, own) = found
        close(ours, theirs, "the output")
        assert (own is None) == (gradient is None)
        if own is not None:
            close(own, gradient, "the input's gradient")
        pair.compare()
