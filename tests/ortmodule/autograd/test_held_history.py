"""Tensors that forward reads from an attribute, a container or a global, and that were computed
before the call: their gradient goes on into what they were computed from."""

import pytest
import torch
from torch import nn

from ortmodule import ORTModule

SHARED = {}


class Holding(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.source = nn.Linear(4, 4), nn.Linear(4, 4)
        self.scale, self.added, self.taken = None, {}, []

    def forward(self, x):
        y = self.linear(x)
        if self.scale is not None:
            y = y * self.scale
        for tensor in self.added.values():
            y = y + tensor
        for tensor in self.taken:
            y = y - tensor.sin()
        if "scale" in SHARED:
            y = y * SHARED["scale"]
        return y, y.sum()


def computed(model, x):
    model.scale = model.source.weight * 2


def view(model, x):
    model.scale = model.source.weight[0]


def view_of_all(model, x):
    model.scale = model.source.weight.reshape(4, 4)


def results_of_one_op(model, x):
    first, second = (model.source.weight * 2).split(2)
    model.scale, model.taken = first.sum(0), [first.sum(), second.sum()]


def some_of_many(model, x):
    _, second, _, fourth = model.source.weight.unbind(0)
    model.scale, model.taken = second, [fourth]


def one_behind_another(model, x):
    model.scale = model.source.weight * 2
    model.taken = [model.scale.exp()]


def with_its_detached(model, x):
    model.scale = model.source.weight * 2
    model.taken = [model.scale.detach(), model.scale]


def of_what_forward_reads_too(model, x):
    model.scale, model.added = model.linear.weight * 2, {"a": model.linear.bias + 1}


def of_the_input(model, x):
    model.scale = x * 2


def with_a_hook(model, x):
    model.scale = model.source.weight * 2
    model.scale.register_hook(lambda gradient: gradient * 3)


def retaining(model, x):
    model.scale = model.source.weight * 2
    model.scale.retain_grad()


def global_one(model, x):
    SHARED["scale"] = (model.source.bias * 3).exp()


def leaf(model, x):
    model.scale = model.source.weight.detach().clone().requires_grad_()


KINDS = [
    computed, view, view_of_all, results_of_one_op, some_of_many, one_behind_another,
    with_its_detached, of_what_forward_reads_too, of_the_input, with_a_hook, retaining, global_one,
    leaf,
]  # fmt: skip


def gradients(wrap, hold, second_order):
    SHARED.clear()
    torch.manual_seed(0)
    model = wrap(Holding())
    found = []
    for _ in range(3):
        model.zero_grad()
        x = torch.randn(4, 4, requires_grad=True)
        hold(model, x)
        y, total = model(x)
        loss = y.square().sum() + total
        if second_order:
            (slope,) = torch.autograd.grad(loss, x, create_graph=True)
            loss = loss + slope.square().sum()
        loss.backward()
        kept = [p.grad for p in model.parameters()] + [x.grad]
        if model.scale is not None and (model.scale.is_leaf or model.scale.retains_grad):
            kept.append(model.scale.grad)
        found.append(kept)
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("second_order", [False, True])
@pytest.mark.parametrize("hold", KINDS)
def test_the_gradient_of_a_held_tensor_goes_on(hold, second_order):
    theirs, mine = (gradients(wrap, hold, second_order) for wrap in (lambda m: m, ORTModule))
    for expected, got in zip(theirs, mine, strict=True):
        assert [g is None for g in got] == [g is None for g in expected]
        pairs = zip(got, expected, strict=True)
        for one, other in pairs:
            if other is not None:
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
