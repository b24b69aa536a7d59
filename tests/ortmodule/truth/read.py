"""What forward reads: each changes between the calls."""

import collections
import contextvars
import math
import random
import random as chance
import threading
import types
import weakref
from random import gauss as drawn_by_python

import numpy as np
import torch
from numpy.random import normal
from numpy.random import uniform as drawn_by_numpy
from torch import nn

from .table import Base, Case, case

VARIABLE = contextvars.ContextVar("scale", default=1.0)
LOCAL = threading.local()


@case(captured=True)
def attribute():
    return Case(
        Base(lambda s, x: s.l(x) * s.a, a=1.0), before=lambda m, i: setattr(m, "a", 1.0 + i)
    )


@case(captured=True)
def attribute_added():
    def body(s, x):
        return s.l(x) * getattr(s, "late", 1.0)

    return Case(Base(body), before=lambda m, i: setattr(m, "late", 3.0) if i == 1 else None)


@case(captured=True)
def attribute_removed():
    def body(s, x):
        return s.l(x) * (s.a if hasattr(s, "a") else 5.0)

    return Case(Base(body, a=2.0), before=lambda m, i: vars(m).pop("a", None) if i == 1 else None)


@case(captured=True)
def attribute_by_made_name():
    def body(s, x):
        return s.l(x) * sum(getattr(s, f"a{i}") for i in range(2))

    return Case(Base(body, a0=1.0, a1=2.0), before=lambda m, i: setattr(m, "a1", 1.0 + i))


@case(captured=True)
def items_of_vars():
    return Case(
        Base(lambda s, x: s.l(x) * vars(s)["a"], a=1.0),
        before=lambda m, i: setattr(m, "a", float(i)),
    )


@case(captured=True)
def a_list():
    return Case(
        Base(lambda s, x: s.l(x) * sum(s.a), a=[1.0]), before=lambda m, i: m.a.append(float(i))
    )


@case(captured=True)
def a_dict():
    return Case(
        Base(lambda s, x: s.l(x) * s.a["k"], a={"k": 1.0}),
        before=lambda m, i: m.a.update(k=float(i)),
    )


@case(captured=True)
def a_set():
    return Case(Base(lambda s, x: s.l(x) * len(s.a), a={1}), before=lambda m, i: m.a.add(i + 5))


@case(captured=True)
def a_deque():
    return Case(
        Base(lambda s, x: s.l(x) * s.a[-1], a=collections.deque([1.0])),
        before=lambda m, i: m.a.append(float(i)),
    )


@case(captured=True)
def a_default_dict():
    a = collections.defaultdict(float, {"k": 1.0})
    return Case(Base(lambda s, x: s.l(x) * s.a["k"], a=a), before=lambda m, i: a.update(k=float(i)))


@case(captured=True)
def an_ordered_dict_moved():
    a = collections.OrderedDict(p=1.0, q=2.0)
    return Case(
        Base(lambda s, x: s.l(x) * next(iter(s.a.values())), a=a),
        before=lambda m, i: a.move_to_end("p") if i == 1 else None,
    )


@case(captured=True)
def a_named_tuple():
    Pair = collections.namedtuple("Pair", "p q")
    return Case(
        Base(lambda s, x: s.l(x) * s.a.p, a=Pair(1.0, 2.0)),
        before=lambda m, i: setattr(m, "a", Pair(float(i), 2.0)),
    )


@case(captured=True)
def an_array():
    a = np.ones(2, np.float32)
    return Case(
        Base(lambda s, x: s.l(x) * float(s.a[0]), a=a), before=lambda m, i: a.__setitem__(0, i)
    )


@case(captured=True)
def a_bytearray():
    a = bytearray(b"\x01")
    return Case(
        Base(lambda s, x: s.l(x) * s.a[0], a=a), before=lambda m, i: a.__setitem__(0, i + 1)
    )


@case(captured=True)
def a_mapping_proxy():
    a = {"k": 1.0}
    proxy = types.MappingProxyType(a)
    return Case(
        Base(lambda s, x: s.l(x) * s.a["k"], a=proxy), before=lambda m, i: a.update(k=float(i))
    )


class Slotted:
    __slots__ = ("a",)

    def __init__(self):
        self.a = 1.0


