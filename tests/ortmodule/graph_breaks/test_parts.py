"""Modules that no capture holds whole run in parts, which are eager's in all that can be seen."""

import copy
import gc
import random
import re
import warnings
import weakref
from random import random as draw

import numpy as np
import pytest
import torch
from pairs import Pair, asks, close, mlp, options
from torch import nn
from torch.utils.checkpoint import checkpoint

from ortmodule import ORTModule


class Net(nn.Module):
    """Two blocks with whatever `between` makes of what the first gives; each is a part."""

    def __init__(self, between):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 8), nn.Sigmoid())
        self.second = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh())
        self.register_buffer("calls", torch.zeros(()))
        self.scale, self.count = 1.0, 0
        self.between = between

    def forward(self, x, *rest):
        return self.second(self.between(self, self.first(x), *rest))


def pair_of(between, **settings) -> Pair:
    return Pair(Net(between), **settings)


def branch(net, h, *_):
    return h * 2 if h.sum() > 1e9 else h


def batches(*sizes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(size, 3, generator=generator) for size in sizes]


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def in_parts(pair: Pair, at_least: int = 2) -> None:
    """Nothing ran outside of the engine."""
    report = pair.report
    assert len(report.parts) >= at_least and not report.fallbacks, str(report)
    assert all(part.captures for part in report.parts), str(report)


def test_a_branch_on_data():
    pair = pair_of(branch)
    for x in batches(5, 5, 4, 7, 6):
        pair.step(x)
    in_parts(pair)
    report = pair.report
    assert report.captures == len(report.parts) == 4  # for 5, then for any number
    found = next(iter(report.breaks))
    assert found.file == __file__ and "branch" in found.reason
    (why,) = report.not_whole
    assert why.file == __file__ and "data-dependent" in why.reason
    assert all(part.providers.keys() <= {"cpu", "reference"} for part in report.parts)
    assert f"in parts: {why}" in str(
        report
    ) and f"a part ends ({report.breaks[found]} x): {found}" in str(report)
    assert any("size mismatch" in miss for miss in report.misses)


def test_a_part_without_inputs():
    def between(net, h):
        if h.sum() > 1e9:
            h = h * 2
        bounds = torch.arange(4) < torch.tensor([[2], [3]])
        steps = (bounds.float() * 1.5 + torch.ones(2, 4).cumsum(0)).sin()
        if steps.sum() > 1e9:
            h = h * 3
        return h * steps.mean()

    pair = pair_of(between)
    for x in batches(5, 5, 4):
        pair.step(x)
    in_parts(pair)
    assert not pair.report.fallbacks, pair.report


def test_torch_does_not_time_the_guards_of_parts(monkeypatch):
    """It would for its log, after it has emptied the processor's caches."""
    timed = []
    times = lambda *_: timed.append(1) or 0.0  # noqa: E731
    monkeypatch.setattr("torch._dynamo.guards.profile_guard_manager", times, raising=False)
    pair = pair_of(branch)
    pair.step(*batches(4))
    in_parts(pair)
    assert not timed


def test_both_branches_of_data():
    def between(net, h):
        return h * 2 if h.sum() > 0 else h.exp() - 1

    pair = pair_of(lambda net, h: between(net, h - 0.45))
    for x in batches(*[5] * 8):
        pair.step(x * 3)
    in_parts(pair)


class Deep(nn.Module):
    """`after(x)` comes after each of six layers; true: it was the last."""

    def __init__(self, after):
        super().__init__()
        self.after = after
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 3), nn.ReLU()) for _ in range(6)
        )

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
            if self.after(x):
                break
        return x


def test_a_break_in_a_loop_over_layers():
    pair = Pair(Deep(lambda x: bool(x.mean() > 0.1)))
    for x in batches(5, 5, 4):
        pair.step(x)
    assert pair.report.providers["cpu"] and pair.report.not_whole


