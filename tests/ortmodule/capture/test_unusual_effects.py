"""What forward does besides computing, in ways that no name in its code tells: attributes and
gradients of tensors, messages, queues, modules of the standard library. Each call does it as in
eager, and no value of a trace stays."""

import array
import asyncio
import ctypes
import io
import itertools
import json
import logging
import queue
import string
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from ortmodule import ORTModule

SIZES = (5, 5, 3, 5, 2)


class Effect(nn.Module):
    """body(module, x) before a Linear; `seen` tells what it has left."""

    def __init__(self, body, seen):
        super().__init__()
        self.linear, self.body, self.seen = nn.Linear(4, 4), body, seen
        self.register_buffer("table", torch.ones(4))
        self.held = torch.ones(4, requires_grad=True)
        self.linear.weight.count, self.linear.weight.sizes, self.table.by_name = 0, [], {}
        self.queue = queue.SimpleQueue()
        self.put = self.queue.put

    def forward(self, x):
        factor = self.body(self, x)
        y = self.linear(x) * self.held
        return y if factor is None else y * factor


def counts(m, x):
    m.linear.weight.count += 1
    return m.linear.weight.count


def deletes(m, x):
    if hasattr(m.linear.weight, "count"):
        del m.linear.weight.count


def attribute_of_input(m, x):
    x.size_seen = x.size(0)


def no_gradient(m, x):
    m.linear.weight.grad = None


def no_gradients(m, x):
    for parameter in m.parameters():
        parameter.grad = None


def gradient(m, x):
    m.linear.weight.grad = torch.ones(4, 4)


def gradient_of_held(m, x):
    m.held.grad = torch.ones(4)


def gradient_of_buffer(m, x):
    m.table.grad = torch.ones(4)


def gradient_of_input(m, x):
    x.grad = torch.ones_like(x)


def of_a_library(m, x):
    string.kept = x.size(0)


EFFECTS = {
    "counter of a parameter": (counts, lambda m, x: m.linear.weight.count),
    "size on a parameter": (
        lambda m, x: setattr(m.linear.weight, "count", x.size(0)),
        lambda m, x: m.linear.weight.count,
    ),
    "attribute taken away": (deletes, lambda m, x: hasattr(m.linear.weight, "count")),
    "list on a parameter": (
        lambda m, x: m.linear.weight.sizes.append(x.size(0)),
        lambda m, x: list(m.linear.weight.sizes),
    ),
    "dict on a buffer": (
        lambda m, x: m.table.by_name.update(size=x.size(0)),
        lambda m, x: dict(m.table.by_name),
    ),
    "attribute of an input": (attribute_of_input, lambda m, x: x.size_seen),
    "no gradient": (no_gradient, lambda m, x: None),
    "no gradients": (no_gradients, lambda m, x: None),
    "a gradient": (gradient, lambda m, x: None),
    "a gradient of a held tensor": (gradient_of_held, lambda m, x: m.held.grad),
    "a gradient of a buffer": (gradient_of_buffer, lambda m, x: m.table.grad),
    "a gradient of an input": (gradient_of_input, lambda m, x: x.grad),
    "an attribute of a library": (of_a_library, lambda m, x: string.kept),
    "a queue's method": (lambda m, x: m.put(x.size(0)), lambda m, x: m.queue.get()),
}


def observed(wrap, body, seen):
    torch.manual_seed(0)
    model = wrap(Effect(body, seen))
    found = []
    for size in SIZES:
        x = torch.ones(size, 4, requires_grad=True)
        y = model(x)
        y.sum().backward()
        gradients = [None if t.grad is None else t.grad.clone() for t in (*model.parameters(), x)]
        found.append((y, gradients, seen(model, x)))
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("effect", EFFECTS)
def test_an_effect_comes_at_each_call(effect):
    theirs, mine = (observed(wrap, *EFFECTS[effect]) for wrap in (lambda m: m, ORTModule))
    for expected, got in zip(theirs, mine, strict=True):
        torch.testing.assert_close(got[:2], expected[:2])
        assert type(got[2]) is type(expected[2])
        same = torch.equal if isinstance(expected[2], torch.Tensor) else lambda a, b: a == b
        assert same(got[2], expected[2])