@case(captured=True)
def slots():
    a = Slotted()
    return Case(
        Base(lambda s, x: s.l(x) * s.c.a, c=a), before=lambda m, i: setattr(a, "a", float(i))
    )


@case(captured=True)
def nested_objects():
    a = types.SimpleNamespace(b=types.SimpleNamespace(c=[1.0]))
    return Case(
        Base(lambda s, x: s.l(x) * s.a.b.c[0], a=a),
        before=lambda m, i: a.b.c.__setitem__(0, float(i)),
    )


@case(captured=False)
def a_weak_reference():
    class Held:
        v = 1.0

    a = Held()
    return Case(
        Base(lambda s, x: s.l(x) * s.a().v, a=weakref.ref(a)),
        before=lambda m, i: setattr(a, "v", float(i)),
    )


@case(captured=False)
def a_weak_reference_that_dies():
    held = [nn.Linear(3, 3)]
    return Case(
        Base(lambda s, x: s.l(x) * (1 if s.a() is None else 2), a=weakref.ref(held[0])),
        before=lambda m, i: held.clear() if i == 1 else None,
    )


@case(captured=False)
def weak_collections_that_shrink():
    held = [nn.Linear(3, 3), nn.Linear(3, 3)]
    named = weakref.WeakValueDictionary({"a": held[0]})
    return Case(
        Base(lambda s, x: s.l(x) * (len(s.a) + len(s.b)), a=weakref.WeakSet(held), b=named),
        before=lambda m, i: held and held.pop(0),
    )


@case(captured=False)
def a_proxy():
    class Held:
        v = 1.0

    a = Held()
    return Case(
        Base(lambda s, x: s.l(x) * s.a.v, a=weakref.proxy(a)),
        before=lambda m, i: setattr(a, "v", float(i)),
    )


@case(captured=True)
def a_context_variable():
    return Case(
        Base(lambda s, x: s.l(x) * VARIABLE.get()), before=lambda m, i: VARIABLE.set(float(i))
    )


@case(captured=True)
def a_thread_local():
    LOCAL.scale = 1.0
    return Case(
        Base(lambda s, x: s.l(x) * LOCAL.scale),
        before=lambda m, i: setattr(LOCAL, "scale", float(i)),
    )


@case(captured=True)
def an_optimizers_rate():
    module = Base(lambda s, x: s.l(x) * s.box[0].param_groups[0]["lr"])
    optimizer = torch.optim.SGD(module.parameters(), 1.0)
    module.box = [optimizer]

    def before(m, i):
        optimizer.param_groups[0]["lr"] = float(i)

    return Case(module, before=before)


@case(captured=False)
def a_gradient():
    def body(s, x):
        return s.l(x) * (1.0 if s.l.weight.grad is None else 2.0)

    return Case(Base(body))


@case(captured=False)
def a_generator_of_python():
    rng = random.Random(0)
    return Case(Base(lambda s, x: s.l(x) * s.rng.random(), rng=rng), state=rng.random)


@case(captured=False)
def the_global_generator_of_python():
    random.seed(0)
    return Case(Base(lambda s, x: s.l(x) * random.random()), state=random.random)


@case(captured=False)
def the_generator_of_numpy():
    np.random.seed(0)
    return Case(Base(lambda s, x: s.l(x) * np.random.rand()), state=np.random.rand)


@case(captured=False)
def a_function_of_numpys_generator():
    np.random.seed(0)
    return Case(Base(lambda s, x: s.l(x) * normal()), state=np.random.rand)


@case(captured=False)
def a_function_of_numpys_generator_by_another_name():
    np.random.seed(0)
    return Case(Base(lambda s, x: s.l(x) * drawn_by_numpy()), state=np.random.rand)


@case(captured=False)
def a_function_of_pythons_generator_by_another_name():
    random.seed(0)
    return Case(Base(lambda s, x: s.l(x) * drawn_by_python(0, 1)), state=random.random)


@case(captured=False)
def a_generators_module_by_another_name():
    random.seed(0)
    return Case(Base(lambda s, x: s.l(x) * chance.gauss(0, 1)), state=random.random)


@case(captured=False)
def a_held_method_of_a_numpy_generator():
    rng = np.random.default_rng(0)
    return Case(Base(lambda s, x: s.l(x) * s.draw(), draw=rng.normal), state=rng.random)