def test_a_check_in_a_loop_over_layers():
    def check(x):
        if not torch.isfinite(x).all():
            raise ValueError("not finite")

    pair = Pair(Deep(check))
    for x in batches(5, 5, 4):
        pair.step(x)
    assert pair.report.providers["cpu"] and not pair.report.reasons()
    for module in (pair.eager, pair.ours):
        with pytest.raises(ValueError, match="not finite"):
            module(torch.full((5, 3), float("inf")))


@pytest.mark.parametrize("change", ["hook", "hook_removed", "attribute", "layer", "frozen", "mode"])
def test_what_changes_after_the_first_call_is_noticed(change):
    handles = []

    def edit(net):
        if change == "hook":
            net.second[1].register_forward_hook(lambda _m, _i, y: y * 3)
        elif change == "hook_removed":
            handles.pop(0).remove()
        elif change == "attribute":
            net.scale = 3.0
        elif change == "layer":
            net.second[1] = nn.Sigmoid()
        elif change == "frozen":
            net.second[2].weight.requires_grad_(False)
        else:
            net.second[1].train(False)

    pair = pair_of(lambda net, h: branch(net, h) * net.scale)
    if change == "hook_removed":
        pair.each(
            lambda m: handles.append(m.second[1].register_forward_hook(lambda _m, _i, y: y * 3))
        )
    first, second, third = batches(5, 5, 5)
    pair.step(first)
    pair.each(edit)
    pair.step(second)
    pair.step(third)
    in_parts(pair)


def test_a_hook_on_a_submodule_is_part_of_a_graph():
    pair = pair_of(lambda net, h: h)
    seen = []
    pair.each(lambda m: m.first[1].register_forward_pre_hook(lambda _m, x: (x[0] * 0.5,)))
    pair.each(lambda m: m.second[1].register_forward_hook(lambda _m, _i, y: seen.append(y)))
    for x in batches(5, 5):
        seen.clear()
        pair.step(x)
        eager, ours = seen
        close(ours, eager, "what the hook keeps")
        assert ours.requires_grad
    pair.through_engine()


def test_a_hook_that_raises_is_the_users_error():
    def refuse(*_):
        raise KeyError("from a hook")

    pair = pair_of(lambda net, h: h)
    handles = []
    pair.each(lambda m: handles.append(m.second[1].register_forward_hook(refuse)))
    for module in (pair.eager, pair.ours):
        with pytest.raises(KeyError, match="from a hook"):
            module(batches(5)[0])
    for handle in handles:
        handle.remove()
    pair.step(batches(5)[0])
    pair.through_engine()


def test_what_forward_stores_keeps_its_history():
    def between(net, h):
        net.kept, net.count = h, net.count + 1
        net.calls.add_(1)
        return branch(net, h)

    pair = pair_of(between)
    for i, x in enumerate(batches(5, 5, 5)):
        pair.step(x)
        eager, ours = pair.eager.kept, pair.ours.module.kept
        close(ours, eager, "the kept tensor")
        for module, kept in ((pair.eager, eager), (pair.ours, ours)):
            module.zero_grad()
            module(x)
            kept = module.kept
            kept.square().sum().backward()
        pair.compare()
        assert pair.eager.count == pair.ours.module.count == 2 * i + 2
        assert pair.eager.calls == pair.ours.module.calls
    assert len(pair.report.parts) <= 6


def test_numbers_that_change_are_no_new_parts():
    def between(net, h, scale, width):
        net.count += 1
        h = branch(net, h * scale + net.count)
        return torch.nn.functional.pad(h[:, :width] * net.scale, (0, 8 - width))

    pair = pair_of(between)
    for i, x in enumerate(batches(*[5] * 9)):
        pair.each(lambda m, i=i: setattr(m, "scale", 0.5 + i))
        pair.step(x, 1.0 + i / 10, 2 + i % 6)
    assert sum(pair.report.misses.values()) <= 8, pair.report.misses
    place = rf"{re.escape(__file__)}:\d+"
    guards = [re.fullmatch(rf"(.+) at {place}", miss) for miss in pair.report.misses]
    assert any(guards) and not any("\n" in miss or " # " in miss for miss in pair.report.misses)
    in_parts(pair)


