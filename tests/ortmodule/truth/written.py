"""What forward writes: nothing of a fake run or trace may stay, nothing of eager's be missing."""

import collections
import functools
import io
import itertools
import types

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .table import Base, Case, case

COUNT = 0
CACHE: dict = {}
LAZY = None


@case(captured=False)
def counter_of_the_module():
    def body(s, x):
        s.a = s.a + 1
        return s.l(x) * s.a

    return Case(Base(body, a=0))


@case(captured=False)
def counter_in_a_dict():
    def body(s, x):
        s.a["k"] += 1
        return s.l(x) * s.a["k"]

    return Case(Base(body, a={"k": 0}))


@case(captured=False)
def a_list_appended():
    def body(s, x):
        s.a.append(x.shape[0])
        return s.l(x) * len(s.a)

    return Case(Base(body, a=[]))


@case(captured=True, partly=True)  # once it holds ones alone, nothing changes any more
def a_deque_appended():
    def body(s, x):
        s.a.append(1.0)
        return s.l(x) * sum(s.a)

    return Case(Base(body, a=collections.deque(maxlen=2)))


@case(captured=False)
def a_set_added():
    def body(s, x):
        s.a.add(len(s.a))
        return s.l(x) * len(s.a)

    return Case(Base(body, a=set()))


@case(captured=False)
def an_array_written():
    def body(s, x):
        s.a[0] += 1
        return s.l(x) * float(s.a[0])

    a = np.zeros(2, np.float32)
    return Case(Base(body, a=a), state=a.tolist)


@case(captured=False)
def a_bytearray_written():
    def body(s, x):
        s.a[0] += 1
        return s.l(x) * s.a[0]

    a = bytearray(1)
    return Case(Base(body, a=a), state=lambda: bytes(a))


@case(captured=False)
def a_global_counter():
    global COUNT
    COUNT = 0

    def body(s, x):
        global COUNT
        COUNT += 1
        return s.l(x) * COUNT

    return Case(Base(body), state=lambda: COUNT)


@case(captured=False)
def a_closures_counter():
    count = 0

    def body(s, x):
        nonlocal count
        count += 1
        return s.l(x) * count

    return Case(Base(body), state=lambda: count)


@case(captured=False)
def a_closures_list_of_tensors():
    seen = []

    def body(s, x):
        h = s.l(x)
        seen.append(h)
        return h

    return Case(Base(body), state=lambda: [t.detach().clone() for t in seen])


@case(captured=False)
def a_default_written():
    def helper(x, seen=[]):  # noqa: B006
        seen.append(1)
        return x * len(seen)

    return Case(Base(lambda s, x: helper(s.l(x))), state=lambda: list(helper.__defaults__[0]))


@case(captured=False)
def an_attribute_of_a_function():
    def helper(x):
        helper.calls += 1
        return x * helper.calls

    helper.calls = 0
    return Case(Base(lambda s, x: helper(s.l(x))), state=lambda: helper.calls)


@case(captured=False)
def a_class_counter():
    class Held(Base):
        count = 0

    def body(s, x):
        Held.count += 1
        return s.l(x) * Held.count

    return Case(Held(body), state=lambda: Held.count)


@case(captured=False)
def a_slot_written():
    class Slotted:
        __slots__ = ("v",)

    a = Slotted()
    a.v = 0

    def body(s, x):
        a.v += 1
        return s.l(x) * a.v

    return Case(Base(body), state=lambda: a.v)


@case(captured=False)
def an_object_written():
    a = types.SimpleNamespace(v=0)

    def body(s, x):
        a.v += 1
        return s.l(x) * a.v

    return Case(Base(body), state=lambda: a.v)


@case(captured=False)
def an_object_returned_by_a_helper_written():
    a = types.SimpleNamespace(v=0)

    def registry():
        return a

    def body(s, x):
        registry().v += 1
        return s.l(x) * registry().v

    return Case(Base(body), state=lambda: a.v)


