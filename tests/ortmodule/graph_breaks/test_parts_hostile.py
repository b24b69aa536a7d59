"""Hostile modules in parts, three steps each against eager: outputs, gradients, state."""

import warnings

import pytest
import torch
from pairs import Pair, close
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    """Two blocks, between which `between` looks at data, so that each is a part."""

    def __init__(self, between):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 8), nn.Sigmoid())
        self.second = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh())
        self.scale = nn.Parameter(torch.ones(8))
        self.register_buffer("table", torch.arange(8.0))
        self.between, self.state, self.log, self.drop = between, {"n": 0}, [], nn.Dropout(0.5)

    def forward(self, x, *rest):
        return self.between(self, x, *rest)


def cut(h):
    """Where Python looks at data."""
    return h * 2 if h.sum() > 1e9 else h


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def tensors_of(result):
    return [result] if isinstance(result, torch.Tensor) else list(result)


def storages(tensors):
    """Which of them share memory."""
    pointers = [t.untyped_storage().data_ptr() for t in tensors]
    return [pointers.index(p) for p in pointers]


def steps(between, numbers=(None, None, None), sizes=(5, 5, 4), change=None, parts=True):
    """Three steps or more, compared in all that can be seen."""
    pair = Pair(Net(between))
    for step, number in enumerate(numbers):
        size = sizes[step % len(sizes)]
        found = []
        for net in (pair.eager, pair.ours):
            module = getattr(net, "module", net)
            if change is not None:
                change(module, step)
            net.zero_grad()
            torch.manual_seed(step)
            x = torch.randn(size, 3, requires_grad=step % 2 == 1)
            results = tensors_of(net(x) if number is None else net(x, number))
            wanted = [r for r in results if r.requires_grad]
            if wanted:
                sum(r.double().square().sum() for r in wanted).backward()
            drawn = torch.random.get_rng_state()
            found.append((results, x, module.state, len(module.log), drawn))
        (theirs, x, state, log, drawn), (ours, own_x, own_state, own_log, own_drawn) = found
        for a, b in zip(ours, theirs, strict=True):
            close(a, b, f"an output of step {step}")
            assert a.requires_grad == b.requires_grad
        assert storages([*ours, own_x]) == storages([*theirs, x])
        assert (x.grad is None) == (own_x.grad is None)
        if x.grad is not None:
            close(own_x.grad, x.grad, "the input's gradient")
        assert state == own_state and log == own_log
        assert torch.equal(drawn, own_drawn)
        pair.compare()
    if parts:
        assert pair.report.not_whole or pair.report.fallbacks, pair.report
    return pair


def inside_no_grad(net, x):
    h = net.first(x)
    with torch.no_grad():
        h = cut(h)
        k = net.second(h)
    return net.second(cut(h)) + k


def write_input(net, x):
    h = net.first(x) + 0
    h.mul_(2)
    h = cut(h)
    h.add_(1)
    view = h[:2]
    return net.second(h), view


def parameter_written(net, x):
    h = cut(net.first(x))
    with torch.no_grad():
        net.scale.mul_(1.5)
    return net.second(h * net.scale)


def tries(net, x):
    try:
        if net.first(x).sum() > 0:
            raise ValueError
        return net.second(net.first(x))
    except ValueError:
        net.state["n"] += 1
        return net.second(net.first(x) * 2)


def recursive(net, x, depth=3):
    h = net.first(x)
    if depth == 0 or h.sum() > 1e9:
        return net.second(h)
    return recursive(net, net.second(h)[:, :3], depth - 1)


def rows(net, x):
    h = net.second(net.first(x))
    chosen = [h[k] for k, v in enumerate(h.detach().sum(1).tolist()) if v > 0]
    return torch.stack(chosen).tanh() if chosen else h


def masked(net, x):
    h = cut(net.first(x))
    found = h[h > 0.5]
    where = torch.where(h > 0.5)
    return net.second(h), found, h.nonzero().float(), where[0].float()


def mutating(net, x):
    h = cut(net.first(x))
    net.state["n"] = net.state["n"] + 1
    net.log.append(net.state["n"])
    return net.second(h * net.state["n"])


def generator(net, x):
    def halves(t):
        yield t * 2
        yield cut(t)

    return net.second(sum(halves(net.first(x))))


def closure(net, x):
    count = 0

    def step(t):
        nonlocal count
        count += 1
        return cut(t) * count

    return net.second(step(step(net.first(x))))