def test_a_number_that_no_tensor_stands_for_is_a_constant():
    def between(net, h, slope):
        return torch.nn.functional.leaky_relu(branch(net, h - 0.5), slope)

    pair = pair_of(between)
    for x, slope in zip(batches(5, 5, 5, 5), (0.1, 0.2, 0.3, 0.1), strict=True):
        pair.step(x, slope)
    in_parts(pair)


class Reversed(torch.autograd.Function):
    """Its backward is not its forward's derivative."""

    @staticmethod
    def forward(ctx, x, rate):
        ctx.save_for_backward(x)
        ctx.rate = rate
        return x * 2

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return -ctx.rate * g * x, None


def test_a_function_keeps_its_backward():
    pair = pair_of(lambda net, h: Reversed.apply(branch(net, h), 3.0))
    for x in batches(5, 5, 4):
        pair.step(x)
    assert all(part.captures for part in pair.report.parts)
    assert all("Function" in f.reason for f in pair.report.fallbacks)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints(reentrant):
    def between(net, h):
        h = checkpoint(lambda t: t.tanh().exp().sin().cos(), h, use_reentrant=reentrant)
        return branch(net, h)

    pair = pair_of(between)
    for x in batches(5, 5):
        pair.step(x)
    assert pair.report.not_whole


def augmented(h):
    return h if draw() > 0.5 else h * random.uniform(1, 2)


def shuffled(h):
    order = list(range(3))
    random.shuffle(order)
    for i in order:
        h = h * (i + 1.5) - i
    return h


DRAWS = {
    "a_number": lambda net, h: h * random.random(),
    "by_another_name": lambda net, h: h * draw(),
    "a_branch": lambda net, h: h * 2 if random.random() < 0.5 else h + 1,
    "in_a_function": lambda net, h: augmented(h),
    "a_choice": lambda net, h: h * random.choice([1.0, 2.0, 3.0]),
    "a_size": lambda net, h: h + h[:, : random.randint(2, 7)].sum(1, keepdim=True),
    "an_order": lambda net, h: shuffled(h),
    "numpys": lambda net, h: h * np.random.rand(),
    "numpys_array": lambda net, h: h * torch.from_numpy(np.random.rand(8)).float(),
    "a_seed": lambda net, h: (random.seed(3), h * random.random())[1],
    "torchs": lambda net, h: branch(net, h * random.random()) + torch.rand_like(h),
}


@pytest.mark.parametrize("between", DRAWS.values(), ids=DRAWS)
def test_generators_draw_as_in_eager(between):
    """Between two parts, at its place: what comes after finds the generator as eager leaves it."""
    eager = Net(between)
    ours = ORTModule(copy.deepcopy(eager), options())
    for i, x in enumerate(batches(5, 4, 5, 5)):
        results = []
        for module in (eager, ours):
            for seed in (random.seed, np.random.seed, torch.manual_seed):
                seed(i)
            results.append((module(x), torch.tensor([random.random(), np.random.rand()])))
        for found, expected in zip(*reversed(results), strict=True):
            close(found, expected, "the output")
    assert ours.explain().parts


def test_what_torch_compile_passed_over_is_looked_at():
    """It marks the code of layers that all modules share."""
    eager, x = mlp(), torch.randn(2, 3)
    eager[1].register_forward_hook(asks)
    torch.compile(copy.deepcopy(eager), backend="eager")(x)
    ours = ORTModule(copy.deepcopy(eager), options())
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "ORTModule runs this module in parts")
        warnings.filterwarnings("error", "ORTModule runs a part")
        close(ours(x), eager(x), "the output")
    assert not ours.explain().fallbacks


def test_torch_between_parts_is_listed():
    def between(net, h):
        net.taken = [float(v) for v in h.detach().sum(0).tolist()]
        return h + eval("torch.cumsum(h, 1)", {"torch": torch, "h": h})

    pair = pair_of(between)
    for x in batches(5, 5):
        pair.step(x)
    listed = [f for f in pair.report.fallbacks if f.op == "aten.cumsum.default"]
    assert listed and listed[0].file == __file__ and "between two parts" in listed[0].reason


