"""Outputs that share memory, in a backward under create_graph: eager's gradients, and theirs."""

import warnings

import pytest
import torch
from pairs import Net, Pair

ROWS = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))

NETS = {
    "row": lambda net, x: (h := net.second(net.first(x).sin()), h[0]),
    "views": lambda net, x: (h := net.first(x).sin(), h[1:], h[1:].view(-1), h.T),
    "views first": lambda net, x: ((h := net.first(x).sin())[0], h.T, h),
    "views alone": lambda net, x: ((h := net.first(x).sin())[:2], h[1:]),
    "twice": lambda net, x: (h := net.first(x).sin(), h),
    "split": lambda net, x: net.first(x).sin().split(1),
    "views of written": lambda net, x: (h := net.first(x).sin().mul_(2), h[0], h[0] * 3),
    "view of all first": lambda net, x: ((h := net.first(x).sin()).view(-1), h, h.view(-1)[:3]),
    "view of a view": lambda net, x: ((v := net.first(x).sin().T)[1], v, v[1]),
    "views after a write": lambda net, x: (
        (h := net.first(x).sin().mul_(2)).T,
        h.narrow(0, 1, 2),
        h.T[1],
    ),
    "view of the written": lambda net, x: (
        v := (h := net.first(x).sin()).view(-1),
        h.mul_(2) is None or v.cos(),
        v[2:] * 3,
    ),
    "view before a write": lambda net, x: (
        v := (h := net.first(x).sin()).view(-1),
        h.mul_(2),
        v.exp(),
        h[0],
    ),
    "view and more": lambda net, x: (h := net.first(x).sin(), h[0], h.exp(), h[0].exp()),
}


def all_at_once(outputs, parameters):
    """Each by numbers of its own."""
    given = [output.detach().cos() for output in outputs]
    return torch.autograd.grad(outputs, parameters, given, create_graph=True, allow_unused=True)


def one_after_the_other(outputs, parameters):
    slopes = []
    for output in outputs:
        slopes += torch.autograd.grad(
            output.sum(), parameters, create_graph=True, allow_unused=True
        )
    return slopes


def found(module, slopes_of):
    outputs = module(ROWS)
    slopes = slopes_of(outputs, list(module.parameters()))
    sum(slope.square().sum() for slope in slopes if slope is not None).backward()
    return [*outputs, *slopes, *(p.grad for p in module.parameters())]


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_the_gradients_of_one(net, which):
    """Without create_graph: what reads a view of memory that was written since is made before the
    view's own node of autograd, and its gradient passes it all the same."""
    torch.manual_seed(0)
    pair = Pair(Net(net))
    results = []
    for module in (pair.eager, pair.ours):
        outputs = module(ROWS)
        output = outputs[which % len(outputs)]
        parameters = list(module.parameters())
        results.append(torch.autograd.grad(output.exp().sum(), parameters, allow_unused=True))
    assert pair.report.captures
    for want, got in zip(*results, strict=True):
        assert (want is None) == (got is None)
        if want is not None:
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("slopes_of", [all_at_once, one_after_the_other])
@pytest.mark.parametrize("net", NETS.values(), ids=NETS)
def test_gradients_of_gradients(net, slopes_of):
    torch.manual_seed(0)
    pair = Pair(Net(net))
    for _ in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that forward runs again
            results = [found(module, slopes_of) for module in (pair.eager, pair.ours)]
        for want, got in zip(*results, strict=True):
            assert (want is None) == (got is None)
            if want is not None:
                torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    assert pair.report.second_runs > 0


@pytest.mark.parametrize("view", [torch.view_as_real, torch.conj], ids=["real", "conj"])
def test_a_view_of_complex_numbers_before_a_write_is_refused(view):
    """Strides do not make it anew of what others read."""

    def forward(net, x):
        h = torch.complex(net.first(x), net.first(x).sin())
        v = view(h)
        return h.mul_(2), v.abs()

    ours = Pair(Net(forward)).ours
    total = sum(y.abs().sum() for y in ours(ROWS))
    told = r"it writes to a complex tensor after .*; call the module within `with model\.eager"
    with pytest.raises(RuntimeError, match=told):
        torch.autograd.grad(total, list(ours.parameters()), create_graph=True)
