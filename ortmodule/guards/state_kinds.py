"""Kinds of Python objects that hold state: how each is read, compared and put back.

state_walk.py walks what a module's forward reaches with them; an object of no kind here is one
whose state cannot be seen, and forward may not read it.
"""

import _abc
import array
import collections
import contextvars
import ctypes
import dataclasses
import datetime
import enum
import fractions
import functools
import operator
import pathlib
import pickle
import random
import re
import threading
import types
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from ..calls import tree
from ..calls.containers import has_attributes, slots_of

# Equal when type and value are.
SCALARS = (
    type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout,
    torch.memory_format, enum.Enum, range, slice, np.dtype, fractions.Fraction,
    pathlib.PurePath, datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, uuid.UUID,
    np.generic,
)  # fmt: skip
# Methods and attributes of classes that are written in C, as the classes have them.
IN_C = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType,
)  # fmt: skip
# Without state of their own: only which of them it is matters.
_IDENTITIES = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.MethodWrapperType, types.ClassMethodDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.CodeType, types.GenericAlias, types.UnionType,
    types.EllipsisType, types.NotImplementedType, re.Pattern, property, staticmethod, classmethod,
    np.ufunc, torch.Generator, functools.cached_property, operator.attrgetter, operator.itemgetter,
    operator.methodcaller, functools.singledispatchmethod,
    type(collections.namedtuple("_", "a").a),
    *{type(np.sum)} - {types.FunctionType},  # functions of numpy's, from numpy 1.25 on
    torch.utils.hooks.RemovableHandle,  # the hooks are watched where they are set
    torch.distributed.ProcessGroup,  # its ranks are the same for its life
)  # fmt: skip
# What a member of an enum holds besides attributes that somebody gave it.
OF_ENUMS = {"_value_", "_name_", "__objclass__", "_sort_order_", "_inverted_"}
# Compared whole at every call, so no larger than this.
_MOST_BYTES = 1 << 20
# No module has this class by name.
_OF_PYBIND = "builtins.instancemethod"
# Objects of these modules' classes hold nothing that forward reads.
_OPAQUE = (
    "logging", "_thread", "concurrent.", "asyncio.", "typing", "inspect", "_abc", "ortmodule.",
    "torch._ops", "torch._C", "torch.jit", "torch.utils.data", "torch.cuda",
    "multiprocessing.context", "multiprocessing.synchronize", "multiprocessing.process",
    "multiprocessing.queues", "multiprocessing.pool", "multiprocessing.connection",
    "torch.backends", "torch.torch_version", "torch.fx", "torch.library", "importlib", "_frozen",
    "nanobind",
)  # fmt: skip
# To look at what they hold is to hold it, and what forward asks is whether anybody does.
WEAK = (
    weakref.ref, weakref.ProxyType, weakref.CallableProxyType, weakref.WeakValueDictionary,
    weakref.WeakKeyDictionary, weakref.WeakSet, weakref.finalize,
)  # fmt: skip
# A function of theirs, bound or built in, draws.
GENERATORS = (random.Random, np.random.RandomState, np.random.Generator)
MISSING = object()
# Attributes, in no dict, of objects that are written in C: by kind of object.
MEMBERS = {functools.partial: ("func", "args", "keywords")}
_OF_CTYPES = (ctypes._SimpleCData, ctypes.Array, ctypes.Structure, ctypes.Union)
LRU = type(functools.lru_cache(lambda: None))


@dataclasses.dataclass(frozen=True, slots=True)
class StateKind:
    """How objects of one kind are read: `items` gives (key, value) pairs, `put` takes them back.

    `put` is None where they cannot be put back. `attributes`: the keys are attribute names, which
    matter only where code names them. `changes`: what `items` gives may differ from call to call
    although nobody replaced the object; False for what is immutable but holds others.
    """

    items: Callable[[Any], list[tuple[Any, Any]]]
    put: Callable[[Any, list[tuple[Any, Any]]], None] | None = None
    attributes: bool = False
    changes: bool = True


def kind_of(value: Any) -> StateKind | None:
    """The kind of an object that holds state; None for one that holds none, or none we can see."""
    of = type(value)
    found = _KINDS.get(of)
    if found is None:
        found = next((kind for base, kind in _FAMILIES if isinstance(value, base)), None)
    opaque = isinstance(value, Iterator) and _is_opaque(of)  # as a DataLoader's, which moves on
    if found is None and has_attributes(value) and not opaque:
        found = OBJECT
    return found


def is_plain(value: Any) -> bool:
    """Whether all that matters of an object is which one it is, or its value."""
    of = type(value)
    if isinstance(value, enum.Enum):
        held = value._value_ if isinstance(value._value_, tuple) else (value._value_,)
        return vars(value).keys() <= OF_ENUMS and all(isinstance(v, SCALARS) for v in held)
    if of is object or isinstance(value, (*SCALARS, *_IDENTITIES, type)):
        return True
    if of in _KINDS or any(isinstance(value, base) for base, _ in _FAMILIES):
        return False
    if isinstance(getattr(of, "__members__", None), dict) and hasattr(of, "__int__"):
        return True  # pybind11's enums
    if is_of_pybind(value):
        return True
    return _is_opaque(of) and not isinstance(value, (torch.nn.Module, Iterator))