def test_torch_between_parts_is_an_error_where_asked_for():
    summed = Net(lambda net, h: h + eval("torch.cumsum(h, 1)", {"torch": torch, "h": h}))
    ours = ORTModule(summed, options(fallback="parts"))
    with pytest.raises(Exception, match=r"aten.cumsum.default.*between two parts.*test_parts.py"):
        ours(batches(5)[0])
    ours = ORTModule(Net(branch), options(fallback="parts"))
    ours(batches(5)[0])
    assert len(ours.explain().parts) == 2


@pytest.mark.parametrize("fallback", ["whole", "error"])
def test_a_break_is_an_error_where_asked_for(fallback):
    ours = ORTModule(Net(branch), options(fallback=fallback))
    with pytest.raises(Exception, match="data-dependent"):
        ours(batches(5)[0])


def test_an_error_leaves_no_autocast_behind():
    def between(net, h, bad):
        with torch.autocast("cpu", torch.bfloat16):
            h = branch(net, net.first[2](h))
            h = h.float() @ torch.ones(9 if bad else 8, 8)
        return h.float()

    ours = ORTModule(Net(between), options())
    x = batches(5)[0]
    ours(x, False)
    with pytest.raises(RuntimeError):
        ours(x, True)
    assert not torch.is_autocast_enabled("cpu") and torch.is_grad_enabled()
    ours(x, False)


def test_the_data_of_a_tensor():
    """Written to without autograd's knowledge, and read: no constant of a part."""

    def between(net, h):
        h = branch(net, h)
        net.calls.data.add_(h.detach().sum())
        return h * 3 + net.calls.data + h.data

    pair = pair_of(between)
    for x in batches(5, 4, 5):
        pair.step(x)
    assert not pair.report.fallbacks and len(pair.report.parts) >= 2


@pytest.mark.parametrize(
    "asks",
    [
        torch.compiler.is_compiling, torch.compiler.is_exporting, torch.jit.is_tracing,
        torch.compiler.is_dynamo_compiling, torch._dynamo.is_compiling,
    ],
)  # fmt: skip
def test_what_asks_whether_it_is_traced_gets_eagers_answer(asks):
    def between(net, h):
        net.count = [torch.compiler.is_compiling(), asks()]
        return branch(net, h) * (2.0 if asks() else 1.0)

    pair = pair_of(between)
    for x in batches(5, 5):
        pair.step(x)
        assert pair.ours.count == [False, False]
    assert pair.report.captures == 2 and len(pair.report.parts) == 2


def test_a_class_that_changes_at_every_call_runs_in_eager():
    class Rate:
        value = 0.0

    def between(net, h):
        Rate.value += 1
        return branch(net, h) * Rate.value

    pair = pair_of(between)
    for x in batches(*[5] * 8):
        Rate.value = 0.0
        first = pair.eager(x)
        Rate.value = 0.0
        close(pair.ours(x), first, "the output")
        Rate.other = x  # to be noticed
    assert pair.report.fallbacks or pair.report.not_whole


def test_parts_go_with_their_module():
    ours = ORTModule(Net(branch), options())
    ours(batches(5)[0]).sum().backward()
    module = weakref.ref(ours.module)
    parts = [weakref.ref(p.module) for p in ours._ortmodule._fall_back.parts.all]
    del ours
    gc.collect()
    assert module() is None and not any(part() for part in parts)


def test_a_copy_and_a_wrapper_within_a_wrapper():
    pair = pair_of(branch)
    pair.step(batches(5)[0])
    twin = copy.deepcopy(pair.ours)
    close(twin(batches(4)[0]), pair.eager(batches(4)[0]), "the copy's output")
    outer = ORTModule(nn.Sequential(pair.ours, nn.Linear(8, 2)), options())
    plain = nn.Sequential(pair.eager, outer.module[1])
    for x in batches(5, 4):
        close(outer(x), plain(x), "the output")
