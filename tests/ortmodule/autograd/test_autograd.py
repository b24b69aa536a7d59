"""The autograd graph of a call is as good as eager's: retained, partial, out of order, threads."""

import copy
import threading

import pytest
import torch
from pairs import Pair, close, mlp, options
from torch import nn

from ortmodule import ORTModule

X = torch.randn(5, 3)


class Heads(nn.Module):
    """Two outputs with parameters of their own over a shared layer."""

    def __init__(self, loss_first=False):
        super().__init__()
        self.body, self.left, self.right = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 3)
        self.loss_first = loss_first

    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        left = self.left(hidden)
        return (left.square().sum() if self.loss_first else left), self.right(hidden)


def both(pair):
    return pair.eager, pair.ours


def test_retain_graph_twice_gives_twice_the_gradient():
    pair = Pair(mlp(), segment_bytes=0)
    for module in both(pair):
        loss = module(X).square().sum()
        loss.backward(retain_graph=True)
        once = [p.grad.clone() for p in module.parameters()]
        loss.backward(retain_graph=True)
        loss.backward()
        for parameter, grad in zip(module.parameters(), once, strict=True):
            close(parameter.grad, 3 * grad, "the gradient")
    pair.compare()
    pair.through_engine()


@pytest.mark.parametrize("segment_bytes", [0, 4 << 20])
def test_second_backward_raises_eagers_message(segment_bytes):
    pair = Pair(mlp(), segment_bytes=segment_bytes)
    messages = []
    for module in both(pair):
        y = module(X)
        y.sum().backward()
        with pytest.raises(RuntimeError) as error:
            y.sum().backward()
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    pair.compare()


def test_second_backward_after_a_partial_one_raises():
    """Asked for one layer's weight only, the last segments never run; the stash is used all the
    same."""
    pair = Pair(mlp(), segment_bytes=0)
    grads = []
    for module in both(pair):
        y = module(X)
        grads += torch.autograd.grad(y.square().sum(), list(module.parameters())[2:3])
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(y.square().sum(), list(module.parameters()))
    close(grads[1], grads[0], "the gradient")


def test_partial_backward_then_a_whole_one():
    pair = Pair(mlp(), segment_bytes=0)
    for module in both(pair):
        y = module(X).square().sum()
        torch.autograd.grad(y, list(module.parameters())[2:3], retain_graph=True)
        y.backward()
    pair.compare()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_several_forwards_before_backwards(order):
    pair = Pair(mlp(), segment_bytes=0)
    for module in both(pair):
        losses = [module(X * k).square().sum() for k in (1.0, 2.0, -0.5)]
        for i in order:
            losses[i].backward()
    pair.compare()
    pair.through_engine(captures=1)


def test_one_backward_through_two_calls():
    pair = Pair(nn.Linear(3, 3))
    for module in both(pair):
        module(torch.tanh(module(X))).square().sum().backward()
    pair.compare()
    pair.through_engine()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_without_gradients(mode):
    pair = Pair(mlp())
    pair.step(X)
    with mode():
        theirs, ours = pair.eager(X), pair.ours(X)
    close(ours, theirs, "the output")
    assert not ours.requires_grad and ours.is_inference() == theirs.is_inference()
    pair.step(X)
    pair.through_engine(captures=2)


def test_grad_for_inputs():
    pair = Pair(mlp())
    grads = []
    for module in both(pair):
        x = X.clone().requires_grad_()
        grads += torch.autograd.grad(module(x).square().sum(), x)
        assert all(p.grad is None for p in module.parameters())
    close(grads[1], grads[0], "the input's gradient")
    pair.through_engine()


@pytest.mark.parametrize("loss_first", [False, True])
@pytest.mark.parametrize("segment_bytes", [0, 4 << 20])
def test_only_one_of_two_outputs_used(loss_first, segment_bytes):
    """Parameters of the unused head get no gradient at all, as in eager, whatever came before."""
    pair = Pair(Heads(loss_first), segment_bytes=segment_bytes)
    for used in ((0,), (1,), (0, 1), (1,), (0,)):
        for module in both(pair):
            module.zero_grad()
            outputs = module(X)
            sum(outputs[i].square().sum() for i in used).backward()
        pair.compare()
    pair.through_engine(captures=1)


@pytest.mark.parametrize("segment_bytes", [0, 4 << 20])
def test_one_output_then_the_other_of_one_call(segment_bytes):
    pair = Pair(Heads(), segment_bytes=segment_bytes)
    for _ in range(2):
        for module in both(pair):
            left, right = module(X)
            left.square().sum().backward(retain_graph=True)
            right.square().sum().backward(retain_graph=True)
            (left.sum() + right.sum()).backward()
        pair.compare()
    pair.through_engine(captures=1)


