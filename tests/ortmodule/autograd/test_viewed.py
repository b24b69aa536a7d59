"""Returned views from which other outputs are computed: memory, gradients and hooks are eager's."""

import pytest
import torch
from pairs import close, options
from torch import nn

from ortmodule import ORTModule

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def of_a_returned_tensor(net, x):
    h = torch.tanh(net.first(x))
    v = h[1:]
    return net.second(v), v, h


def halves(net, x):
    mean, deviation = net.first(x).chunk(2, 1)
    return mean * deviation.exp(), mean, deviation


def halves_in_a_row(net, x):
    a, b = torch.tanh(net.first(x)).split(3, 1)
    return (a * b).sum(1), b, a


def of_a_view(net, x):
    h = net.first(x)
    v = h.view(2, 2, 6)
    w = v[0]
    return w.square().sum(), v * 3, w, v, h


def overlapping(net, x):
    h = torch.tanh(net.first(x))
    a, b = h[:3], h[1:]
    return a * b, a, b


def of_a_parameter(net, x):
    w = net.first.weight.t()
    return x @ w, w


def of_an_input(net, x):
    v = x.view(6, 4).t()
    return net.first(x) * v.sum(), v


def turned(net, x):
    v = net.first(x).t()
    return v.exp(), v, v[1:]


def diagonal_by_einsum(net, x):
    h = torch.tanh(net.first(x))
    v = torch.einsum("ii->i", h.T @ h)
    return v.sin(), v, torch.einsum("ij->ji", h), h


def written_through_einsum(net, x):
    h = torch.tanh(net.first(x))
    w = h.T @ h
    v = torch.einsum("...ii->...i", w)
    v.mul_(2)
    return w.sin(), v, w


CASES = [
    of_a_returned_tensor, halves, halves_in_a_row, of_a_view, overlapping, of_a_parameter,
    of_an_input, turned, diagonal_by_einsum, written_through_einsum,
]  # fmt: skip


def pair(function):
    nets = Net(function), Net(function)
    return nets[0], ORTModule(nets[1], options(fallback="whole"))


def leaf():
    return X.clone().requires_grad_()


def weighted(outputs):
    return sum((k + 1) * (o * o.detach().cos()).sum() for k, o in enumerate(outputs))


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_gradients(function):
    """Of all outputs, and of each by itself; those of the returned tensors that it passes too."""
    for net in (nets := pair(function)):
        net.zero_grad()
    count = len(nets[0](leaf()))
    for wanted in (range(count), *([k] for k in range(count))):
        found = []
        for net in nets:
            x = leaf()
            outputs = net(x)
            loss = weighted([outputs[k] for k in wanted])
            tensors = [x, *net.parameters(), *outputs]
            found.append([outputs, torch.autograd.grad(loss, tensors, allow_unused=True)])
        close(found[1], found[0], f"of {list(wanted)}")


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_hooks(function):
    """On each returned tensor, changing its gradient."""
    count = len(pair(function)[0](leaf()))
    for hooked in range(count):
        found = []
        for net in pair(function):
            x, seen = leaf(), []
            outputs = net(x)
            outputs[hooked].register_hook(lambda g, seen=seen: seen.append(g.clone()) or g * 2)
            for output in outputs:
                output.retain_grad()
            weighted(outputs).backward()
            grads = [p.grad for p in (x, *net.parameters(), *outputs)]
            found.append([seen, grads])
        close(found[1], found[0], f"a hook on {hooked}")


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_memory(function):
    """What shares memory in eager does, and what is a view is one of the same base."""
    eager, ours = (net(leaf()) for net in pair(function))
    shares = [
        [a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for a in of for b in of]
        for of in (eager, ours)
    ]
    assert shares[0] == shares[1]
    for theirs, mine in zip(eager, ours, strict=True):
        assert mine._is_view() == theirs._is_view() and mine.stride() == theirs.stride()
    with torch.no_grad():
        for outputs in (eager, ours):
            outputs[-1].mul_(2)
        close([o.data for o in ours], [o.data for o in eager], "after a write in place")


def of_what_saves_nothing(net, x):
    h = net.first(x)
    v = h[1:]
    return v * 2, v, h


def of_a_hidden_tensor(net, x):
    v = net.first(x)[1:]
    return v * 2, v


