"""Tensors that forward makes of arrays of numpy, whose memory both share: results are eager's."""

import copy

import numpy as np
import pytest
import torch
from pairs import close
from torch import nn

from ortmodule import ORTModule


class Net(nn.Module):
    def __init__(self, function, make):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.array = np.ones((4, 3), np.float32)
        self.function, self.make = function, make

    def forward(self, x):
        return self.function(self, self.linear(x))


def from_numpy(array):
    return torch.from_numpy(array)


def as_tensor(array):
    return torch.as_tensor(array)


def asarray(array):
    return torch.asarray(array)


def by_name(array):
    return torch.as_tensor(dtype=None, data=array)


MAKERS = [from_numpy, as_tensor, asarray, by_name]


def reads(net, y):
    return y * net.make(net.array)


def reads_one_of_its_own(net, y):
    return y[net.make(np.array([2, 0]))] + net.make(net.array.mean(0)).exp()


def writes_to_the_tensor(net, y):
    t = net.make(net.array)
    t.add_(1)
    return y * t


def writes_by_a_function(net, y):
    return y * nn.functional.relu(net.make(net.array).view(-1), inplace=True).view(4, 3)


def writes_through_data(net, y):
    t = net.make(net.array)
    t.data.mul_(2)
    return y * t


def writes_and_reads_the_array(net, y):
    array = np.zeros(3, np.float32)
    net.make(array)[0] = 5
    return y * float(array[0])


def writes_to_the_array(net, y):
    array = np.zeros((4, 3), np.float32)
    t = net.make(array)
    before = y * t
    array += 2
    return before + y * t


def returns_it(net, y):
    return y, net.make(net.array)[0]


def steps(net):
    """Results, gradients and the array after each of three steps, the array changed between."""
    found = []
    for step in range(3):
        net.zero_grad()
        outputs = net(torch.linspace(-1, 1, 12).view(4, 3))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        outputs[0].square().sum().backward()
        grads = [p.grad.clone() for p in net.parameters()]
        found.append([*(o.detach().clone() for o in outputs), *grads])
        for output in outputs[1:]:
            output.add_(1)
        found.append([torch.tensor(net.array)])
        if step == 1:
            net.array += 2
    return found


def pair(function, make):
    torch.manual_seed(0)
    eager = Net(function, make)
    return eager, ORTModule(copy.deepcopy(eager))


@pytest.mark.parametrize("make", MAKERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("function", [reads, reads_one_of_its_own], ids=lambda f: f.__name__)
def test_what_is_read_runs_whole(function, make):
    eager, ours = pair(function, make)
    close(steps(ours), steps(eager), "three steps")
    assert ours.explain().captures and not ours.explain().fallbacks


TENSOR = "forward writes to a tensor that shares a numpy array"
REFUSALS = {
    writes_to_the_tensor: TENSOR,
    writes_by_a_function: TENSOR,
    writes_through_data: TENSOR,
    writes_and_reads_the_array: TENSOR,
    writes_to_the_array: "forward writes to a numpy array that a tensor shares",
    returns_it: "forward returns a tensor that shares a numpy array",
}


@pytest.mark.parametrize("make", MAKERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("function", REFUSALS, ids=lambda f: f.__name__)
def test_what_is_written_or_returned_runs_in_eager(function, make):
    eager, ours = pair(function, make)
    close(steps(ours), steps(eager), "three steps")
    assert [f.reason for f in ours.explain().fallbacks] == [REFUSALS[function]]