CASES = {
    "views_across_a_cut": lambda net, x: (lambda h: (h, cut(h).t()[1:], net.second(h)))(
        net.first(x)
    ),
    "the_input_is_an_output": lambda net, x: (x, net.second(cut(net.first(x)))),
    "written_across_a_cut": write_input,
    "no_grad_across_a_cut": inside_no_grad,
    "a_parameter_is_written": parameter_written,
    "try_and_except": tries,
    "recursion": recursive,
    "rows": rows,
    "masks": masked,
    "state": mutating,
    "a_generator": generator,
    "a_closure": closure,
    "a_table_is_written": lambda net, x: (
        net.table.add_(1),
        net.second(cut(net.first(x)) * net.table),
    )[1],
    "detached": lambda net, x: (net.second(cut(net.first(x)).detach()), net.first(x) * 1),
    "unused": lambda net, x: net.second(cut(x.repeat(1, 3)[:, :8])),
}


@pytest.mark.parametrize("name", CASES)
def test_as_in_eager(name):
    steps(CASES[name])


@pytest.mark.parametrize("sizes", [(5, 0, 1, 2, 0), (1, 1, 3, 4, 1)])
def test_sizes_of_nothing_and_one(sizes):
    steps(lambda net, x: net.second(cut(net.first(x))), (None,) * 5, sizes)


NUMBERS = {
    "without_dimensions": lambda net, x, k: net.second(cut(net.first(x))).sum() * k,
    "of_integers": lambda net, x, k: net.second(cut(net.first(x))) + torch.arange(8) * k,
    "as_a_double": lambda net, x, k: net.second(cut(net.first(x))) * ((k + 1e16) - 1e16),
    "of_halves": lambda net, x, k: net.second(cut(net.first(x))).bfloat16() * k,
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("numbers", [(0.1, 0.2, 0.3, 0.7), (3, 7, -3, 0, 1, -9)])
def test_numbers_are_pythons(name, numbers):
    if name == "as_a_double":  # a size's arithmetic is exact, where eager's rounds beyond 2 ** 53
        numbers = [float(number) for number in numbers]
    steps(NUMBERS[name], numbers)


def test_bools_are_constants():
    steps(lambda net, x, on: net.second(cut(net.first(x)) * (2 if on else 1)), (True, False, True))


def test_what_requires_grad_changes():
    def change(module, step):
        module.first[0].weight.requires_grad_(step != 1)
        module.second.requires_grad_(step != 2)

    steps(lambda net, x: net.second(cut(net.first(x))), (None,) * 5, change=change)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_with_dropout_is_consistent(reentrant):
    """The masks of the second forward are the first one's: gradients vanish where outputs do."""
    pair = Pair(
        Net(lambda net, x: checkpoint(net.drop, cut(net.first(x)), use_reentrant=reentrant))
    )
    for step in range(3):
        torch.manual_seed(step)
        h = []
        handle = pair.twin.first.register_forward_hook(lambda _m, _i, y, h=h: h.append(y))
        result = pair.ours(torch.randn(5, 3))
        h[0].retain_grad()
        result.sum().backward()
        handle.remove()
        assert torch.equal(h[0].grad != 0, result != 0)


def within_autocast(net, x):
    with torch.autocast("cpu", torch.bfloat16):
        h = net.second(cut(net.first(x)))
    return net.second(h.float()), h


def autocast_by_hand(net, x):
    context = torch.autocast("cpu", torch.bfloat16)
    context.__enter__()
    h = net.second(cut(net.first(x)))
    context.__exit__(None, None, None)
    return net.second(h.float()), h


@pytest.mark.parametrize("function", [within_autocast, autocast_by_hand])
def test_autocast_across_a_cut(function):
    pair = Pair(Net(function))
    for _ in range(3):
        x = torch.randn(5, 3)
        for ours, theirs in zip(pair.ours(x), pair.eager(x), strict=True):
            assert ours.dtype == theirs.dtype
            torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02)
        assert not torch.is_autocast_enabled("cpu")


def test_two_forwards_before_a_backward():
    pair = Pair(Net(lambda net, x: net.second(cut(net.first(x)))))
    for net in (pair.eager, pair.ours):
        torch.manual_seed(0)
        for _ in range(2):
            one, other = net(torch.randn(5, 3)), net(torch.randn(4, 3))
            one.square().sum().backward(retain_graph=True)
            other.square().sum().backward()
            one.sum().backward()
    pair.compare()


def test_a_second_backward_is_the_error_that_it_is():
    pair = Pair(Net(lambda net, x: net.second(cut(net.first(x)))))
    for net in (pair.eager, pair.ours):
        loss = net(torch.randn(5, 3)).square().sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


def test_a_hook_keeps_what_it_saw():
    seen = []
    pair = Pair(Net(lambda net, x: net.second(cut(net.first(x)))))
    pair.each(lambda m: m.second[1].register_forward_hook(lambda _m, _i, y: seen.append(y)))
    for _ in range(3):
        seen.clear()
        pair.step(torch.randn(5, 3))
        close(seen[1], seen[0], "what the hook kept")
