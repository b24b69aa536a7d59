"""What the standard library reads of a user's objects, where no code of the user's names it."""

import abc
import collections
import copy
import ctypes
import dataclasses
import functools
import hashlib
import inspect
import json
import logging
import multiprocessing
import operator
import os
import pathlib
import pickle
import string
import struct
import sys
import types
import typing
import warnings
import zlib
from warnings import warn

import numpy as np
import torch

from .table import Base, Case, case

LOGGER = logging.getLogger("truth")
ENVIRONMENT = os.environ


@dataclasses.dataclass
class Sized:
    a: float = 1.0
    b: float = 2.0


def space(**attributes):
    return types.SimpleNamespace(**attributes)


def reads(name, read, held, change, captured=True):
    """A case: forward multiplies by read(module); change(held object, i) comes ahead of call i."""

    def factory():
        made = held()
        return Case(
            Base(lambda s, x: s.l(x) * read(s.o), o=made), before=lambda m, i: change(made, i)
        )

    factory.__name__, factory.__module__ = name, __name__
    case(captured)(factory)


def set_a(o, i):
    o.a = float(i + 1)


reads("as_dict", lambda o: sum(dataclasses.asdict(o).values()), Sized, set_a)
reads("as_tuple", lambda o: sum(dataclasses.astuple(o)), Sized, set_a)
reads("replaced", lambda o: dataclasses.replace(o, b=3.0).a, Sized, set_a)
reads("fields", lambda o: sum(getattr(o, f.name) for f in dataclasses.fields(o)), Sized, set_a)
reads("equal_to_another", lambda o: 2.0 if o == Sized(2.0) else 1.0, Sized, set_a)
reads("its_text", lambda o: len(repr(o)), Sized, lambda o, i: setattr(o, "a", 10.0**i))
reads("text_of_a_namespace", lambda o: len(repr(o)), lambda: space(a=1),
      lambda o, i: setattr(o, "a", 10**i))  # fmt: skip
reads("namespaces_compared", lambda o: 2.0 if o == space(a=2.0) else 1.0, lambda: space(a=1.0),
      set_a)  # fmt: skip
reads("formatted", lambda o: float("{.a}".format(o)), lambda: space(a=1.0), set_a)  # noqa: UP032
reads("formatted_by_name", lambda o: float("{o.a}".format_map({"o": o})), Sized, set_a)
reads("a_template", lambda o: float(string.Template("$a").substitute(o)), lambda: {"a": 1},
      lambda o, i: o.update(a=i))  # fmt: skip
reads("json_of_a_dict", lambda o: len(json.dumps(o)), lambda: {"a": 1},
      lambda o, i: o.update(a=10**i))  # fmt: skip
reads("pickled", lambda o: len(pickle.dumps(o)), Sized, lambda o, i: setattr(o, "a", "x" * i),
      captured=False)  # fmt: skip
reads("members", lambda o: dict(inspect.getmembers(o))["a"], Sized, set_a)
reads("getattribute", lambda o: object.__getattribute__(o, "a"), Sized, set_a)
reads("a_reduced_path", lambda o: functools.reduce(getattr, ("p", "a"), o),
      lambda: space(p=Sized()), lambda o, i: set_a(o.p, i))  # fmt: skip
reads("mapped_over_names", lambda o: [*map(getattr, [o], ["a"])][0], Sized, set_a)
reads("a_logger", lambda o: o.level, lambda: LOGGER, lambda o, i: o.setLevel(10 * (i + 1)))
reads("whether_a_logger_tells", lambda o: 2.0 if o.isEnabledFor(10) else 1.0, lambda: LOGGER,
      lambda o, i: o.setLevel(10 if i == 1 else 40))  # fmt: skip
reads("a_shared_value", lambda o: o.value, lambda: multiprocessing.Value("d", 1.0),
      lambda o, i: setattr(o, "value", float(i)), captured=False)  # fmt: skip
reads("a_value_of_c", lambda o: o.value, lambda: ctypes.c_double(1.0),
      lambda o, i: setattr(o, "value", float(i)))  # fmt: skip
reads("a_path", lambda o: 2.0 if o.exists() else 1.0, lambda: pathlib.Path("/no/such/path"),
      lambda o, i: None, captured=False)  # fmt: skip
reads("a_counter", lambda o: o.most_common(1)[0][1], lambda: collections.Counter(a=1),
      lambda o, i: o.update(a=1))  # fmt: skip
reads("a_chain_of_maps", lambda o: o["a"], lambda: collections.ChainMap({}, {"a": 1.0}),
      lambda o, i: o.maps[1].update(a=float(i)))  # fmt: skip
reads("numpys_settings", lambda o: len(np.geterr()["divide"]), Sized,
      lambda o, i: np.seterr(divide="ignore" if i == 1 else "warn"), captured=False)  # fmt: skip
reads("an_environment_by_another_name", lambda o: float(ENVIRONMENT.get("TRUTH", 0)), Sized,
      lambda o, i: os.environ.update(TRUTH=str(i)))  # fmt: skip