def stays(member: enum.Enum) -> bool:
    """Whether nothing that it holds changes unseen; what a class holds is looked at."""
    is_class = isinstance(member.value, type) and vars(member).keys() <= OF_ENUMS
    return is_class or is_plain(member)


def _is_opaque(of: type) -> bool:
    return of.__module__.startswith(_OPAQUE)


def is_of_pybind(value: Any) -> bool:
    """Whether it is a function in C that pybind11 has made a method of."""
    return f"{type(value).__module__}.{type(value).__qualname__}" == _OF_PYBIND


def same(before: Any, now: Any) -> bool:
    """Whether one may stand for the other: the same object, or an equal value."""
    if before is now:
        return True
    if type(before) is not type(now):
        return False
    if isinstance(before, SCALARS):
        return tree.Const(before) == tree.Const(now)
    if isinstance(before, types.MethodType):  # built anew by each access
        return before.__func__ is now.__func__ and before.__self__ is now.__self__
    if isinstance(before, functools.partial):
        return all(
            len(a) == len(b) and all(map(same, a, b))
            for a, b in zip(_parts_of(before), _parts_of(now), strict=True)
        )
    return isinstance(before, Frozen) and before == now


def same_plain(before: list, now: list) -> bool:
    """Whether two lists hold the same values, which have no state."""
    return len(before) == len(now) and all(
        isinstance(a, SCALARS) and same(a, b) for a, b in zip(before, now, strict=True)
    )


def _parts_of(value: functools.partial) -> list[list]:
    return [[value.func], list(value.args), list(value.keywords), list(value.keywords.values())]


