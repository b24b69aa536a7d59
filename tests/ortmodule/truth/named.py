"""What forward's code names outside of the module: globals, closures, helpers, classes."""

import functools
import types

import torch
import torch.nn.functional as F
from torch import nn

from .table import Base, Case, case

SCALE = 1.0
TABLE = [1.0, 2.0]
CONFIG = types.SimpleNamespace(rate=1.0, deep={"a": [1.0]})
NAMESPACE = types.ModuleType("settings_of_a_user")


def assign(name, values):
    """Sets a global of this file ahead of each call."""

    def before(module, i):
        globals()[name] = values[i]

    return before


@case(captured=True)
def a_global():
    return Case(Base(lambda s, x: s.l(x) * SCALE), before=assign("SCALE", [1.0, 2.0, 3.0]))


@case(captured=True)
def a_global_list():
    def before(m, i):
        TABLE[0] = float(i)

    return Case(Base(lambda s, x: s.l(x) * TABLE[0]), before=before)


@case(captured=True)
def a_global_object():
    def before(m, i):
        CONFIG.rate, CONFIG.deep["a"][0] = float(i), i + 2.0

    return Case(Base(lambda s, x: s.l(x) * CONFIG.rate + CONFIG.deep["a"][0]), before=before)


@case(captured=True)
def a_global_of_a_module():
    NAMESPACE.scale = 1.0
    return Case(
        Base(lambda s, x: s.l(x) * NAMESPACE.scale),
        before=lambda m, i: setattr(NAMESPACE, "scale", float(i)),
    )


@case(captured=True)
def a_global_tensor():
    global WEIGHT
    WEIGHT = torch.ones(3)
    return Case(
        Base(lambda s, x: s.l(x) * WEIGHT),
        before=lambda m, i: globals().update(WEIGHT=torch.full((3,), float(i))),
    )


@case(captured=True)
def a_global_tensor_written():
    weight = torch.ones(3)
    return Case(Base(lambda s, x: s.l(x) * weight), before=lambda m, i: weight.fill_(float(i)))


@case(captured=True)
def a_closure():
    scale = 1.0

    def body(s, x):
        return s.l(x) * scale

    def before(m, i):
        nonlocal scale
        scale = float(i)

    return Case(Base(body), before=before)


@case(captured=True)
def a_helpers_closure():
    def make(v):
        def helper(x):
            return x * v

        return helper

    helper = make(1.0)

    def before(m, i):
        helper.__closure__[0].cell_contents = float(i)

    return Case(Base(lambda s, x: helper(s.l(x))), before=before)


@case(captured=True)
def a_helpers_default():
    def helper(x, scale=1.0):
        return x * scale

    def before(m, i):
        helper.__defaults__ = (float(i),)

    return Case(Base(lambda s, x: helper(s.l(x))), before=before)


@case(captured=True)
def a_helpers_keyword_default():
    def helper(x, *, scale=1.0):
        return x * scale

    def before(m, i):
        helper.__kwdefaults__ = {"scale": float(i)}

    return Case(Base(lambda s, x: helper(s.l(x))), before=before)


@case(captured=True)
def a_helpers_code():
    def helper(x):
        return x * 2

    def other(x):
        return x * 3

    def before(m, i):
        if i == 1:
            helper.__code__ = other.__code__

    return Case(Base(lambda s, x: helper(s.l(x))), before=before)


@case(captured=True)
def a_helpers_attribute():
    def helper(x):
        return x * helper.scale

    return Case(
        Base(lambda s, x: helper(s.l(x))), before=lambda m, i: setattr(helper, "scale", float(i))
    )


@case(captured=True)
def a_decorated_helper():
    calls = {"scale": 1.0}

    def decorate(f):
        @functools.wraps(f)
        def inner(x):
            return f(x) * calls["scale"]

        return inner

    @decorate
    def helper(x):
        return x + 1

    return Case(Base(lambda s, x: helper(s.l(x))), before=lambda m, i: calls.update(scale=float(i)))


@case(captured=True)
def a_partial():
    return Case(
        Base(lambda s, x: s.f(s.l(x)), f=functools.partial(torch.mul, other=2.0)),
        before=lambda m, i: setattr(m, "f", functools.partial(torch.mul, other=float(i))),
    )


@case(captured=True)
def a_bound_method():
    class Scaler:
        def __init__(self):
            self.v = 1.0

        def scale(self, x):
            return x * self.v

    scaler = Scaler()
    return Case(
        Base(lambda s, x: s.f(s.l(x)), f=scaler.scale),
        before=lambda m, i: setattr(scaler, "v", float(i)),
    )


@case(captured=True)
def a_callable_object():
    class Scaler:
        v = 1.0

        def __call__(self, x):
            return x * self.v

    scaler = Scaler()
    return Case(
        Base(lambda s, x: s.f(s.l(x)), f=scaler), before=lambda m, i: setattr(scaler, "v", float(i))
    )


@case(captured=True)
def a_class_attribute():
    class Held(Base):
        scale = 1.0

    return Case(
        Held(lambda s, x: s.l(x) * s.scale), before=lambda m, i: setattr(Held, "scale", float(i))
    )


@case(captured=True)
def a_base_class_attribute():
    class Parent:
        scale = 1.0

    class Held(Base, Parent):
        pass

    return Case(
        Held(lambda s, x: s.l(x) * s.scale), before=lambda m, i: setattr(Parent, "scale", float(i))
    )


@case(captured=True)
def an_attribute_hides_the_class():
    class Held(Base):
        scale = 1.0

    return Case(
        Held(lambda s, x: s.l(x) * s.scale),
        before=lambda m, i: setattr(m, "scale", 4.0) if i == 1 else None,
    )


@case(captured=True)
def a_class_list():
    class Held(Base):
        scales = [1.0]

    def before(m, i):
        Held.scales[0] = float(i)

    return Case(Held(lambda s, x: s.l(x) * s.scales[0]), before=before)


@case(captured=True)
def another_class_attribute():
    class Settings:
        rate = 1.0

    return Case(
        Base(lambda s, x: s.l(x) * Settings.rate),
        before=lambda m, i: setattr(Settings, "rate", float(i)),
    )


@case(captured=True)
def a_patched_method():
    class Held(Base):
        def scale(self):
            return 1.0

    def before(m, i):
        if i:
            Held.scale = lambda self: float(i + 1)

    return Case(Held(lambda s, x: s.l(x) * s.scale()), before=before)


@case(captured=True)
def a_patched_function_of_torch():
    original = F.relu

    def before(m, i):
        F.relu = (lambda x: x * 7) if i == 1 else original

    return Case(Base(lambda s, x: F.relu(s.l(x))), before=before)


@case(captured=True)
def a_patched_layer():
    class Layer(nn.Linear):
        pass

    def before(m, i):
        if i == 1:
            Layer.forward = lambda self, x: x * 2

    return Case(Base(lambda s, x: s.m(x), m=Layer(3, 3)), before=before)


@case(captured=True)
def a_property():
    class Held(Base):
        @property
        def scale(self):
            return self.table["k"] * SCALE

    def before(m, i):
        m.table["k"] = float(i)

    return Case(Held(lambda s, x: s.l(x) * s.scale, table={"k": 1.0}), before=before)


@case(captured=True)
def a_descriptor():
    class Scaled:
        value = 1.0

        def __get__(self, owner, of):
            return self.value

    class Held(Base):
        scale = Scaled()

    return Case(
        Held(lambda s, x: s.l(x) * s.scale),
        before=lambda m, i: setattr(Scaled, "value", float(i)),
    )