reads("getenv", lambda o: float(os.getenv("TRUTH", "0")), Sized,
      lambda o, i: os.environ.update(TRUTH=str(i)), captured=False)  # fmt: skip
reads("filters_of_warnings", lambda o: 2.0 if warnings.filters[0][4] == 7 else 1.0, Sized,
      lambda o, i: warnings.filterwarnings("ignore", "none", lineno=7 + (i != 1)),
      captured=False)  # fmt: skip


@case(captured=True)
def what_is_written_in_c():
    """The same at every call, of modules that the user's code imports from."""

    def body(s, x):
        if x.shape[0] > 1000:
            warn("many")
        scale = zlib.crc32(struct.pack("f", 1.0)) % 7 + len(hashlib.md5(b"a").digest())
        return s.l(x) * scale

    return Case(Base(body))


class Positional:
    __match_args__ = ("a",)

    def __init__(self):
        self.a = 1.0


def matched(o):
    match o:
        case Positional(k):
            return k
    return 0.0


def matched_by_name(o):
    match o:
        case Positional(a=2.0):
            return 5.0
    return 1.0


reads("matched", matched, Positional, set_a)
reads("matched_by_name", matched_by_name, Positional, set_a)


class Copied:
    def __init__(self):
        self.hidden = [1.0]

    def __float__(self):
        return self.hidden[0]


reads("a_copy", lambda o: float(copy.copy(o)), Copied, lambda o, i: setattr(o, "hidden", [i + 1.0]))
reads("a_deep_copy", lambda o: float(copy.deepcopy(o)), Copied,
      lambda o, i: o.hidden.__setitem__(0, i + 1.0))  # fmt: skip


class WithProperty:
    value = property(operator.attrgetter("hidden"))

    def __init__(self):
        self.hidden = 1.0


reads("a_property_of_an_attrgetter", lambda o: o.value, WithProperty,
      lambda o, i: setattr(o, "hidden", float(i)))  # fmt: skip


@typing.runtime_checkable
class Marked(typing.Protocol):
    marked: int


class Plain:
    pass


def mark(o, i):
    vars(o).pop("marked", None)
    if i == 1:
        o.marked = 1


reads("a_protocol", lambda o: 2.0 if isinstance(o, Marked) else 1.0, Plain, mark)


@case(captured=True)
def a_class_registered_later():
    class Kind(abc.ABC):  # noqa: B024
        pass

    made = Plain()

    def before(m, i):
        if i == 1:
            Kind.register(Plain)

    return Case(Base(lambda s, x: s.l(x) * (2.0 if isinstance(made, Kind) else 1.0)), before=before)


@case(captured=True)
def held_getters():
    def body(s, x):
        return s.l(x) * s.get(s) * s.call(s.o)

    getters = {"get": operator.attrgetter("hidden"), "call": operator.methodcaller("__float__")}
    module = Base(body, hidden=1.0, o=Copied(), **getters)

    def before(m, i):
        m.hidden, m.o.hidden = float(i + 1), [i + 2.0]

    return Case(module, before=before)


@case(captured=True)
def a_key_of_a_sort():
    items = [space(a=1.0, v=2.0), space(a=0.5, v=3.0)]
    key = operator.attrgetter("a")
    return Case(
        Base(lambda s, x: s.l(x) * sorted(s.items_, key=s.key)[0].v, items_=items, key=key),
        before=lambda m, i: setattr(items[1], "a", float(i)),
    )


@case(captured=True)
def a_made_name_beside_a_text():
    def body(s, x):
        return s.l(x) * getattr(s.o, s.name) * {"k": 2.0}["k"]

    return Case(Base(body, o=Sized(), name="a"), before=lambda m, i: set_a(m.o, i))


@case(captured=True)
def keywords_of_a_partial():
    f = functools.partial(lambda x, k=1.0: x * k, k=1.0)
    return Case(
        Base(lambda s, x: s.f(s.l(x)), f=f), before=lambda m, i: f.keywords.update(k=float(i))
    )


@case(captured=True)
def a_partial_set_anew():
    f = functools.partial(lambda k, x: x * k, 1.0)
    function = f.func
    return Case(
        Base(lambda s, x: s.f(s.l(x)), f=f),
        before=lambda m, i: f.__setstate__((function, (float(i),), {}, {})),
    )


@case(captured=True)
def a_partial_method():
    class Module(Base):
        def _scaled(self, x, k):
            return x * k

        scaled = functools.partialmethod(_scaled, k=1.0)

    keywords = vars(Module)["scaled"].keywords
    return Case(
        Module(lambda s, x: s.scaled(s.l(x))), before=lambda m, i: keywords.update(k=float(i))
    )


@case(captured=False)
def a_cache_cleared():
    source = {"v": 1.0}
    f = functools.lru_cache(lambda: source["v"])

    def before(m, i):
        source["v"] = float(i + 1)
        if i == 2:
            f.cache_clear()

    return Case(Base(lambda s, x: s.l(x) * s.f(), f=f), before=before)