def test_other_outputs_after_a_write():
    """Where the forward must run again for a backward, it does so with what it had read. Only once
    a backward has come as expected are no copies made for another one: then it is an error."""
    pair = Pair(Heads(loss_first=True))
    for module in both(pair):
        _, right = module(X)
        with torch.no_grad():
            module.right.bias.add_(1)
            module.body.bias.add_(1)
        right.square().sum().backward()
    pair.compare()
    assert pair.report.reruns == 1
    ours = ORTModule(Heads(loss_first=True), options())
    ours(X)[0].backward()
    _, right = ours(X)
    with torch.no_grad():
        ours.body.bias.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        right.square().sum().backward()


@pytest.mark.parametrize(
    "loss",
    [
        lambda y: y.sum(),
        lambda y: y.t().contiguous().square().sum(),
        lambda y: y.mean(0).expand(3, -1).sum(),
        lambda y: y[:, ::2].square().sum(),
    ],
    ids=["expanded", "transposed", "mean_expanded", "sliced"],
)
def test_non_contiguous_output_gradients(loss):
    pair = Pair(mlp())
    for module in both(pair):
        loss(module(X)).backward()
    pair.compare()
    pair.through_engine()


def test_non_contiguous_inputs_and_parameters():
    net = mlp()
    net[0].weight = nn.Parameter(torch.randn(3, 4).t())
    pair = Pair(net)
    for x in (torch.randn(3, 5).t(), torch.randn(5, 6)[:, ::2], X[:1].expand(5, 3), X):
        grads = []
        for module in both(pair):
            leaf = x.detach().requires_grad_()
            y = module(leaf)
            grads += torch.autograd.grad(y.square().sum(), leaf, retain_graph=True)
            y.square().sum().backward(inputs=list(module.parameters()))
        close(grads[1], grads[0], "the input's gradient")
        pair.compare()
    pair.through_engine()


def test_input_that_requires_grad_and_one_that_does_not():
    pair = Pair(mlp())
    for needs in (True, False, True):
        grads = []
        for module in both(pair):
            module.zero_grad()
            x = X.clone().requires_grad_(needs)
            module(x).square().sum().backward()
            grads.append(x.grad)
        pair.compare()
        assert (grads[0] is None) == (grads[1] is None)
        if needs:
            close(grads[1], grads[0], "the input's gradient")
    pair.through_engine(captures=2)


def test_only_the_input_requires_grad():
    net = mlp().requires_grad_(False)
    pair = Pair(net)
    grads = []
    for module in both(pair):
        x = X.clone().requires_grad_()
        module(x).square().sum().backward()
        grads.append(x.grad)
    close(grads[1], grads[0], "the input's gradient")


def test_buffer_that_the_call_updates_after_reading_it():
    """Its gradient needs the value before the update; eager keeps it by writing anew."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 2)
            self.register_buffer("scale", torch.ones(2))

        def forward(self, x):
            y = self.linear(x) * self.scale
            self.scale = self.scale * 2
            return y

    pair = Pair(Scaled())
    for _ in range(3):
        pair.step(X)
    assert pair.twin.scale.tolist() == [8.0, 8.0]


def test_saved_tensors_hooks_do_not_change_results():
    pair = Pair(mlp())
    with torch.autograd.graph.save_on_cpu():
        losses = [module(X).square().sum() for module in both(pair)]
    for loss in losses:
        loss.backward()
    pair.compare()
    pair.through_engine()


def test_two_threads_call_one_module():
    pair = Pair(mlp())
    inputs = [X, torch.randn(7, 3)]
    expected, found = [None, None], [None, None]

    def work(module, i, into):
        for _ in range(4):
            x = inputs[i].clone().requires_grad_()
            y = module(x)
            into[i] = (y.detach(), *torch.autograd.grad(y.square().sum(), x))

    for i in range(2):
        work(pair.eager, i, expected)
    threads = [threading.Thread(target=work, args=(pair.ours, i, found)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for ours, theirs in zip(found, expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            close(a, b, "a thread's result")
    pair.through_engine(captures=1)


def test_backward_after_the_module_is_gone():
    net = mlp()
    twin = copy.deepcopy(net)
    loss = ORTModule(twin, options())(X).square().sum()
    parameters = list(twin.parameters())
    del twin
    loss.backward()
    net(X).square().sum().backward()
    for ours, theirs in zip(parameters, net.parameters(), strict=True):
        close(ours.grad, theirs.grad, "the gradient")