@case(captured=False)
def an_iterator_advanced():
    a = itertools.count(1)
    return Case(Base(lambda s, x: s.l(x) * next(a)))


@case(captured=False)
def a_text_written():
    a = io.StringIO()

    def body(s, x):
        a.write("x")
        return s.l(x) * len(a.getvalue())

    return Case(Base(body), state=a.getvalue)


@case(captured=False)
def an_attribute_of_an_input():
    def body(s, x):
        x.mark = 1
        return s.l(x)

    kept = []

    def call(model, x, i):
        kept[:] = [x]
        return model(x)

    return Case(Base(body), call=call, state=lambda: getattr(kept[0], "mark", None))


@case(captured=False)
def an_attribute_of_a_parameter():
    def body(s, x):
        s.l.weight.mark = 1
        return s.l(x)

    module = Base(body)
    return Case(module, state=lambda: getattr(module.l.weight, "mark", None))


@case(captured=False)
def a_tensor_kept():
    def body(s, x):
        s.last = s.l(x)
        return s.last * 2

    return Case(Base(body))


@case(captured=False)
def a_tensor_kept_detached_in_a_dict():
    def body(s, x):
        h = s.l(x)
        s.kept["h"] = h.detach()
        return h

    return Case(Base(body, kept={}))


@case(captured=False)
def printed():
    def body(s, x):
        print("", end="")
        return s.l(x)

    return Case(Base(body))


@case(captured=True)
def a_cache_of_a_function():
    @functools.lru_cache
    def table(n):
        return torch.arange(float(n))

    return Case(Base(lambda s, x: s.l(x) * table(3)), state=lambda: table(3))


@case(captured=True)
def a_cache_of_sizes():
    @functools.lru_cache
    def table(n):
        return torch.arange(float(n))[:, None]

    return Case(Base(lambda s, x: s.l(x) * table(x.shape[0])), state=lambda: table(5))


@case(captured=True)
def a_global_cache():
    CACHE.clear()

    def body(s, x):
        if x.shape[0] not in CACHE:
            CACHE[x.shape[0]] = torch.ones(3)
        return s.l(x) * CACHE[x.shape[0]]

    return Case(Base(body), state=lambda: dict(CACHE))


@case(captured=True)
def a_lazy_global():
    global LAZY
    LAZY = None

    def body(s, x):
        global LAZY
        if LAZY is None:
            LAZY = torch.full((3,), 2.0)
        return s.l(x) * LAZY

    return Case(Base(body), state=lambda: LAZY)


@case(captured=True)
def a_class_cache():
    class Held(Base):
        table = None

    def body(s, x):
        if Held.table is None:
            Held.table = torch.full((3,), 2.0)
        return s.l(x) * Held.table

    return Case(Held(body), state=lambda: Held.table)


@case(captured=True)
def a_cached_property():
    class Held(Base):
        @functools.cached_property
        def table(self):
            return torch.full((3,), 2.0)

    return Case(Held(lambda s, x: s.l(x) * s.table))


@case(captured=False)
def a_cache_also_where_refused():
    @functools.lru_cache
    def table(n):
        return torch.arange(float(n))

    def body(s, x):
        return s.l(x) * table(3) * (1.0 if x.sum() > 1e9 else 2.0)

    return Case(Base(body), state=lambda: table(3))


@case(captured=True)
def a_buffer_in_place():
    def body(s, x):
        s.n.add_(1)
        return s.l(x) * s.n

    return Case(Base(body))


@case(captured=True)
def a_buffer_anew():
    def body(s, x):
        s.n = s.n + 1
        return s.l(x) * s.n

    return Case(Base(body))


@case(captured=True)
def a_buffer_anew_and_the_old_one():
    def body(s, x):
        old, s.n = s.n, s.n + 1
        return s.l(x), old

    kept = []
    module = Base(body)

    def call(model, x, i):
        kept.append(module.n)
        return model(x)

    return Case(module, call=call, state=lambda: list(kept))


