"""Forwards that write to what a backward reads, where another forward comes before that backward:
eager's gradient, which reads what is there when it runs, or eager's error."""

import copy

import pytest
import torch
from pairs import Pair, close
from torch import nn
from torch.nn import functional as F

from ortmodule import ORTModule

pytestmark = pytest.mark.filterwarnings("ignore:ORTModule")


class Writer(nn.Module):
    def __init__(self, write, after=False):
        super().__init__()
        self.first, self.second, self.teacher = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(3, 4)
        self.teacher.requires_grad_(False)
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("mean", torch.ones(4))
        self.write, self.after = write, after

    def forward(self, x):
        if not self.after:
            self.write(self)
        h = self.first(x).tanh() * self.scale * self.mean - self.teacher(x)
        y = self.second(h)
        if self.after:
            self.write(self)
        return y


def data_of_a_parameter(m):
    m.scale.data.mul_(0.5)


def data_of_a_weight(m):
    m.second.weight.data.copy_(F.normalize(m.second.weight.data, dim=1))


def data_of_a_part(m):
    m.scale.data[1:3].mul_(0.5)


def data_of_a_buffer(m):
    m.mean.data.mul_(0.9)


def a_parameter(m):
    with torch.no_grad():
        m.scale.clamp_(0.2, 0.7).mul_(1.1)


def both_ways(m):
    m.scale.data.mul_(0.5)
    with torch.no_grad():
        m.scale.add_(m.scale.data)


def a_bias(m):
    with torch.no_grad():
        m.first.bias.add_(0.5)


def a_buffer(m):
    m.mean.mul_(0.9)


def a_teacher(m):
    with torch.no_grad():
        for p, q in zip(m.first.parameters(), m.teacher.parameters(), strict=True):
            q.mul_(0.9).add_(p, alpha=0.1)


def a_teachers_data(m):
    for p, q in zip(m.first.parameters(), m.teacher.parameters(), strict=True):
        q.data.mul_(0.9).add_(p.data, alpha=0.1)


def two_forwards(m, x):
    a, b = m(x), m(x * 2)
    return [a.square().sum() + b.sin().sum()]


def without_gradients(m, x):
    a = m(x)
    with torch.no_grad():
        m(x * 2)
    return [a.square().sum()]


def the_later_first(m, x):
    a, b = m(x), m(x * 2)
    return [b.exp().sum(), a.square().sum()]


def kept_for_another(m, x):
    a = m(x)
    torch.autograd.grad(a.square().sum(), x, retain_graph=True)
    m(x)
    return [a.exp().sum()]


def of_a_gradient(m, x):
    a, b = m(x), m(x * 2)
    (slope,) = torch.autograd.grad(a.square().sum() + b.sin().sum(), x, create_graph=True)
    return [slope.square().sum() + a.sum()]


def of_a_gradient_at_once(m, x):
    a = m(x)
    (slope,) = torch.autograd.grad(a.square().sum(), x, create_graph=True)
    return [slope.square().sum() + a.sum()]


WRITES = (
    data_of_a_parameter, data_of_a_weight, data_of_a_part, data_of_a_buffer, a_parameter, both_ways,
    a_bias, a_buffer, a_teacher, a_teachers_data,
)  # fmt: skip
USES = (
    two_forwards, without_gradients, the_later_first, kept_for_another, of_a_gradient,
    of_a_gradient_at_once,
)  # fmt: skip


def found_by(use, module, x):
    """The gradients, or eager's error."""
    x = x.clone().requires_grad_()
    try:
        for loss in use(module, x):
            loss.backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
        return None
    return [x.grad, *(p.grad for p in module.parameters()), *module.buffers()]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_as_eager(write, after):
    x, module = torch.linspace(-1, 1, 15).view(5, 3), Writer(write, after)
    pair = Pair(module)
    for use in USES:
        for _ in range(2):
            found = []
            for each in (pair.ours, pair.eager):
                each.zero_grad()
                found.append(copy.deepcopy(found_by(use, each, x)))
            ours, eager = found
            assert (ours is None) == (eager is None), use.__name__
            for a, b in zip(ours or (), eager or (), strict=True):
                assert (a is None) == (b is None)
                if a is not None:
                    close(a, b, use.__name__)


@pytest.mark.parametrize("write", [data_of_a_weight, a_parameter, a_teacher])
def test_in_the_engine(write):
    pair = Pair(Writer(write))
    for _ in range(3):
        pair.step(torch.linspace(-1, 1, 15).view(5, 3))
    pair.through_engine(captures=1)


class Two(nn.Module):
    """The backward of the second result reads nothing of what is written."""

    def __init__(self):
        super().__init__()
        self.scale, self.bias = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))

    def forward(self, x, z):
        with torch.no_grad():
            self.scale.mul_(2)
        return x * self.scale, z + self.bias


def test_a_backward_that_reads_nothing_of_it():
    found = []
    for wrap in (lambda m: m, ORTModule):
        model = wrap(Two())
        for alone in (False, True, False):
            x, z = torch.ones(3, requires_grad=True), torch.ones(3)
            a, b = model(x, z)
            if alone:
                z.add_(1)  # so that forward cannot run again
                b.sum().backward()
            else:
                (a.sum() + b.sum()).backward()
            found.append((x.grad, model.scale.grad.clone(), model.bias.grad.clone()))
    for theirs, mine in zip(found[:3], found[3:], strict=True):
        for a, b in zip(theirs, mine, strict=True):
            assert (a is None) == (b is None) and (a is None or torch.equal(a, b))


class Tied(nn.Module):
    """One parameter of two names."""

    def __init__(self):
        super().__init__()
        self.first = self.second = nn.Parameter(torch.ones(3))

    def forward(self, x):
        with torch.no_grad():
            self.first.mul_(2)
        return x * self.first


@pytest.mark.parametrize("wrap", [lambda m: m, ORTModule], ids=["eager", "ours"])
def test_a_parameter_of_two_names(wrap):
    model, x = wrap(Tied()), torch.ones(3, requires_grad=True)
    y = model(x)
    model(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