@case(captured=True)
def the_class_of_a_submodule():
    class First(torch.nn.Linear):
        pass

    class Second(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    module = Base(lambda s, x: s.l(x))
    module.l = First(3, 3)

    def before(m, i):
        m.l.__class__ = Second if i == 1 else First

    return Case(module, before=before)


@case(captured=True)
def the_class_of_the_module():
    class First(Base):
        scale = 1.0

    class Second(Base):
        scale = 3.0

        def forward(self, x):
            return super().forward(x) * 2

    def before(m, i):
        m.__class__ = Second if i == 1 else First

    return Case(First(lambda s, x: s.l(x) * s.scale), before=before)


@case(captured=True)
def the_class_of_an_object():
    class First:
        def scale(self):
            return 1.0

    class Second:
        def scale(self):
            return 3.0

    made = First()

    def before(m, i):
        made.__class__ = Second if i == 1 else First

    return Case(Base(lambda s, x: s.l(x) * s.o.scale(), o=made), before=before)


@case(captured=True)
def the_bases_of_a_class():
    class First:
        def scale(self):
            return 1.0

    class Second:
        def scale(self):
            return 3.0

    class Own(First):
        pass

    def before(m, i):
        Own.__bases__ = (Second,) if i == 1 else (First,)

    return Case(Base(lambda s, x: s.l(x) * s.o.scale(), o=Own()), before=before)


def scaled(x):
    return x


def give_another_dict(holder, **changed):
    object.__setattr__(holder, "__dict__", {**vars(holder), **changed})


def another_dict(read, find, **attributes):
    """Whose dict of attributes is replaced by another one, and then by one of the same items."""

    def factory():
        module = Base(lambda s, x: s.l(x) * read(s), **{k: v() for k, v in attributes.items()})
        vars(find(module))["v"] = 1.0
        return Case(module, before=lambda m, i: give_another_dict(find(m), v=float(i + 1)))

    return factory


for label, factory in {
    "of_an_object": another_dict(lambda s: s.o.v, lambda m: m.o, o=lambda: Sized()),
    "of_the_module": another_dict(lambda s: s.v, lambda m: m),
    "of_a_submodule": another_dict(lambda s: s.l.v, lambda m: m.l),
    "of_a_function": another_dict(lambda s: scaled.v, lambda m: scaled),
    "of_a_parameter": another_dict(lambda s: s.l.weight.v, lambda m: m.l.weight),
}.items():
    factory.__name__, factory.__module__ = f"another_dict_{label}", __name__
    case(captured=True)(factory)


class Stored:
    """A descriptor whose value is kept outside of the object."""

    values: typing.ClassVar[dict] = {"v": 1.0}

    def __get__(self, instance, owner=None):
        return self.values["v"]


@case(captured=True)
def a_descriptor():
    class Module(Base):
        scale = Stored()

    return Case(
        Module(lambda s, x: s.l(x) * s.scale),
        before=lambda m, i: Stored.values.update(v=float(i + 1)),
    )


FIRST, SECOND = types.ModuleType("truth_settings"), types.ModuleType("truth_settings")
FIRST.v, SECOND.v = 1.0, 7.0


def imports(s, x):
    import truth_settings

    return s.l(x) * truth_settings.v


def cut_before(body):
    def forward(s, x):
        y = s.k(x)
        if y.sum() > 1e9:
            y = y * 2
        return body(s, x) + y

    return forward


class Inherited:
    v = 1.0


class Inherits(Inherited):
    pass


class TrueAbove:
    def __init__(self):
        self.v = 0.0

    def __bool__(self):
        return self.v > 1.5


@case(captured=True)
def another_module_is_imported():
    def before(m, i):
        sys.modules["truth_settings"] = SECOND if i == 1 else FIRST

    return Case(Base(imports), before=before)


@case(captured=False)
def another_module_is_imported_after_a_cut():
    def before(m, i):
        sys.modules["truth_settings"] = SECOND if i == 1 else FIRST

    return Case(Base(cut_before(imports)), before=before)


@case(captured=True)
def a_module_on_an_attribute():
    settings = types.ModuleType("settings")
    settings.v = 1.0
    return Case(
        Base(lambda s, x: s.l(x) * s.settings.v, settings=settings),
        before=lambda m, i: setattr(settings, "v", float(i + 1)),
    )


@case(captured=False)
def an_attribute_of_a_base_after_a_cut():
    return Case(
        Base(cut_before(lambda s, x: s.l(x) * Inherits.v)),
        before=lambda m, i: setattr(Inherited, "v", float(i + 1)),
    )


@case(captured=False)
def the_truth_of_an_object_after_a_cut():
    return Case(
        Base(cut_before(lambda s, x: s.l(x) * (2.0 if s.o else 1.0)), o=TrueAbove()),
        before=lambda m, i: setattr(m.o, "v", float(i)),
    )


@case(captured=True)
def the_truth_of_an_object():
    return Case(
        Base(lambda s, x: s.l(x) * (2.0 if not s.o else 1.0), o=TrueAbove()),
        before=lambda m, i: setattr(m.o, "v", float(i)),
    )
