"""Arrays of numpy in a module that runs in parts: what forward does to them is done once."""

import copy

import numpy as np
import pytest
import torch
from pairs import close
from torch import nn

from ortmodule import ORTModule


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear, self.function = nn.Linear(3, 3), function
        self.array = np.ones((4, 3), np.float32)

    def forward(self, x):
        return self.function(self, self.linear(x))


def cut(y):
    return y * 3 if y.sum() > 0 else y


def augmented(net, y):
    net.array += 1
    return cut(y) * float(net.array[0, 0])


def an_element(net, y):
    net.array[0] *= 2
    return cut(y) + torch.tensor(net.array)


def under_another_name(net, y):
    array = net.array
    array *= 2
    y = cut(y)
    array -= 1
    return y * float(array[0, 0])


def by_a_method(net, y):
    y = cut(y)
    net.array.fill(net.array[0, 0] * 2)
    return y * net.array[0, 0].item()


def by_a_function(net, y):
    y = cut(y)
    np.add(net.array, 1, out=net.array)
    return y * net.array[0, 0].item()


def read(net, y):
    return cut(y) * net.array.shape[1] * len(net.array) * net.array.item(2)


CASES = [augmented, an_element, under_another_name, by_a_method, by_a_function, read]


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_arrays_are_as_in_eager(function):
    torch.manual_seed(0)
    eager = Net(function)
    twin = copy.deepcopy(eager)
    ours = ORTModule(twin)
    for step in range(4):
        found = []
        for net, held in ((eager, eager), (ours, twin)):
            net.zero_grad()
            y = net(torch.linspace(-1, 2, 12).view(4, 3))
            y.square().sum().backward()
            found.append([y, torch.tensor(held.array), *(p.grad for p in held.parameters())])
            if step == 2:
                held.array += 1
        close(found[1], found[0], f"step {step}")
    assert "in parts: " in str(ours.explain())
