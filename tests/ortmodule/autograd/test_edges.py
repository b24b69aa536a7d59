"""The autograd graph around a module: what a backward visits, passes and uses up is eager's.

Each case acts on a module alike in eager and under ORTModule and returns what it saw.
"""

import contextlib

import pytest
import torch
from pairs import Pair, close
from torch import nn
from torch.autograd.graph import get_gradient_edge, register_multi_grad_hook

X = torch.linspace(-1, 1, 15).view(5, 3)


class Two(nn.Module):
    """Layers for forwards of several outputs; `function(self, *args)` is the forward."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.l, self.k, self.j = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)
        self.function = function

    def forward(self, *args):
        return self.function(self, *args)


def heads(s, x):
    return s.l(x), s.k(x)


def trunk(s, x):
    h = torch.tanh(s.l(x))
    return s.k(h), s.j(h)


def hidden(s, x):
    h = torch.tanh(s.l(x))
    return s.k(h), h


def observed(module, inner, act):
    inner.zero_grad()
    try:
        seen = act(module, inner)
    except (RuntimeError, TypeError) as error:
        seen = type(error)
    return seen, {n: p.grad for n, p in inner.named_parameters()}


def flat(seen):
    if isinstance(seen, (list, tuple)):
        return [item for part in seen for item in flat(part)]
    return [seen]


def same(ours, theirs, what):
    ours, theirs = flat(ours), flat(theirs)
    assert len(ours) == len(theirs), f"{what}: {ours} {theirs}"
    for a, b in zip(ours, theirs, strict=True):
        assert type(a) is type(b), f"{what}: {a} {b}"
        if isinstance(a, torch.Tensor):
            close(a, b, what)
        else:
            assert a == b, f"{what}: {a} {b}"


def outcomes(pair, act, calls=3):
    """What calls do, in eager and under the wrapper."""
    for _ in range(calls):
        theirs = observed(pair.eager, pair.eager, act)
        ours = observed(pair.ours, pair.twin, act)
        same(ours[0], theirs[0], "seen")
        for name in theirs[1] if not isinstance(theirs[0], type) else ():
            same(ours[1][name], theirs[1][name], name)


def summed(y):
    return y.square().sum()


def retain(m, s):
    y, h = m(X)
    h.retain_grad()
    summed(y).backward()
    return h.grad


def retain_both(m, s):
    y, h = m(X)
    h.retain_grad(), y.retain_grad()
    (summed(y) + summed(h)).backward()
    return h.grad, y.grad


def hook_changes(m, s):
    y, h = m(X)
    h.register_hook(lambda g: g * 3)
    summed(y).backward()


def hook_sees_outside_too(m, s):
    y, h = m(X)
    seen = []
    h.register_hook(lambda g: seen.append(g.clone()))
    (summed(y) + h.exp().sum()).backward()
    return seen


def grad_of_hidden(m, s):
    y, h = m(X)
    return torch.autograd.grad(summed(y), h)


def grad_of_hidden_and_weights(m, s):
    y, h = m(X)
    wrt = [h, s.l.weight, s.k.weight, s.j.weight]
    return torch.autograd.grad(summed(y), wrt, allow_unused=True)


def materialized(m, s):
    y, h = m(X)
    wrt = [s.l.weight, s.k.weight]
    return torch.autograd.grad(h.sum(), wrt, allow_unused=True, materialize_grads=True)


def unused(m, s):
    y, h = m(X)
    return torch.autograd.grad(h.sum(), [s.l.weight, s.k.weight])


def backward_to_hidden(m, s):
    y, h = m(X)
    summed(y).backward(inputs=[h, s.l.bias])
    return h.grad


def prehook(m, s):
    y, h = m(X)
    seen = []
    h.grad_fn.register_prehook(lambda g: seen.append(g[0].clone()))
    summed(y).backward()
    return seen


def multi_grad(m, s):
    y, h = m(X)
    seen = []

    def note(grads):
        seen.append([None if g is None else g.clone() for g in grads])

    register_multi_grad_hook([y, h, s.j.bias], note)
    summed(y).backward()
    return seen


def multi_grad_any(m, s):
    y, h = m(X)
    seen = []
    register_multi_grad_hook([y, h], lambda g: seen.append(g.clone()), mode="any")
    summed(y).backward()
    return seen


def visited(m, s, output):
    seen = []
    handles = [
        p.register_hook(lambda g, n=n: seen.append((n, g is None)) or g * 2)
        for n, p in s.named_parameters()
    ]
    handles += [
        p.register_post_accumulate_grad_hook(lambda p, n=n: seen.append((n, p.grad.sum().item())))
        for n, p in s.named_parameters()
    ]
    try:
        summed(m(X)[output]).backward()
    finally:
        for handle in handles:
            handle.remove()
    return sorted(n for n, _ in seen)


def hooks_of_the_first(m, s):
    return visited(m, s, 0)


def hooks_of_the_second(m, s):
    return visited(m, s, 1)


def one_then_the_other(m, s):
    a, b = m(X)
    summed(a).backward(retain_graph=True)
    first = [p.grad is not None and p.grad.clone() for p in s.parameters()]
    summed(b).backward()
    return first


def one_then_the_other_freed(m, s):
    a, b = m(X)
    summed(a).backward()
    summed(b).backward()


def added(tensors, by):
    with torch.no_grad():
        for tensor in tensors:
            tensor.add_(by)


@contextlib.contextmanager
def changed(*tensors):
    """Within, these have other values."""
    added(tensors, 0.1)
    try:
        yield
    finally:
        added(tensors, -0.1)


def step_between(m, s):
    """Of the first layer, whose weight eager's backward does not read."""
    a, b = m(X)
    summed(a).backward(retain_graph=True)
    with changed(s.l.weight, s.l.bias, s.j.bias, s.k.bias):
        summed(b).backward()


