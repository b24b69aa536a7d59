"""Hooks on gradients that forward sets and full backward hooks of submodules: steps of one capture,
which call what eager calls with what eager gives, once a backward each."""

import copy
import warnings
from functools import partial

import pytest
import torch
from pairs import Net, Pair, close, options
from torch import nn

from ortmodule import ORTModule

X = torch.linspace(-1, 1, 15).reshape(5, 3)


def hooked(*hooks, before=False):
    """A forward that sets hooks on what lies between its layers."""

    def forward(net, x):
        h = net.first(x).tanh()
        early = net.second(h) if before else 0
        for hook in hooks:
            h.register_hook(hook)
        return net.second(h * 2) + early

    return forward


def plus_one(g):
    return g + 1


def times_three(g):
    return g * 3


class Scaled(nn.Module):
    """Its hook reads the module when it runs, and keeps what it is given."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.scale, self.kept = 2.0, []

    def forward(self, x):
        h = self.first(x).tanh()
        h.register_hook(self.on_gradient)
        return self.second(h)

    def on_gradient(self, g):
        self.kept.append(g)
        return g * self.scale


def on_the_output(net, x):
    y = net.second(net.first(x))
    y.register_hook(times_three)
    return y


def removed(net, x):
    h = net.first(x)
    first = h.register_hook(times_three)
    h.register_hook(plus_one)
    first.remove()
    return net.second(h)


TENSORS = {
    "one": hooked(times_three),
    "two_in_order": hooked(times_three, plus_one),
    "set_after_a_use": hooked(times_three, before=True),
    "a_lambda": hooked(lambda g: g * 5),
    "returns_nothing": hooked(lambda g: None),
    "on_the_output": on_the_output,
    "removed": removed,
    "a_number_of_forwards_own": lambda net, x: hooked(partial(torch.mul, x.dim()))(net, x),
}


@pytest.mark.parametrize("name", TENSORS)
def test_hooks_on_tensors(name):
    pair = Pair(Net(TENSORS[name]), fallback="whole")
    for rows in (5, 5, 6):
        pair.step(torch.randn(rows, 3))
    assert pair.report.captures == 1
    assert all("hooks on a gradient" in reason for reason in pair.report.reasons())


def test_a_hook_reads_the_module_when_it_runs_and_may_keep_its_gradient():
    pair = Pair(Scaled(), fallback="whole")
    for scale in (2.0, 3.0, 4.0):
        pair.each(lambda m, scale=scale: setattr(m, "scale", scale))
        pair.step(torch.randn(5, 3))
    for theirs, mine in zip(pair.eager.kept, pair.twin.kept, strict=True):
        close(mine, theirs, "what the hook keeps")
    assert pair.report.captures == 1


def test_a_hook_that_reads_what_forward_computes_ends_a_part():
    def forward(net, x):
        h = net.first(x).tanh().exp().sin()
        mask = (h > 0.9).float()
        h.register_hook(lambda g: g * mask)
        h.register_hook(plus_one)
        return net.second(h.cos().tanh().exp())

    pair = Pair(Net(forward))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            pair.step(torch.randn(5, 3))
    pair.fell_back("a hook that reads a FakeTensor that it made")
    assert len(pair.report.parts) == 2


def test_a_hook_on_what_is_written_to_in_place():
    def forward(net, x):
        h = net.first(x)
        h.register_hook(times_three)
        h.mul_(2)
        return net.second(h)

    pair = Pair(Net(forward))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            pair.step(X)
    pair.fell_back("forward writes to what hooks on a gradient")


def test_a_hook_on_a_leaf_that_forward_makes():
    seen = []

    def forward(net, x):
        leaf = net.first(x).detach().tanh().exp().sin().requires_grad_()
        leaf.register_hook(lambda g: seen.append(g.clone()))
        return net.second(leaf).tanh().exp()

    pair = Pair(Net(forward))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            seen.clear()
            pair.step(X)
            close(seen[1], seen[0], "what the hook is given")


def test_a_leaf_that_forward_makes_and_returns():
    def forward(net, x):
        leaf = net.first(x).detach().tanh().exp().sin().requires_grad_()
        return net.second(leaf).tanh().exp(), leaf

    pair = Pair(Net(forward))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            leaves = []
            for module in (pair.eager, pair.ours):
                y, leaf = module(X)
                y.sum().backward()
                assert leaf.is_leaf and leaf.requires_grad
                leaves.append(leaf.grad)
            close(leaves[1], leaves[0], "the leaf's gradient")


def test_a_hook_on_an_argument():
    def forward(net, x):
        x.register_hook(times_three)
        return net.second(net.first(x))

    pair = Pair(Net(forward))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            given = [X.clone().requires_grad_() for _ in range(2)]
            for module, x in zip((pair.eager, pair.ours), given, strict=True):
                module.zero_grad()
                (module(x).square().sum()).backward()
            close(given[1].grad, given[0].grad, "the argument's gradient")
            pair.compare()
    assert pair.report.captures == 1 and not pair.report.reasons()


class Log:
    """Hooks that note what they are given, and change it."""

    def __init__(self):
        self.seen = []

    def around(self, module, grad_input, grad_output):
        self.seen.append(("around", grad_input, grad_output))

    def tripled(self, module, grad_input, grad_output):
        self.seen.append(("tripled", grad_input, grad_output))
        return tuple(None if g is None else g * 3 for g in grad_input)

    def before(self, module, grad_output):
        self.seen.append(("before", grad_output))
        return tuple(None if g is None else g * 2 for g in grad_output)


class TwoInTwoOut(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, a, number, b):
        return self.linear(a) * number, b.tanh()


class Around(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.inner, self.second = nn.Linear(3, 4), TwoInTwoOut(), nn.Linear(4, 2)
        self.both, self.twice = True, 1

    def forward(self, x):
        h = self.first(x)
        for _ in range(self.twice):
            a, b = self.inner(h, 2.0, h * 3)
            h = a + b if self.both else a
        return self.second(h)


def set_after(module, log):
    module.inner.register_full_backward_hook(log.tripled)


def set_before(module, log):
    module.inner.register_full_backward_pre_hook(log.before)


def set_all(module, log):
    module.inner.register_full_backward_hook(log.around)
    set_after(module, log)
    set_before(module, log)
    module.inner.linear.register_full_backward_hook(log.tripled)


def set_on_the_first(module, log):
    """None of its arguments requires a gradient."""
    module.first.register_full_backward_hook(log.around)
    module.first.register_full_backward_pre_hook(log.before)


def set_on_itself(module, log):
    module.register_full_backward_hook(log.around)


MODULES = [set_after, set_before, set_all, set_on_the_first, set_on_itself]


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("put", MODULES)
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_full_backward_hooks(put, both):
    eager, logs = Around(), (Log(), Log())
    eager.both = both
    ours = ORTModule(copy.deepcopy(eager), options(fallback="whole"))
    put(eager, logs[0])
    put(ours if put is set_on_itself else ours.module, logs[1])
    for rows, twice in ((5, 1), (5, 1), (6, 2)):
        eager.twice = ours.module.twice = twice
        x = torch.randn(rows, 3)
        for module in (eager, ours):
            module.zero_grad()
            module(x).square().sum().backward()
        for (name, theirs), mine in zip(eager.named_parameters(), ours.parameters(), strict=True):
            close(mine.grad, theirs.grad, name)
    assert len(logs[0].seen) == len(logs[1].seen) > 0
    for (name, *theirs), (other, *mine) in zip(logs[0].seen, logs[1].seen, strict=True):
        assert name == other
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    assert not ours.explain().not_whole


@pytest.mark.parametrize("kind", ["full", "tensor"])
def test_what_a_hook_raises_is_the_users_own(kind):
    def refuse(*_):
        raise KeyError("from a hook")

    pair = Pair(Net(hooked(refuse) if kind == "tensor" else hooked()))
    handles = []
    if kind == "full":
        pair.each(lambda m: handles.append(m.first.register_full_backward_hook(refuse)))
    for module in (pair.eager, pair.ours):
        with pytest.raises(KeyError, match="from a hook"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module(X).sum().backward()
    for handle in handles:
        handle.remove()
    if kind == "full":
        pair.step(X)


def test_hooks_are_called_once_though_a_forward_runs_again():
    seen = []

    def forward(net, x):
        h = net.first(x)
        h.register_hook(seen.append)
        return net.second(h), h.tanh()

    net = Net(forward)
    ours = ORTModule(copy.deepcopy(net), options())
    for k in (0, 1, 0):
        counts = []
        for module in (net, ours):
            seen.clear()
            outputs = module(X)
            outputs[k].sum().backward(retain_graph=True)
            outputs[1 - k].sum().backward()
            counts.append(len(seen))
        assert counts == [2, 2]


def test_a_hook_sees_the_autocast_around_the_backward():
    def forward(net, x):
        h = net.first(x).tanh()
        h.register_hook(lambda g: g * (7 if torch.is_autocast_enabled("cpu") else 1))
        return net.second(h)

    pair = Pair(Net(forward), fallback="whole")
    for on in (False, True):
        for module in (pair.eager, pair.ours):
            module.zero_grad()
            loss = module(X).square().sum()
            with torch.autocast("cpu", torch.bfloat16, enabled=on):
                loss.backward()
        for theirs, mine in zip(pair.eager.parameters(), pair.ours.parameters(), strict=True):
            # eager's own backward computes in bfloat16 then
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=0.05, atol=0.05)


def _with_hook(tensor):
    tensor.register_hook(times_three)
    return tensor


VIEWS = {
    "of an argument": (lambda net, x: _with_hook(x[1:]), True),
    "on the way": (lambda net, x: _with_hook(x[None])[0].t(), True),
    "of a parameter": (lambda net, x: _with_hook(net.first.weight.t()), True),
    "beside its base": (lambda net, x: (h := net.first(x), _with_hook(h[1:])), True),
    "of a result": (lambda net, x: _with_hook(net.first(x)[1:]), False),
    "before its view": (lambda net, x: (h := _with_hook(net.first(x)), h[1:]), True),
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_a_hooked_view_that_is_returned_shares_memory_as_in_eager(name):
    forward, cut = VIEWS[name]
    pair = Pair(Net(forward))
    found = []
    for module in (pair.eager, pair.ours):
        x = (X * 1).requires_grad_()
        result = module(x)
        outputs = result if isinstance(result, tuple) else (result,)
        kept = {t.untyped_storage().data_ptr() for t in (x, *module.parameters())}
        memory = [t.untyped_storage().data_ptr() for t in outputs]
        outputs[-1].square().sum().backward()
        found.append((
            [m in kept for m in memory], len(set(memory)), *outputs, x.grad,
            *(p.grad for p in module.parameters()),
        ))  # fmt: skip
    for theirs, mine in zip(*found, strict=True):
        if isinstance(theirs, torch.Tensor):
            torch.testing.assert_close(mine, theirs)
        else:
            assert mine == theirs
    assert pair.report.captures if not cut else "a hook on a view" in str(pair.report)