@case(captured=False)
def a_numpy_generator_of_the_old_kind():
    rng = np.random.RandomState(0)
    return Case(Base(lambda s, x: s.l(x) * s.rng.rand(), rng=rng), state=rng.rand)


@case(captured=False)
def an_iterator():
    a = iter([1.0, 2.0, 3.0, 4.0])
    return Case(Base(lambda s, x: s.l(x) * next(s.a), a=a))


@case(captured=False)
def a_generator():
    def count():
        yield from (1.0, 2.0, 3.0, 4.0)

    a = count()
    return Case(Base(lambda s, x: s.l(x) * next(a)))


@case(captured=True)
def an_unread_list():
    def before(m, i):
        m.log.append(i)

    return Case(Base(lambda s, x: s.l(x), log=[]), before=before)


@case(captured=True)
def a_module_in_a_list():
    module = Base(lambda s, x: s.more[0](s.l(x)), more=[nn.Linear(3, 3)])
    return Case(module, state=lambda: [p.grad for p in module.more[0].parameters()])


@case(captured=True)
def a_parameter_in_a_list():
    module = Base(lambda s, x: s.l(x) * s.more[0], more=[nn.Parameter(torch.ones(3))])
    return Case(module, state=lambda: module.more[0].grad)


@case(captured=True)
def a_module_in_a_closure():
    other = nn.Linear(3, 3)
    module = Base(lambda s, x: other(s.l(x)))
    return Case(module, state=lambda: [p.grad for p in other.parameters()])


@case(captured=True)
def a_module_swapped():
    def before(m, i):
        if i == 1:
            m.l = nn.Linear(3, 3, bias=False)

    return Case(Base(lambda s, x: s.l(x)), before=before)


@case(captured=True)
def a_parameter_replaced():
    def before(m, i):
        m.l.weight = nn.Parameter(torch.full((3, 3), float(i)))

    return Case(Base(lambda s, x: s.l(x)), before=before)


@case(captured=True)
def a_parameter_tied_later():
    def before(m, i):
        if i == 1:
            m.k.weight = m.l.weight

    return Case(Base(lambda s, x: s.k(s.l(x))), before=before)


@case(captured=True)
def a_buffer_replaced():
    def before(m, i):
        m.n = torch.tensor(float(i))

    return Case(Base(lambda s, x: s.l(x) + s.n), before=before)


@case(captured=True)
def training_mode():
    return Case(
        Base(lambda s, x: s.l(x) * (2.0 if s.training else 1.0)),
        before=lambda m, i: m.train(i != 1),
    )


@case(captured=True)
def requires_grad_of_a_parameter():
    def before(m, i):
        m.l.weight.requires_grad_(i != 1)

    return Case(
        Base(lambda s, x: s.l(x) * (2.0 if s.l.weight.requires_grad else 1.0)), before=before
    )


@case(captured=True)
def grad_mode():
    def call(model, x, i):
        with torch.set_grad_enabled(i != 1):
            return model(x)

    return Case(Base(lambda s, x: s.l(x) * (2.0 if torch.is_grad_enabled() else 1.0)), call=call)


@case(captured=True)
def deterministic_algorithms():
    def body(s, x):
        on = torch.are_deterministic_algorithms_enabled()
        warns = torch.is_deterministic_algorithms_warn_only_enabled()
        return s.l(x) * (1.0 + on + 2.0 * warns)

    def call(model, x, i):
        torch.use_deterministic_algorithms(i > 0, warn_only=i == 2)
        try:
            return model(x)
        finally:
            torch.use_deterministic_algorithms(False)

    return Case(Base(body), call=call)


@case(captured=True)
def whether_new_memory_is_filled():
    def body(s, x):
        return s.l(x) * (2.0 if torch.utils.deterministic.fill_uninitialized_memory else 1.0)

    def call(model, x, i):
        torch.utils.deterministic.fill_uninitialized_memory = i != 1
        try:
            return model(x)
        finally:
            torch.utils.deterministic.fill_uninitialized_memory = True

    return Case(Base(body), call=call)


@case(captured=True)
def default_dtype():
    def body(s, x):
        return s.l(x) * torch.ones(3, dtype=torch.get_default_dtype()).float()

    return Case(Base(body))


@case(captured=True)
def constants_of_math():
    return Case(Base(lambda s, x: s.l(x) * math.pi + math.sqrt(x.shape[0])))