def step_between_of_what_is_saved(m, s):
    a, b = m(X)
    summed(a).backward(retain_graph=True)
    with changed(s.j.weight, s.k.weight):
        summed(b).backward()


def step_before_another_backward(m, s):
    a, b = m(X)
    with changed(s.l.weight, s.l.bias, s.j.bias, s.k.bias):
        summed(b).backward()


def retained_then_hooked(m, s):
    y, h = m(X)
    summed(y).backward(retain_graph=True)
    with changed(s.l.bias):
        h.register_hook(lambda g: g * 5)
        summed(y).backward()


def twice(m, s):
    y, h = m(X)
    summed(y).backward()
    summed(y).backward()


def parts_of_the_weights(m, s):
    out = m(X)
    a = torch.autograd.grad(summed(out[0]), [s.k.weight], retain_graph=True, allow_unused=True)
    b = torch.autograd.grad(summed(out[0]), [s.l.bias], allow_unused=True)
    return a, b


def two_calls(m, s):
    one, two = m(X), m(X * 2)
    one[1].retain_grad(), two[1].register_hook(lambda g: g * 2)
    (summed(one[0]) + summed(two[0])).backward()
    return one[1].grad


def written_output(m, s):
    y, h = m(X)
    y.mul_(2)
    summed(y).backward()