@case(captured=True)
def a_buffer_held_by_another():
    def body(s, x):
        s.n.mul_(2).add_(1)
        return s.l(x) * s.n

    module = Base(body)
    module.alias = module.n
    return Case(module, state=lambda: module.alias)


@case(captured=True)
def batch_norm():
    return Case(Base(lambda s, x: s.b(s.l(x)), b=nn.BatchNorm1d(3, eps=0.5)))


@case(captured=False)
def a_parameter_in_place():
    def body(s, x):
        with torch.no_grad():
            s.l.weight.mul_(0.5)
        return s.l(x)

    return Case(Base(body))


@case(captured=False)
def a_parameter_assigned():
    def body(s, x):
        s.extra = nn.Parameter(torch.ones(3))
        return s.l(x) * s.extra

    return Case(Base(body))


@case(captured=True)
def an_input_in_place():
    def call(model, x, i):
        y = x.detach() * 1
        return model(y), y

    def body(s, x):
        x.mul_(2)
        return s.l(x)

    return Case(Base(body), call=call)


@case(captured=False)
def the_generator_seeded():
    def body(s, x):
        torch.manual_seed(3)
        return s.l(x) * torch.rand(3)

    return Case(Base(body))


@case(captured=True)
def a_buffer_without_gradients_that_nothing_reads():
    def body(s, x):
        with torch.no_grad():
            s.n.add_(1)
        return s.l(x)

    return Case(Base(body))


@case(captured=True)
def an_input_without_gradients_that_nothing_reads():
    def body(s, x):
        with torch.no_grad():
            x.add_(1)
        return s.l.weight * 2

    return Case(Base(body), call=lambda model, x, i: model(x.detach()))


@case(captured=False)
def a_parameter_without_gradients_that_nothing_reads():
    def body(s, x):
        with torch.no_grad():
            s.k.weight.mul_(0.9).add_(s.l.weight, alpha=0.1)
        return s.l(x)

    return Case(Base(body))


@case(captured=True)
def a_mean_of_what_has_a_gradient_without_one():
    def body(s, x):
        scale, slots = torch.ones(3), torch.zeros(3)
        with torch.no_grad():
            s.n.mul_(0.9).add_(s.k(x).mean(), alpha=0.1)
            scale.copy_(s.k(x).mean(0))
            slots[1:] = s.k(x)[0, 1:]
            own = s.k(x).sum(0)
            own.mul_(2)
        return s.l(x) * scale - s.n + slots * own

    return Case(Base(body))


@case(captured=True)
def what_returns_its_argument_without_gradients():
    def body(s, x):
        h = s.l(x)
        with torch.no_grad():
            same = h.contiguous(), h.float(), h.type_as(x), F.dropout(h, 0.5, False), h.view(5, 3)
        return sum(same[1:], same[0] * 2)

    return Case(Base(body))


@case(captured=False)
def a_detached_tensor_that_gets_a_gradient():
    def body(s, x):
        z = torch.zeros(3)
        z.detach().add_(s.k(x).sum(0))
        return s.l(x) * z

    return Case(Base(body))


def _batch_norm(name, change=lambda module, i: None, **options):
    def factory():
        found = Base(lambda s, x: s.norm(F.linear(x.sin(), s.l.weight)).exp() * s.k(x))
        found.norm = nn.BatchNorm1d(3, momentum=None, **options)
        return Case(found, before=change)

    factory.__name__, factory.__module__ = name, __name__
    case(captured=True)(factory)


_batch_norm("cumulative_average")
_batch_norm("cumulative_average_of_no_weights", affine=False)
_batch_norm("cumulative_average_of_none", track_running_stats=False)
_batch_norm("cumulative_average_in_eval", lambda module, i: module.train(i != 1))
_batch_norm(
    "cumulative_average_at_times",
    lambda module, i: setattr(module.norm, "momentum", None if i else 0.3),
)
