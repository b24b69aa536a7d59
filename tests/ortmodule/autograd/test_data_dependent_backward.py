"""Backwards of modules whose sizes depend on data: which outputs get a gradient, hooks, infinities,
segments and budgets, against eager."""

import copy

import pytest
import torch
from pairs import options
from torch import nn
from torch._higher_order_ops.scan import scan

from ortmodule import ORTModule
from ortmodule.errors import NotCapturable


class Net(nn.Module):
    """A module whose forward is `function(self, x)`."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.head, self.function = nn.Linear(4, 3), nn.Linear(3, 2), function

    def forward(self, x):
        return self.function(self, x)


def kept(x):
    return x[x[:, 0] > 0]


def loss_and_logits(net, x):
    logits = net.head(net.linear(kept(x)).tanh())
    return logits.square().sum(), logits


def passed(net, x):
    h = net.linear(kept(x))
    return h, h.exp()


def permuted(net, x):
    h = net.linear(kept(x)).t()
    return h, h.exp() * 2


def three(net, x):
    h = net.linear(kept(x))
    logits = net.head(h.tanh())
    return h, logits, logits.square().mean() + 0 * h.sum()


def apart(net, x):
    return net.linear(kept(x)).exp(), (x[x[:, 0] <= 0] * net.linear.weight[0]).exp()


def roots(net, x):
    """The first output's derivative is infinite, and nan where zeros are made to flow into it."""
    return ((kept(x) * net.linear.weight[0]).sum() * 0).sqrt(), net.linear(kept(x))


def infinite(net, x):
    return (net.linear(kept(x)) * float("inf")).sum(), net.linear(kept(x)).sum()


def opaque(net, x):
    """An operator of torch's, whose history is kept."""
    h = net.linear(x)[x[:, 0] > 0].logcumsumexp(0)
    return h, net.head(h)


FUNCTIONS = (loss_and_logits, passed, permuted, three, apart, roots, infinite, opaque)


def squared(outputs):
    return sum(y.square().sum() for y in outputs)


def one_after_another(outputs, _):
    for y in outputs:
        y.sum().backward(retain_graph=True)


def twice(outputs, _):
    loss = squared(outputs)
    loss.backward(retain_graph=True)
    loss.backward()


def hooked(outputs, _):
    seen = []
    for y in outputs:
        y.register_hook(lambda g: seen.append(g.clone()) or g * 2)
    squared(outputs).backward()
    return seen


def retained(outputs, _):
    for y in outputs:
        y.retain_grad()
    outputs[-1].sum().backward()
    return [y.grad for y in outputs]


def given(place, value):
    """The gradient of an output has this among its numbers."""

    def use(outputs, _):
        gradient = torch.ones(outputs[place].shape)
        gradient.view(-1)[:1] = value
        outputs[place].backward(gradient)

    return use


def batched(outputs, wrt):
    y = outputs[-1]
    gradients = torch.stack([torch.ones_like(y), torch.full_like(y, 2.0)])
    return torch.autograd.grad(y, wrt, gradients, is_grads_batched=True, allow_unused=True)


USES = {
    "all": lambda outputs, _: squared(outputs).backward(),
    "first": lambda outputs, _: outputs[0].sum().backward(),
    "last": lambda outputs, _: outputs[-1].sum().backward(),
    "one after another": one_after_another,
    "twice": twice,
    "hooked": hooked,
    "retained": retained,
    "of an output": lambda outputs, _: torch.autograd.grad(
        outputs[-1].sum(), [outputs[0]], allow_unused=True
    ),
    "given inf": given(-1, float("inf")),
    "given nan": given(0, float("nan")),
    "overflowing": lambda outputs, _: (outputs[0].sum() * 1e30 * 1e30).backward(),
    "batched": batched,
}


def close(ours, eager, what):
    assert len(ours) == len(eager), what
    for one, other in zip(ours, eager, strict=True):
        assert (one is None) == (other is None), what
        if other is not None:
            torch.testing.assert_close(
                one, other, rtol=1e-5, atol=1e-5, equal_nan=True, msg=lambda m: f"{what}: {m}"
            )


def used(module, net, x, use):
    """Outputs, what `use` gives, and gradients."""
    x = x.clone().requires_grad_()
    net.zero_grad()
    outputs = module(x)
    wrt = [x, *net.parameters()]
    found = use(list(outputs), wrt) or ()
    return [*(y.detach() for y in outputs), *found, *(t.grad for t in wrt)]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_whichever_outputs_get_a_gradient(function):
    """Nothing is filled with zeros: what eager does not visit adds nothing, and no nan."""
    net = Net(function)
    ours = ORTModule(copy.deepcopy(net), options(fallback="error", segment_bytes=0))
    generator = torch.Generator().manual_seed(3)
    for name, use in USES.items():
        for n in (5, 8):
            x = torch.randn(n, 4, generator=generator)
            close(used(ours, ours.module, x, use), used(net, net, x, use), f"{name}, {n} rows")
    report = ours.explain()
    assert report.captures == 1
    assert all("runs as a step of the plan" in found.reason for found in report.fallbacks)


def test_a_loss_beside_its_logits_needs_no_second_forward():
    net = Net(loss_and_logits)
    ours = ORTModule(net, options(fallback="error"))
    for n in (5, 8, 3):
        ours(torch.randn(n, 4))[0].backward()
    assert ours.explain().reruns == 0