def through_a_function(m, s):
    """The other output's gradient is undefined, though the backward passes its node."""

    class OnlyFirst(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.set_materialize_grads(False)
            return a.clone(), b.clone()

        @staticmethod
        def backward(ctx, a, b):
            return a, None

    a, b = OnlyFirst.apply(*m(X))
    summed(a).backward()


def views_of_outputs(m, s):
    y, h = m(X)
    v = h.view(-1)[2:]
    v.retain_grad()
    (summed(y) + v.sum()).backward()
    return v.grad


def edge_of_hidden(m, s):
    y, h = m(X)
    return torch.autograd.grad(summed(y), get_gradient_edge(h))


def roots_at_once(m, s):
    a, b = m(X)
    b.retain_grad()
    torch.autograd.backward([a, b], [torch.ones_like(a), torch.ones_like(b) * 2])
    return b.grad


def dropped_output(m, s):
    summed(m(X)[0]).backward()


def frozen(m, s):
    s.l.requires_grad_(False)
    try:
        y, h = m(X)
        summed(y).backward()
        return y.requires_grad, h.requires_grad
    finally:
        s.l.requires_grad_(True)


def input_gradients(m, s):
    x = X.clone().requires_grad_()
    z = x * 2
    z.retain_grad()
    y, h = m(z)
    h.register_hook(lambda g: g + 1)
    summed(y).backward()
    return x.grad, z.grad


ACTS = [
    retain, retain_both, hook_changes, hook_sees_outside_too, grad_of_hidden,
    grad_of_hidden_and_weights, materialized, unused, backward_to_hidden, prehook, multi_grad,
    multi_grad_any, hooks_of_the_first, hooks_of_the_second, one_then_the_other,
    one_then_the_other_freed, step_between, step_between_of_what_is_saved,
    step_before_another_backward, retained_then_hooked, twice, parts_of_the_weights, two_calls,
    written_output, through_a_function, views_of_outputs, edge_of_hidden, roots_at_once,
    dropped_output, frozen, input_gradients,
]  # fmt: skip


@pytest.mark.parametrize("forward", [heads, trunk, hidden], ids=lambda f: f.__name__)
@pytest.mark.parametrize("act", ACTS, ids=lambda f: f.__name__)
def test_two_outputs(forward, act):
    pair = Pair(Two(forward), segment_bytes=0)
    outcomes(pair, act)
    pair.through_engine()


def deep(s, x):
    first = torch.tanh(s.l(x))
    second = torch.sigmoid(s.k(first)) + first
    return s.j(second), second, first


def copied(s, x):
    h = torch.tanh(s.l(x))
    copy = h.clone()
    return s.k(h) + s.j(copy), h, copy


def beside(s, x):
    a, b = torch.tanh(s.l(x)), torch.tanh(s.k(x))
    return s.j(a) + s.j(b), a, b


def with_row(s, x):
    h = torch.tanh(s.l(x))
    return s.k(h), h, h[0]


def rounded(s, x):
    return s.k(x), s.l.weight.round(), s.l(x).floor()


@pytest.mark.parametrize("which", [(1,), (2,), (1, 2), (0, 2)], ids=str)
@pytest.mark.parametrize(
    "forward", [deep, copied, beside, with_row, rounded], ids=lambda f: f.__name__
)
def test_hooks_on_three_outputs(forward, which):
    """What hooks see, in their order, and the gradients that they change."""

    def act(m, s):
        outputs, seen = m(X), []
        for i in which:
            outputs[i].register_hook(lambda g, i=i: seen.append((i, g.clone())) or g * 2)
        (summed(outputs[0]) + summed(outputs[1])).backward()
        return seen

    pair = Pair(Two(forward))
    outcomes(pair, act)
    pair.through_engine()


@pytest.mark.parametrize("which", [[1], [2], [1, 2]], ids=str)
@pytest.mark.parametrize("forward", [deep, copied, beside], ids=lambda f: f.__name__)
def test_gradients_of_hidden_outputs(forward, which):
    def act(m, s):
        outputs = m(X)
        wrt = [*(outputs[i] for i in which), s.k.weight, s.l.bias]
        first = torch.autograd.grad(summed(outputs[0]), wrt, retain_graph=True)
        return first, torch.autograd.grad(summed(outputs[0]), wrt[:1])

    pair = Pair(Two(forward))
    outcomes(pair, act)
    pair.through_engine()


def test_forward_runs_again_once_and_is_counted():
    pair = Pair(Two(hidden))
    for _ in range(3):
        retain(pair.ours, pair.twin)
    assert pair.report.reruns == 1 and "ran again" in str(pair.report)
    assert pair.report.captures == 1
    for _ in range(2):  # the programs of both are kept
        dropped_output(pair.ours, pair.twin)
        retain(pair.ours, pair.twin)
    assert pair.report.plans == 3


def written(s, x):
    x.mul_(s.l.bias)
    return x, s.k(x)


def buffer_written(s, x):
    s.n.add_(s.l.bias)
    return s.k(x) * s.n, x


def frozen_inside(s, x):
    s.l.weight.requires_grad_(False)
    return s.k(s.l(x)), x


def node_hooked(s, x):
    h = s.l(x)
    if h.grad_fn is not None:
        h.grad_fn.register_prehook(lambda g: (g[0] * 2,))
    return s.k(h), x


def retained_inside(s, x):
    h = s.l(x)
    h.retain_grad()
    return s.k(h), x


def several_hooked(s, x):
    h = s.l(x)
    register_multi_grad_hook([h], lambda g: None)
    return s.k(h), x


def gradient_inside(s, x):
    w = x.clone().requires_grad_()
    (g,) = torch.autograd.grad(s.l(w).square().sum(), w)
    return s.k(g), x


def backward_inside(s, x):
    w = x.clone().requires_grad_()
    s.l(w).square().sum().backward()
    return s.k(w.grad), x


def packed_inside(s, x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t):
        h = torch.tanh(s.l(x))
    return s.k(h), x


def grad_left_off(s, x):
    torch.set_grad_enabled(False)
    return s.l(x), x


def inference_returned(s, x):
    with torch.inference_mode():
        t = s.l(x)
    return s.k(x), t


def placed(s, x):
    return s.l(x) * (x.storage_offset() + 1), x


REFUSED = {
    placed: "where a tensor begins in memory",
    written: "autograd history of input 0", buffer_written: "autograd history of n",
    frozen_inside: "autograd history of l.weight", node_hooked: "a tensor's grad_fn",
    retained_inside: "calls Tensor.retain_grad", several_hooked: "a hook that reads a lock",
    gradient_inside: "a backward of its own", backward_inside: "a backward of its own",
    packed_inside: "hooks on saved tensors", grad_left_off: "leaves the grad mode changed",
    inference_returned: "made in inference mode",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:ORTModule runs this module in eager")
@pytest.mark.parametrize("forward", REFUSED, ids=lambda f: f.__name__)
def test_what_a_forward_does_to_the_graph_is_refused(forward):
    net = Two(forward)
    net.register_buffer("n", torch.ones(3))
    pair = Pair(net)

    def act(m, s):
        try:
            outputs = m(X.clone())
            if len(outputs) > 2:
                outputs[1].register_hook(lambda g: g * 2)
            if outputs[0].requires_grad:
                outputs[0].square().sum().backward()
            return [(o.requires_grad, o.is_inference(), o.detach().clone()) for o in outputs]
        finally:
            torch.set_grad_enabled(True)

    outcomes(pair, act, calls=2)
    pair.fell_back(REFUSED[forward])


def asks_for_grad(s, x):
    return s.l(x) * (100.0 if torch.is_grad_enabled() else 1.0)


def asks_for_inference(s, x):
    return s.l(x) * (100.0 if torch.is_inference_mode_enabled() else 1.0)


def teacher(s, x):
    with torch.inference_mode():
        target = s.l(x)
    return s.k(x) - target


@torch.inference_mode()
def decorated(s, x):
    return s.l(x)


def decorated_teacher(s, x):
    return s.k(x) - decorated(s, x)


def inference_off(s, x):
    with torch.no_grad(), torch.inference_mode(False):
        h = s.l(x)
    return s.k(x) + h


def mixed(s, x):
    with torch.no_grad():
        a = s.l(x)
        with torch.enable_grad():
            b = s.j(x)
    return s.k(x) + a + b


@pytest.mark.filterwarnings("ignore:ORTModule runs this module in eager")
@pytest.mark.parametrize("around", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    "forward",
    [asks_for_grad, asks_for_inference, teacher, decorated_teacher, inference_off, mixed],
    ids=lambda f: f.__name__,
)
def test_modes_inside_and_around(forward, around):
    def act(m, s):
        with around():
            y = m(X)
        if y.requires_grad:
            y.square().sum().backward()
        return y.requires_grad, y.is_inference(), y.clone()

    pair = Pair(Two(forward))
    outcomes(pair, act, calls=2)
    if around is torch.enable_grad:
        pair.through_engine(captures=1)