def test_what_an_attribute_of_a_parameter_holds_is_guarded():
    model = ORTModule(Effect(lambda m, x: float(len(m.linear.weight.sizes)), None))
    for _ in range(3):
        model.linear.weight.sizes.append(1)
        x = torch.ones(2, 4)
        torch.testing.assert_close(model(x), model.linear(x) * len(model.linear.weight.sizes))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("text", [lambda x: f"rows {x.size(0)}", lambda x: "called"])
def test_each_message_is_logged_once(text):
    logger = logging.getLogger("tests.of.a.user")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    told = []
    found = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append(record.getMessage())
    logger.handlers = [handler]
    for wrap in (lambda m: m, ORTModule):
        told.clear()
        model = wrap(Effect(lambda m, x: logger.info(text(x)), None))
        for size in SIZES:
            model(torch.ones(size, 4))
        found.append(list(told))
    logger.handlers = []
    assert "forward logs a message" in str(model.explain())
    assert found[0] == found[1]
    assert len(found[0]) == len(SIZES)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_error_that_no_exception_is_comes_at_its_call(kind):
    class Raising(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.calls = nn.Linear(4, 4), 0

        def forward(self, x):
            self.calls += 1
            if self.calls == 3:
                raise kind("the third")
            return self.linear(x)

    model = ORTModule(Raising())
    for call in range(1, 6):
        if call == 3:
            with pytest.raises(kind):
                model(torch.ones(2, 4))
        else:
            model(torch.ones(2, 4))
        assert model.calls == call


class Awaited(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    async def forward(self, x):
        y = self.linear(x)
        await asyncio.sleep(0)
        return y if y.sum() > 1e9 else y.relu()


class Awaiting(nn.Module):
    """In parts, as it branches on data."""

    def __init__(self):
        super().__init__()
        self.inner, self.linear = Awaited(), nn.Linear(4, 4)

    def forward(self, x):
        y = self.linear(x)
        return y if y.sum() > 1e9 else asyncio.run(self.inner(y))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_forward_that_is_awaited():
    for module, run in ((Awaited(), asyncio.run), (Awaiting(), lambda result: result)):
        model = ORTModule(module)
        for size in SIZES:
            x = torch.randn(size, 4)
            torch.testing.assert_close(run(model(x)), run(module(x)))


WRITTEN = {
    "a text": (io.StringIO, lambda kept: kept.write("k"), lambda kept: kept.getvalue()),
    "json in a text": (
        io.StringIO, lambda kept: json.dump(1, kept), lambda kept: kept.getvalue(),
    ),
    "an array": (lambda: array.array("i"), lambda kept: kept.append(1), len),
    "a number of C": (
        lambda: ctypes.c_int(0),
        lambda kept: setattr(kept, "value", kept.value + 1),
        lambda kept: kept.value,
    ),
    "an array by its method": (
        lambda: np.zeros(1).__setitem__, lambda kept: kept(0, kept.__self__[0] + 1),
        lambda kept: float(kept.__self__[0]),
    ),
    "a count": (lambda: itertools.count().__next__, lambda kept: kept(), lambda kept: kept()),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", WRITTEN)
def test_an_object_of_c_is_written_once_a_call(kind):
    make, write, read = WRITTEN[kind]

    class Keeping(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.kept = nn.Linear(4, 4), make()

        def forward(self, x):
            write(self.kept)
            return self.linear(x)

    found = []
    for wrap in (lambda m: m, ORTModule):
        model = wrap(Keeping())
        seen = []
        for size in SIZES:
            model(torch.ones(size, 4))
            seen.append(read(model.kept))
        found.append(seen)
    assert found[0] == found[1]


class Moving(nn.Module):
    """step(module, x) gives a factor, and moves something on."""

    def __init__(self, step):
        super().__init__()
        self.linear, self.step = nn.Linear(4, 4), step
        self.batches = iter(DataLoader(list(range(8))))
        self.told = []
        self.one, self.other = torch.ones(4), torch.zeros(4)

    def forward(self, x):
        return self.linear(x) * self.step(self, x)


def a_thread(m, x):
    thread = threading.Thread(target=lambda: m.told.append(x.shape[0]))
    thread.start()
    thread.join()
    return len(m.told)


def tensors_swapped(m, x):
    torch.utils.swap_tensors(m.one, m.other)
    return m.one


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("step", [a_thread, tensors_swapped, lambda m, x: next(m.batches)])
def test_what_moves_on_moves_once_a_call(step):
    found = []
    for wrap in (lambda m: m, ORTModule):
        torch.manual_seed(0)
        model = wrap(Moving(step))
        with torch.no_grad():  # a tensor that autograd holds cannot be swapped
            found.append([model(torch.ones(size, 4)) for size in SIZES])
    torch.testing.assert_close(*found)


class Scaled:
    factor = 3

    def of(self, y):
        return y * self.factor


class Patching(nn.Module):
    """In parts, as it branches on data."""

    def __init__(self, patch):
        super().__init__()
        self.linear, self.scaled, self.patch = nn.Linear(4, 4), Scaled(), patch

    def forward(self, x):
        return x if x.sum() > 1e9 else self.patch(self, x)


def of_the_class(m, x):
    m.scaled.factor = 5
    y = m.scaled.of(m.linear(x))
    del m.scaled.factor
    return y


def forward_of_a_layer(m, x):
    old = m.linear.forward
    m.linear.forward = lambda x: old(x) * 4
    y = m.linear(x)
    del m.linear.forward
    return y


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("patch", [of_the_class, forward_of_a_layer])
def test_an_attribute_of_the_class_is_set_for_a_while(patch):
    module = Patching(patch)
    model = ORTModule(module)
    for size in SIZES:
        x = torch.ones(size, 4)
        torch.testing.assert_close(model(x), module(x))
    assert "of an object, whose class may have that too" in str(model.explain())


def names(m, x):
    return m.linear(x).rename("rows", "columns").sum("rows").rename(None)


def moved_to_the_end(m, x):
    m._modules["linear"] = m._modules.pop("linear")
    return m.linear(x) * (1.0 + list(m._modules).index("linear"))


def sets_a_gradient(m, x):
    m.linear.weight.grad = None
    return m.linear(x)


def keeps_on_a_tensor(m, x):
    m.linear.weight.kept.append(1)
    return m.linear(x)


def writes_to_held(m, x):
    m.held.mul_(2)
    return m.linear(x) * m.held


def of_two_histories(m, x):
    return m.linear(x) * m.held * m.detached


async def awaited(m, x):
    return m.linear(x)


def marks(m, x):
    """The name of a method as a text that sets nothing."""
    with torch.profiler.record_function("forward"):
        y = m.linear(x)
    return y if y.sum() > 1e9 else y.relu()


class Telling(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.linear, self.other = nn.Linear(4, 4), nn.Linear(4, 4)
        self.linear.weight.kept = []
        self.held, self.body = self.other.weight[0] * 2, body
        self.detached = self.held.detach()

    def forward(self, x):
        return self.body(self, x)


REASONS = {
    names: "forward names the axes of tensors",
    sets_a_gradient: "forward sets a gradient (grad)",
    keeps_on_a_tensor: "forward writes to an attribute of a tensor: ",
    writes_to_held: "forward writes in place to a tensor that it was not given",
    of_two_histories: "forward reads one memory as tensors of several histories",
    awaited: "forward returns what is to be awaited",
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("body", REASONS)
def test_a_refusal_says_why(body):
    torch.manual_seed(0)
    model = ORTModule(Telling(body))
    result = model(torch.ones(3, 4))
    if body is awaited:
        result = asyncio.run(result)
    assert isinstance(result, torch.Tensor)
    assert REASONS[body] in str(model.explain())


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("body", [names, moved_to_the_end, marks])
def test_results_are_eagers(body):
    module = Telling(body)
    model = ORTModule(module)
    twin = Telling(body)
    twin.load_state_dict(module.state_dict())
    for size in SIZES:
        x = torch.ones(size, 4)
        torch.testing.assert_close(model(x), twin(x))
        assert list(model._modules) == list(twin._modules) or body is not moved_to_the_end
    if body is marks:
        assert model.explain().captures


def test_new_memory_is_filled_under_deterministic_algorithms():
    class Making(nn.Module):
        def forward(self, x):
            kinds = [torch.float32, torch.int32, torch.bool]
            return [torch.empty(2, dtype=kind) for kind in kinds] + [torch.empty_like(x) + x]

    model = ORTModule(Making())
    for on in (True, False, True):
        torch.use_deterministic_algorithms(on)
        try:
            found, expected = model(torch.ones(3)), Making()(torch.ones(3))
        finally:
            torch.use_deterministic_algorithms(False)
        if on:
            torch.testing.assert_close(found, expected, equal_nan=True)
