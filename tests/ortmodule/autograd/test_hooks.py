"""Hooks and backwards over the nodes of a call: siblings, grad_fn, a backward within a backward."""

import contextlib
import gc
import itertools
import threading
import weakref

import pytest
import torch
from pairs import Net, Pair, close
from torch import nn

X = torch.linspace(-1, 1, 15).reshape(5, 3)


def both(pair):
    return pair.eager, pair.ours


def equal(ours, theirs):
    """Tensors close, None where the other is None, in the same containers."""
    if isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), (ours, theirs)
        for a, b in zip(ours, theirs, strict=True):
            equal(a, b)
    elif isinstance(theirs, torch.Tensor):
        close(ours, theirs, "what a hook was given")
    else:
        assert ours == theirs


def siblings(op):
    return lambda net, x: op(net.first(x))


def sibling_on_the_way(net, x):
    std, mean = torch.std_mean(net.first(x), dim=1)
    return std * mean, std, mean


SIBLINGS = {
    "var_mean": siblings(lambda y: torch.var_mean(y, dim=1)),
    "std_mean": siblings(lambda y: torch.std_mean(y, dim=1)),
    "svd": siblings(lambda y: torch.linalg.svd(y[:3, :3], full_matrices=False)[:2]),
    "split": siblings(lambda y: torch.split(y * 1, 2, 1)),
    "unbind": siblings(lambda y: torch.unbind(y * 1, 1)),
    "max": siblings(lambda y: torch.max(y, 1)[:1]),
    "on_the_way": sibling_on_the_way,
}


@pytest.mark.parametrize("used", [0, 1])
@pytest.mark.parametrize("name", SIBLINGS)
def test_outputs_of_one_op_share_a_node(name, used):
    """A hook on the one that the loss leaves out is called with None, as in eager; a prehook gets
    the gradients of all that the op returns."""
    pair = Pair(Net(SIBLINGS[name]))
    seen = []
    for module in both(pair):
        seen.append([])
        outputs = module(X)
        for i, output in enumerate(outputs):
            output.register_hook(lambda g, i=i, seen=seen: seen[-1].append((i, g)))
        outputs[0].grad_fn.register_prehook(lambda g, seen=seen: seen[-1].append(g))
        outputs[min(used, len(outputs) - 1)].square().sum().backward()
    equal(seen[1], seen[0])
    pair.compare()
    assert pair.report.captures == 1


def branches(net, x):
    y = net.first(x)
    std, mean = torch.std_mean(y, dim=1)
    return y, y.relu(), x * 2, std, y.exp(), mean


@pytest.mark.parametrize("used", [(0,), (1, 2), (2, 5), (3, 4), (0, 1, 2, 3, 4, 5)])
def test_what_was_made_last_is_called_first(used):
    pair = Pair(Net(branches))
    called = []
    for module in both(pair):
        called.append([])
        outputs = module(X.clone().requires_grad_())
        for i, output in enumerate(outputs):
            output.register_hook(lambda _, i=i, called=called[-1]: called.append(i))
        sum(outputs[i].square().sum() for i in used).backward()
    assert called[1] == called[0]
    pair.compare()
    assert pair.report.captures == 1


def asked(module, op, asked_for, before):
    """The error of a backward for one output and a parameter that it does not reach, or None."""
    outputs = module(X)
    if before == "backward":
        outputs[op].square().sum().backward()
    elif before == "write":
        with torch.no_grad():
            outputs[op].mul_(2)
    loss = sum(output.square().sum() for output in outputs)
    unreached = dict(module.named_parameters())["second.bias"]
    try:
        loss.backward(inputs=[outputs[asked_for], unreached])
    except RuntimeError as error:
        return "second time" if "second time" in str(error) else "inplace operation"
    return None


@pytest.mark.parametrize("before", ["backward", "write"])
def test_the_node_of_an_output_that_is_asked_for_runs(before):
    """So it raises where it has run before, or where what it saved was written to."""
    functions = (torch.tanh, torch.exp, lambda y: y.std(1), lambda y: y * 2)
    module = Net(lambda net, x: tuple(function(net.first(x)) for function in functions))
    pair = Pair(module)
    found = [
        [
            asked(module, *which, before)
            for which in itertools.product(range(len(functions)), repeat=2)
        ]
        for module in both(pair)
    ]
    assert found[1] == found[0]
    assert len(set(found[0])) == 2
    assert pair.report.captures == 1


def test_a_hook_that_raises_keeps_no_input_alive():
    def fail(_):
        raise ValueError("of the hook")

    pair = Pair(Chain())
    pair.ours(X)["last"].sum().backward()
    gc.disable()
    try:
        x = X.clone()
        outputs = pair.ours(x)
        alive = [weakref.ref(t) for t in (x, *outputs.values())]
        outputs["second"].register_hook(fail)
        with pytest.raises(ValueError, match="of the hook") as raised:
            outputs["last"].sum().backward()
        del x, outputs, raised
        assert [ref() for ref in alive] == [None] * len(alive)
    finally:
        gc.enable()