class Frozen:
    """The content of an object that has no items: compared by value."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other):
        a, b = self.value, other.value
        if isinstance(a, np.ndarray):
            return (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()
        return repr(a) == repr(b) if isinstance(a, dict) else bool(a == b)

    def __hash__(self):
        return 0

    def __repr__(self):
        value = self.value.tolist() if isinstance(self.value, np.ndarray) else self.value
        return "a state" if isinstance(value, (tuple, dict)) else repr(value)[:80]


class TooLarge(Exception):
    """An array is too large to be compared at every call."""


def _frozen(read: Callable[[Any], Any], write: Callable[[Any, Any], None] | None) -> StateKind:
    put = write and (lambda value, items: write(value, items[0][1].value))
    return StateKind(lambda value: [("content", Frozen(read(value)))], put)


def _copy_of_array(value: np.ndarray) -> np.ndarray:
    if value.dtype.hasobject:
        raise TooLarge("an array of objects, which no copy of it holds")
    if value.nbytes > _MOST_BYTES:
        raise TooLarge(f"an array of {value.nbytes} bytes, too many to compare at every call")
    return value.copy()


def _write_ctypes(value: Any, content: bytes) -> None:
    ctypes.memmove(ctypes.addressof(value), content, len(content))


def _write_bytes(value: array.array, content: bytes) -> None:
    del value[:]
    value.frombytes(content)


def _write_array(value: np.ndarray, content: np.ndarray) -> None:
    if value.flags.writeable:
        value[...] = content


def _of_dict(value: dict) -> list[tuple[Any, Any]]:
    of = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
    return list(of.items(value))


def _put_dict(value: dict, items: list) -> None:
    of = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
    of.clear(value)
    for key, item in items:
        of.__setitem__(value, key, item)


def _of_sequence(value: Any) -> list[tuple[Any, Any]]:
    return list(enumerate(value))


def _put_list(value: list, items: list) -> None:
    list.__setitem__(value, slice(None), [item for _, item in items])


def _put_deque(value: collections.deque, items: list) -> None:
    value.clear()
    value.extend(item for _, item in items)


def _of_set(value: Any) -> list[tuple[Any, Any]]:
    return [(item, item) for item in value]


def _put_set(value: set, items: list) -> None:
    set.clear(value)
    set.update(value, (item for _, item in items))


def _of_partial(value: functools.partial) -> list[tuple[Any, Any]]:
    return [(name, getattr(value, name)) for name in MEMBERS[functools.partial]]


def _of_method(value: types.MethodType) -> list[tuple[Any, Any]]:
    return [("__self__", value.__self__), ("__func__", value.__func__)]


def _of_function(value: types.FunctionType) -> list[tuple[Any, Any]]:
    return [
        ("__code__", value.__code__),
        ("__defaults__", value.__defaults__),
        ("__kwdefaults__", value.__kwdefaults__),
    ]


def content_of(value: types.CellType) -> Any:
    """MISSING where a cell is empty."""
    try:
        return value.cell_contents
    except ValueError:
        return MISSING


def _of_cell(value: types.CellType) -> list[tuple[Any, Any]]:
    content = content_of(value)
    return [] if content is MISSING else [("content", content)]


def _put_cell(value: types.CellType, items: list) -> None:
    if items:
        value.cell_contents = items[0][1]
    elif _of_cell(value):
        del value.cell_contents


def _of_object(value: Any) -> list[tuple[Any, Any]]:
    state = getattr(value, "__dict__", None)
    items = list(state.items()) if isinstance(state, dict) else []
    for name in slots_of(value):
        found = getattr(value, name, MISSING)
        if found is not MISSING:
            items.append((name, found))
    return items


def _put_object(value: Any, items: list) -> None:
    state, slots = getattr(value, "__dict__", None), slots_of(value)
    if isinstance(state, dict):
        _put_dict(state, [(k, v) for k, v in items if k not in slots])
    kept = dict(items)
    for name in slots:
        if name in kept:
            object.__setattr__(value, name, kept[name])
        elif hasattr(value, name):
            object.__delattr__(value, name)


def _of_class(value: type) -> list[tuple[Any, Any]]:
    return [(k, v) for k, v in vars(value).items() if k not in ("__dict__", "__weakref__")]


def _put_class(value: type, items: list) -> None:
    kept = dict(items)
    for name, now in _of_class(value):
        if name not in kept:
            type.__delattr__(value, name)
        elif kept[name] is not now:
            type.__setattr__(value, name, kept[name])
    for name in kept.keys() - vars(value).keys():
        type.__setattr__(value, name, kept[name])


def _of_bases(value: type) -> list[tuple[Any, Any]]:
    return [("__bases__", value.__bases__)]


def _of_registry(value: type) -> list[tuple[Any, Any]]:
    """The classes that are instances of an abstract one by its register()."""
    registered = frozenset(reference() for reference in _abc._get_dump(value)[0])
    return [("registry", Frozen(registered))]


class _CacheState(Frozen):
    """Of a functools.lru_cache: the same as long as nobody has it keep more or clears it, which
    counts from 0 again. That it is asked changes nothing."""

    def __eq__(self, now):
        a, b = self.value, now.value
        return (a.misses, a.currsize) == (b.misses, b.currsize) and a.hits <= b.hits

    __hash__ = Frozen.__hash__


def _of_cache(value: Any) -> list[tuple[Any, Any]]:
    return [("content", _CacheState(value.cache_info()))]


def _of_variable(value: contextvars.ContextVar) -> list[tuple[Any, Any]]:
    return [("value", value.get(None))]


def _bytes_of(value: Any) -> bytes:
    return bytes(memoryview(value))


# A function that runs: what stands for its arguments.
PARTS = StateKind(_of_function)
OBJECT = StateKind(_of_object, _put_object, attributes=True)
CLASS = StateKind(_of_class, _put_class, attributes=True)
CACHE = StateKind(_of_cache)
BASES = StateKind(_of_bases)
REGISTRY = StateKind(_of_registry)
NAMESPACE = StateKind(lambda value: list(vars(value).items()), None, attributes=True)
_DICT = StateKind(_of_dict, _put_dict)
_SEQUENCE = StateKind(_of_sequence, changes=False)

# By exact type first, then the first family that the object belongs to.
_KINDS: dict[type, StateKind] = {
    dict: _DICT,
    list: StateKind(_of_sequence, _put_list),
    tuple: _SEQUENCE,
    set: StateKind(_of_set, _put_set),
    types.FunctionType: PARTS,
    types.MethodType: StateKind(_of_method, changes=False),
    types.CellType: StateKind(_of_cell, _put_cell),
    types.ModuleType: NAMESPACE,
    **{type(view({})): StateKind(_of_sequence) for view in (dict.keys, dict.values, dict.items)},
    types.MappingProxyType: StateKind(lambda value: list(value.items())),
    functools.partial: StateKind(_of_partial),
    # Whoever compares or prints it reads all.
    types.SimpleNamespace: StateKind(_of_object, _put_object),
    random.Random: _frozen(random.Random.getstate, random.Random.setstate),
    np.random.Generator: _frozen(
        lambda g: g.bit_generator.state, lambda g, s: setattr(g.bit_generator, "state", s)
    ),
    np.random.RandomState: _frozen(
        lambda g: (pickle.dumps(g.get_state(legacy=False)),),
        lambda g, state: g.set_state(pickle.loads(state[0])),
    ),
    contextvars.ContextVar: StateKind(_of_variable),
}
_FAMILIES: list[tuple[type, StateKind]] = [
    (dict, _DICT),
    (list, _KINDS[list]),
    (tuple, _SEQUENCE),
    (set, _KINDS[set]),
    (frozenset, StateKind(_of_set, changes=False)),
    (collections.deque, StateKind(_of_sequence, _put_deque)),
    (bytearray, _frozen(bytes, lambda value, content: value.__setitem__(slice(None), content))),
    (array.array, _frozen(lambda v: v.tobytes(), _write_bytes)),
    (np.ndarray, _frozen(_copy_of_array, _write_array)),
    (random.Random, _KINDS[random.Random]),
    (threading.local, StateKind(_of_object, _put_object, attributes=True)),
    (torch.optim.Optimizer, OBJECT),
    (types.SimpleNamespace, OBJECT),
    *((of, _frozen(_bytes_of, _write_ctypes)) for of in _OF_CTYPES),
]