def test_a_scaler_sees_infinities():
    """Its scale is halved for each step with one; the others are taken."""
    results = []
    net = Net(loss_and_logits)
    for module in (net, ORTModule(copy.deepcopy(net), options(fallback="error"))):
        torch.manual_seed(2)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126)
        optimizer = torch.optim.SGD(module.parameters(), 0.01)
        scales = []
        for _ in range(8):
            optimizer.zero_grad()
            scaler.scale(module(torch.randn(9, 4))[0] * 16).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        results.append((scales, [p.detach() for p in module.parameters()]))
    assert results[0][0] == results[1][0] and len(set(results[0][0])) in range(2, 8)
    close(results[1][1], results[0][1], "parameters")


class Layers(nn.Module):
    def __init__(self, count):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(count))

    def forward(self, x):
        h = kept(x)
        for layer in self.layers:
            h = layer(h).tanh()
        return h.sum()


def test_gradients_stream():
    """In segments, last layer first; a hook may overwrite the weight whose gradient is there."""
    eager = Layers(5)
    ours = ORTModule(copy.deepcopy(eager), options(fallback="error", segment_bytes=0))
    order, nodes = [], []

    def came(parameter, name):
        order.append((name, len(nodes)))
        parameter.data.fill_(torch.nan)

    for name, parameter in ours.module.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda p, name=name: came(p, name))
    x = torch.randn(9, 4)
    y = ours(x)
    node = y.grad_fn
    while node is not None and node.name().startswith("ORTModuleBackward"):
        node.register_hook(lambda *_: nodes.append(1)) if node is not y.grad_fn else None
        chained = [n for n, _ in node.next_functions if n and "ORTModuleBackward" in n.name()]
        node = chained[0] if chained else None
    y.backward()
    eager(x).backward()
    names = [name.split(".")[1] for name, _ in order]
    assert names[:6] == ["4", "4", "3", "3", "2", "2"] and len(names) == 10
    ran = [count for _, count in order]
    assert ran == sorted(ran) and ran[0] <= 1 and ran[-1] >= 5, "handed over at the end"
    close([p.grad for p in ours.module.parameters()], [p.grad for p in eager.parameters()], "")


def test_steps_of_both_directions_are_timed():
    ours = ORTModule(Layers(2), options(fallback="error", profile=True))
    for n in (5, 8):
        ours(torch.randn(n, 4)).backward()
    steps = ours.explain().steps
    assert [step.name for step in steps if step.us is None] == ["NonZero"]
    assert len(steps) > 6


def test_a_memory_budget_counts_what_is_kept():
    """Sizes are known too late to recompute for it: beyond it the call is refused."""
    x = torch.randn(1000, 4).abs()  # each layer keeps its result of 16,000 bytes
    eager = Layers(5)
    eager(x).backward()
    for budget in (None, 100_000):
        ours = ORTModule(copy.deepcopy(eager), options(fallback="error", memory_budget=budget))
        ours.zero_grad()
        ours(x).backward()
        close([p.grad for p in ours.module.parameters()], [p.grad for p in eager.parameters()], "")
        assert 80_000 <= ours.explain().stash_bytes <= 100_000
    ours = ORTModule(eager, options(fallback="error", memory_budget=50_000))
    ours(x[:500]).backward()
    refused = r"memory_budget is 50000 bytes; .* is to read \d+ bytes"
    with pytest.raises(NotCapturable, match=refused):
        ours(x)


class Scans(nn.Module):
    """Loops side by side: each keeps a row of 64 numbers a trip, or those of a mask."""

    def __init__(self, late, unrolled=False):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.5))
        self.late, self.unrolled = late, unrolled

    def one(self, factor, x):
        def body(state, row):
            state = torch.tanh(state * self.weight + row * factor)
            return state, state * 2

        state = x[0] * 0
        if not self.unrolled:
            state, rows = scan(body, state, x)
            return state.sum() + rows.sum()
        total = 0
        for row in x:
            state, made = body(state, row)
            total = total + made.sum()
        return state.sum() + total

    def forward(self, x):
        if self.late:
            x = x[:, x[0] > -10]
        return sum(self.one(k + 1, x) for k in range(4))


@pytest.mark.parametrize("late", [False, True])
def test_loops_side_by_side_share_a_budget(late):
    """Each keeps 262,144 bytes: together they do not fit."""
    x, eager = torch.randn(512, 64), Scans(late, unrolled=True)
    eager(x).backward()
    ours = ORTModule(Scans(late), options(fallback="error", memory_budget=2_000_000))
    y = ours(x)
    y.backward(retain_graph=True)  # the histories stay
    close([ours.module.weight.grad], [eager.weight.grad], "")
    y.backward()
    close([ours.module.weight.grad], [eager.weight.grad * 2], "twice")
    assert 4 * 131_072 <= ours.explain().stash_bytes <= 2_000_000, "histories are counted"
    ours(x[:10]).backward()
    assert ours.explain().stash_bytes < 4 * 131_072
    refused = r"memory_budget is 400000 bytes; .* the backward is to read \d+ bytes"
    ours = ORTModule(Scans(late), options(fallback="error", memory_budget=400_000))
    with pytest.raises(NotCapturable, match=refused):
        ours(x)