def test_a_hook_of_the_node_itself_is_refused_at_once():
    pair = Pair(Net(lambda net, x: torch.tanh(net.first(x))))
    y = pair.ours(X)
    with pytest.raises(RuntimeError, match=r"model\.eager\(\)"):
        y.grad_fn.register_hook(lambda *_: None)
    for node in (y.grad_fn, y.grad_fn.next_functions[0][0]):
        with pytest.raises(RuntimeError, match="cannot be called"):
            node(torch.ones_like(y))
    y.square().sum().backward()
    pair.eager(X).square().sum().backward()
    pair.compare()


@pytest.mark.filterwarnings("ignore")  # torch says that the hook misses gradients
@pytest.mark.parametrize("on", [lambda p: p.twin, lambda p: p.ours], ids=["module", "wrapper"])
def test_register_backward_hook_runs_in_eager(on):
    """The old kind of hook is one of grad_fn; it is set after a call, and removed again."""
    pair = Pair(Net(lambda net, x: net.second(torch.relu(net.first(x)))))
    pair.step(X)
    seen, handles = [], []
    for module in (pair.eager, on(pair)):
        seen.append([])
        hook = lambda _, *g, seen=seen[-1]: seen.append(g)  # noqa: E731
        handles.append(module.register_backward_hook(hook))
    pair.step(X)
    assert len(seen[0]) == 1
    equal(seen[1], seen[0])
    pair.fell_back("register_backward_hook")
    for handle in handles:
        handle.remove()
    pair.step(X)
    assert len(seen[1]) == 1


class Chain(nn.Module):
    """Two hidden outputs on the way of a third."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        first = torch.tanh(self.a(x))
        second = torch.sigmoid(self.b(first))
        return {"first": first, "second": second, "last": self.c(second)}


def nested(module, where, target, keeps):
    """What a backward within another one gives, its error if it has one, and whether the other
    one comes to its end."""
    outputs = module(X)
    found = []

    def hook(_):
        if not found:
            found.append(None)
            inputs = [*module.parameters()]
            loss = outputs[target].square().sum()
            found[0] = torch.autograd.grad(loss, inputs, retain_graph=keeps[1], allow_unused=True)

    (outputs.get(where) if where in outputs else getattr(module, where).weight).register_hook(hook)
    try:
        outputs["last"].square().sum().backward(retain_graph=keeps[0])
    except RuntimeError as error:
        return found, "second time" in str(error)
    return found, [p.grad.clone() for p in module.parameters()]


@pytest.mark.parametrize("segment_bytes", [0, 4 << 20])
@pytest.mark.parametrize("where", ["last", "second", "first", "a", "b", "c"])
def test_a_backward_within_a_backward(where, segment_bytes):
    for target in ("first", "last"):
        for keeps in ((True, True), (True, False), (False, True), (False, False)):
            pair = Pair(Chain(), segment_bytes=segment_bytes)
            theirs, ours = (nested(module, where, target, keeps) for module in both(pair))
            equal(ours, theirs)
            pair.through_engine()


def test_a_graph_that_is_retained_serves_threads_at_once():
    pair = Pair(Chain(), segment_bytes=0)
    parameters = [*pair.twin.parameters()]
    loss = pair.ours(X)["last"].square().sum()
    found = [None] * 4

    def work(i):
        for _ in range(20):
            found[i] = torch.autograd.grad(loss * (i + 1), parameters, retain_graph=True)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(found))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    theirs = pair.eager(X)["last"].square().sum()
    for i, ours in enumerate(found):
        eager = torch.autograd.grad(theirs * (i + 1), pair.eager.parameters(), retain_graph=True)
        equal(ours, eager)


@pytest.mark.parametrize("which", ["first.weight", "first.bias", "second.weight"])
def test_a_parameter_is_swapped_while_an_output_lives(which):
    """What eager holds of a call is held, and no more: its parameter may be swapped for another."""
    pair = Pair(Net(lambda net, x: net.second(torch.relu(net.first(x)))))
    errors = []
    for module in (pair.eager, pair.twin):
        output = (pair.eager if module is pair.eager else pair.ours)(X)
        old = dict(module.named_parameters())[which]
        try:
            torch.utils.swap_tensors(old, nn.Parameter(torch.full_like(old, 0.5)))
        except RuntimeError as error:
            errors.append(str(error))
        with contextlib.nullcontext() if errors else pytest.raises(RuntimeError, match="poisoned"):
            output.square().sum().backward()
    assert len(errors) in (0, 2)
    pair.step(X)
    pair.through_engine()


def test_an_output_that_only_a_leaf_within_reaches():
    """No input requires a gradient: what is asked for on the way is told all the same."""

    def leaf_within(net, x):
        h = x * 2 + torch.zeros(3, requires_grad=True)
        return h, h.exp()

    pair = Pair(Net(leaf_within))
    seen = []
    for module in both(pair):
        h, y = module(X)
        h.retain_grad()
        y.sum().backward()
        seen.append(h.grad)
    close(seen[1], seen[0], "the retained gradient")
    assert not pair.ours.explain().fallbacks
