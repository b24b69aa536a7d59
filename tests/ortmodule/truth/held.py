"""Objects whose state code of the standard library reads, so that no name tells of it."""

import collections
import enum
import functools
import os
import types

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrize

from .table import Base, Case, case

SCALE = "ORTMODULE_TRUTH_SCALE"


@case(captured=True)
def a_chain_of_dicts():
    def before(m, i):
        m.d.maps[0]["a"] = float(i)

    return Case(
        Base(lambda s, x: s.l(x) * s.d["a"], d=collections.ChainMap({"a": 1.0}, {})), before=before
    )


def holds(name, held):
    """An attribute and an item that are this at some calls, None at others; also after a cut."""

    def factory(cut=False):
        def body(s, x):
            x = s.k(x).tanh()
            if cut and x.sum() > 1e9:
                x = x * 2
            return s.l(x) * (1.0 if s.f is None else 2.0) * (1.0 if s.d["f"] is None else 3.0)

        def before(m, i):
            m.f, m.d["f"] = None if i == 1 else held, None if i == 2 else held

        return Case(Base(body, f=held, d={"f": held}), before=before)

    for kind, made in ((name, factory), (f"{name}_after_a_cut", lambda: factory(cut=True))):
        made.__name__, made.__module__ = kind, __name__
        case(captured=True, partly=made is not factory)(made)


holds("a_method_in_c", str.upper)
holds("a_slot_in_c", str.__len__)
holds("a_bound_slot_in_c", "a".__len__)
holds("an_attribute_in_c", vars(torch.Tensor.__base__)["shape"])
holds("a_member_of_slots", types.FunctionType.__closure__)
holds("a_method_that_pybind_made", vars(torch._C.Graph)["nodes"])


@case(captured=True)
def a_users_dict():
    class Settings(collections.UserDict):
        pass

    def before(m, i):
        m.d["a"] = float(i)

    return Case(Base(lambda s, x: s.l(x) * s.d["a"], d=Settings(a=1.0)), before=before)


@case(captured=True)
def a_users_list():
    def before(m, i):
        m.d[0] = float(i)

    return Case(Base(lambda s, x: s.l(x) * s.d[0], d=collections.UserList([1.0])), before=before)


@case(captured=True)
def a_value_of_an_enum():
    class Rates(enum.Enum):
        LOW = [1.0]

    def before(m, i):
        Rates.LOW.value[0] = float(i)

    return Case(Base(lambda s, x: s.l(x) * Rates.LOW.value[0]), before=before)


def chosen_of(low, high, right):
    """A member of an enum whose value is low or high, by an attribute."""

    class Kind(enum.Enum):
        LOW, HIGH = low, high

    def body(s, x):
        member = Kind.HIGH if s.high else Kind.LOW
        return s.l(x) * (2.0 if right(member.value) else 1.0)

    def before(m, i):
        m.high = i % 2 == 1

    return Case(Base(body, high=False), before=before)


@case(captured=True)
def a_class_of_an_enum():
    return chosen_of(nn.Identity, nn.Tanh, lambda value: value is nn.Tanh)


@case(captured=True)
def a_tuple_of_an_enum():
    return chosen_of((1, "a"), (2, "b"), lambda value: value[1] == "b")


@case(captured=True)
def an_attribute_of_a_member_of_an_enum():
    class Rates(enum.Enum):
        LOW = 1

    def before(m, i):
        Rates.LOW.scale = float(i)

    return Case(Base(lambda s, x: s.l(x) * Rates.LOW.scale), before=before)


@case(captured=True)
def an_attribute_of_a_metaclass():
    class Kind(type):
        rate = 1.0

        @property
        def scale(cls):
            return cls.rate

    class Settings(metaclass=Kind):
        pass

    def before(m, i):
        Kind.rate = float(i)

    return Case(Base(lambda s, x: s.l(x) * Settings.scale), before=before)


@case(captured=True)
def a_function_registered():
    @functools.singledispatch
    def scale(value, x):
        return x

    def before(m, i):
        if i:
            scale.register(float, lambda value, x: x * (value + i))

    return Case(Base(lambda s, x: scale(s.v, s.l(x)), v=1.5), before=before)


@case(captured=True)
def a_function_of_numpys_wrapped():
    @functools.wraps(np.einsum)
    def product(equation, *operands):
        return torch.einsum(equation, *operands)

    return Case(Base(lambda s, x: product("ab,cb->ac", s.l(x), x)))


@case(captured=False)
def an_array_of_objects():
    def before(m, i):
        m.a[0]["k"] = float(i)

    return Case(
        Base(lambda s, x: s.l(x) * s.a[0]["k"], a=np.array([{"k": 1.0}], dtype=object)),
        before=before,
    )


@case(captured=False)
def the_environment():
    def before(m, i):
        os.environ[SCALE] = str(i)

    return Case(Base(lambda s, x: s.l(x) * float(os.environ.get(SCALE, "9"))), before=before)


@case(captured=False)
def a_cache_of_parametrizations():
    class Symmetric(nn.Module):
        def forward(self, w):
            return w.triu() + w.triu(1).t()

    def call(model, x, i):
        with parametrize.cached():
            y = model(x)
            assert type(model.l.weight) is torch.Tensor
            return y + model.l.weight.sum()

    module = Base(lambda s, x: s.l(x))
    parametrize.register_parametrization(module.l, "weight", Symmetric())
    return Case(module, call=call)


@case(captured=True)
def weights_swapped():
    def before(m, i):
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            m.load_state_dict({k: v + i for k, v in m.state_dict().items()})
        finally:
            torch.__future__.set_swap_module_params_on_conversion(False)

    return Case(Base(lambda s, x: s.k(s.l(x))), before=before)


@case(captured=False)
def a_scripted_layer():
    layer = torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.Tanh()))
    return Case(Base(lambda s, x: s.l(x) + s.inner(x), inner=layer))


@case(captured=False)
def a_traced_layer():
    layer = torch.jit.trace(nn.Linear(3, 3), torch.ones(2, 3))
    return Case(Base(lambda s, x: s.l(x) + s.inner(x), inner=layer))