@pytest.mark.parametrize("history", [True, False])
@pytest.mark.parametrize("written", [0, 1, -1])
@pytest.mark.parametrize("function", [of_what_saves_nothing, of_a_hidden_tensor])
def test_a_write_in_place(function, written, history):
    """To the view or to its base, before the backward: torch gives the view another node."""
    found = []
    for net in pair(function):
        x = leaf()
        outputs = list(net(x))
        with torch.set_grad_enabled(history):
            outputs[written].mul_(3)
        grads = torch.autograd.grad(weighted(outputs), [x, *net.first.parameters()])
        found.append([[o.detach() for o in outputs], grads])
    close(found[1], found[0], "the outputs and gradients")


def test_a_write_in_place_to_one_of_several():
    for net in pair(halves):
        _, mean, _ = net(leaf())
        with pytest.raises(RuntimeError, match="a function that returns multiple views"):
            mean.mul_(2)


def by_a_stride_of_the_input(net, x):
    h = net.first(x)
    return h, h.as_strided((2, 2), (x.stride(0), 1)) * 2, h.as_strided((2, 2), (x.stride(0), 1))


@pytest.mark.filterwarnings("ignore:ORTModule runs this module")
def test_a_size_that_no_tensor_tells():
    """A view by it is none that could be made anew when the call returns."""
    eager, ours = Net(by_a_stride_of_the_input), ORTModule(Net(by_a_stride_of_the_input), options())
    for width in (9, 7, 6):
        x = torch.randn(4, width)[:, :6]
        close(ours(x), eager(x), "the outputs")


def test_what_was_saved_may_not_be_written_to():
    for net in pair(of_a_returned_tensor):
        result, view, _ = net(leaf())
        with torch.no_grad():
            view.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


def test_a_second_size_and_no_gradients():
    eager, ours = pair(halves)
    for rows in (4, 3, 7):
        x = torch.randn(rows, 6)
        close(ours(x), eager(x), "with gradients")
        with torch.no_grad():
            close(ours(x), eager(x), "without")
    assert ours.explain().captures == 2


# --- a view that is made where gradients are off is a leaf, which requires grad as its base does --

CUT = {
    "rows": lambda v: v[:2],
    "no_rows": lambda v: v[:0],
    "flat": lambda v: v.view(-1),
    "transposed": lambda v: v.t(),
    "itself": lambda v: v[...],
    "detached": lambda v: v.detach(),
    "expanded": lambda v: v.expand(2, 4, 6),
    "of_a_list": lambda v: v.unbind(0)[1],
    "diagonal": lambda v: v.diagonal(),
    "two": lambda v: v.t()[1:].t(),
    "copied": lambda v: v.clone(),
}
BASES = {
    "result": lambda net, x: net.first(x),
    "view": lambda net, x: net.first(x).view(4, 6),
    "parameter": lambda net, x: net.first.weight[:4],
    "input": lambda net, x: x,
    "detached": lambda net, x: net.first(x).detach(),
}


def facts(tensor):
    is_view = tensor._base is not None
    return tensor.requires_grad, tensor.is_leaf, tensor.grad_fn is None, is_view, tensor.shape


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
@pytest.mark.parametrize("cut", CUT.values(), ids=CUT)
def test_a_view_made_without_gradients_is_a_leaf(cut, base):
    def function(net, x):
        h = base(net, x)
        with torch.no_grad():
            v = cut(h)
        return (net.second(x * 1) - net.first.weight.sum()).sum(), v

    net = Net(function)
    model = ORTModule(net)
    for _ in range(2):
        seen = []
        for call in (net, model):
            net.zero_grad()
            x = X.clone().requires_grad_()
            loss, v = call(x)
            (loss + v.sum() * 3).backward()
            grads = [p.grad for p in (*net.parameters(), x) if p.grad is not None]
            seen.append((facts(v), [v.detach(), *([v.grad] if v.is_leaf else []), *grads]))
        assert seen[0][0][:3] == seen[1][0][:3] and seen[0][0][4] == seen[1][0][4]
        close(seen[1][1], seen[0][1], "view and gradients")
    assert model.explain().captures and not model.explain().fallbacks


@pytest.mark.parametrize("returned", [False, True])
def test_what_is_made_of_such_a_leaf_requires_grad(returned):
    """Its gradient goes nowhere: not to the view either, which torch gives no place for one."""

    def function(net, x):
        h = net.first(x)
        with torch.no_grad():
            v = h[1:]
        return (v * 2, v) if returned else (v * 2,)

    for model in (Net(function), ORTModule(Net(function), options())):
        y, *v = model(X)
        assert y.requires_grad and all(leaf.requires_grad and leaf.is_leaf for leaf in v)
        y.sum().backward()
        assert all(tensor.grad is None for tensor in (*model.parameters(), *v))
    assert model.explain().captures and not model.explain().fallbacks
