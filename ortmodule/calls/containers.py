"""Kinds of containers: what is in one, and how another of the same is made. tree.py flattens by it.

What is in a container of the user's is read, and put back, without calling code of the user's.
"""

import collections
import dataclasses
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from .exact import exact

# A larger array is no constant that calls are told apart by.
_MOST_BYTES = 1 << 16
_IMMUTABLE_TYPE = 1 << 8  # of a class's flags: written in C, with state of its own


class Attribute(NamedTuple):
    """The key of an item that is an attribute: of an object, or of a dict or a list that has some
    beside its items."""

    name: str


class Content(NamedTuple):
    """What is in a container. `keys` of `children`, none of a sequence's; `extra`: what else it
    takes to make one, hashable."""

    keys: tuple
    children: Sequence
    extra: tuple = ()


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Container:
    """A kind of containers. `content`: None of one that could not be made anew.

    What somebody may write to is made empty (of its class and `extra`) and then filled, so that it
    may hold itself; anything else is built at once.
    """

    content: Callable[[Any], Content | None]
    empty: Callable[[type, tuple], Any] | None = None
    fill: Callable[[Any, Content], None] | None = None
    build: Callable[[type, Content], Any] | None = None


def kind_of(value: Any) -> Container | None:
    """None of what is no container, or none that is known."""
    of = type(value)
    found = _KINDS.get(of)
    if found is not None:
        return found
    if isinstance(value, tuple):
        return _NAMEDTUPLE if hasattr(of, "_fields") else _tuple_of(of)
    if not isinstance(of.__new__, types.BuiltinFunctionType) or hasattr(of, "__del__"):
        return None
    if isinstance(value, (dict, list)):
        return _DICT if isinstance(value, dict) else _LIST
    is_object = has_attributes(value) or isinstance(value, types.SimpleNamespace)
    return _OBJECT if is_object and not isinstance(value, nn.Module) else None


def has_attributes(value: Any) -> bool:
    """Whether it is an object of a Python class, with a __dict__ or __slots__."""
    bases = type(value).__mro__[:-1]
    if any(base.__flags__ & _IMMUTABLE_TYPE for base in bases):
        return False
    return isinstance(getattr(value, "__dict__", None), dict) or any(
        "__slots__" in vars(base) for base in bases
    )


def slots_of(value: Any) -> list[str]:
    """The names of an object's slots."""
    names = []
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name.startswith("__") and not name.endswith("__"):
                name = f"_{base.__name__.lstrip('_')}{name}"
            names.append(name)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _tuple_of(of: type) -> Container | None:
    known = of is torch.Size or of.__module__ == "torch.return_types"
    return _TUPLE if known else None


def _of_namedtuple(value: tuple) -> Content | None:
    return None if getattr(value, "__dict__", None) else Content(type(value)._fields, value)


def _with_attributes(value: Any, keys: tuple, items: tuple, extra: tuple) -> Content:
    """`extra` gets the names of the attributes; those that are items too, as a ModelOutput's, are
    no items more."""
    state = getattr(value, "__dict__", None)
    if state is value:  # a dict whose items are its attributes
        return Content(keys, items, (*extra, None))
    if not state:
        return Content(keys, items, (*extra, ()))
    held = dict(zip(keys, items, strict=True)) if isinstance(value, dict) else {}
    rest = {k: item for k, item in state.items() if k not in held or held[k] is not item}
    names = (*keys, *map(Attribute, rest))
    return Content(names, (*items, *rest.values()), (*extra, tuple(state)))


def _fill_attributes(value: Any, content: Content, items: dict) -> None:
    names = content.extra[-1]
    if names is None:
        object.__setattr__(value, "__dict__", value)
    elif isinstance(getattr(value, "__dict__", None), dict):
        own = dict(zip(content.keys, content.children, strict=True))
        state = vars(value)
        state.clear()
        state.update((k, own[Attribute(k)] if Attribute(k) in own else items[k]) for k in names)


def _base_of(of: type) -> type:
    """The class whose methods read and write what is in a dict of class `of`."""
    return collections.OrderedDict if issubclass(of, collections.OrderedDict) else dict


def _of_dict(value: dict) -> Content | None:
    items = list(_base_of(type(value)).items(value))
    if not all(type(key) is str or _is_key(key) for key, _ in items):
        return None
    keys, children = tuple(key for key, _ in items), tuple(item for _, item in items)
    exactly = tuple(exact(key) for key in keys if type(key) is not str)
    made_by = getattr(value, "default_factory", None)
    if not (made_by is None or isinstance(made_by, type)):
        return None
    return _with_attributes(value, keys, children, (made_by, exactly))


def _is_key(key: Any) -> bool:
    """Whether calls can be told apart by it."""
    if isinstance(key, (tuple, frozenset)):
        return all(map(_is_key, key))
    return isinstance(key, (str, int, float, bytes, type(None), torch.dtype, torch.device, type))


def _empty_dict(of: type, extra: tuple) -> dict:
    value = of.__new__(of)
    if isinstance(value, collections.defaultdict):
        value.default_factory = extra[0]
    return value


def _fill_dict(value: dict, content: Content) -> None:
    base = _base_of(type(value))
    base.clear(value)
    items = {
        key: child
        for key, child in zip(content.keys, content.children, strict=True)
        if not isinstance(key, Attribute)
    }
    for key, child in items.items():
        base.__setitem__(value, key, child)
    _fill_attributes(value, content, items)


def _of_list(value: list) -> Content:
    if type(value) is list:
        return Content((), value)
    return _with_attributes(value, tuple(range(len(value))), tuple(list.__iter__(value)), ())


def _fill_list(value: list, content: Content) -> None:
    if type(value) is list:
        value[:] = content.children
        return
    items = [
        child
        for key, child in zip(content.keys, content.children, strict=True)
        if not isinstance(key, Attribute)
    ]
    list.__setitem__(value, slice(None), items)
    _fill_attributes(value, content, {})


def _fill_deque(value: collections.deque, content: Content) -> None:
    value.clear()
    value.extend(content.children)


def _of_set(value: Any) -> Content | None:
    """Of keys alone: a set of tensors would have another order at each call; and in the order that
    a set made of these has."""
    items = list(value)
    order = _order_of_insertion(type(value), items) if all(map(_is_key, items)) else None
    return None if order is None else Content((), (), (tuple(order), tuple(map(exact, order))))


def _order_of_insertion(of: type, items: list) -> list | None:
    """In which a set of `of` takes the items to list them so: those that a collision has put before
    others come last. None where that is not enough."""
    most = 32
    orders = (items[k:] + items[:k] for k in range(min(max(len(items), 1), most)))
    return next((order for order in orders if list(of(order)) == items), None)


def _fill_set(value: set, content: Content) -> None:
    value.clear()
    value.update(content.extra[0])


def _of_object(value: Any) -> Content:
    state = getattr(value, "__dict__", None) or {}
    slots = [name for name in slots_of(value) if hasattr(value, name)]
    found = {**state, **{name: getattr(value, name) for name in slots}}
    return Content(tuple(map(Attribute, found)), tuple(found.values()))


def _fill_object(value: Any, content: Content) -> None:
    """Without calling what the class says of an assignment: it may compute, or refuse it."""
    slots = slots_of(value)
    now = {key.name: child for key, child in zip(content.keys, content.children, strict=True)}
    state = getattr(value, "__dict__", None)
    if state is not None:
        state.clear()
        state.update((name, child) for name, child in now.items() if name not in slots)
    for name in slots:
        if name in now:
            object.__setattr__(value, name, now[name])
        elif hasattr(value, name):
            object.__delattr__(value, name)


def _of_array(value: np.ndarray) -> Content | None:
    """All of it is `extra`: a constant."""
    plain = value.dtype.kind in "biufc" and value.flags.c_contiguous
    if not plain or value.nbytes > _MOST_BYTES:
        return None
    facts = value.dtype.str, value.shape, value.flags.writeable
    return Content((), (), (*facts, value.tobytes()))


def _empty_array(_of: type, extra: tuple) -> np.ndarray:
    kind, shape, writeable, content = extra
    value = np.frombuffer(content, kind).reshape(shape).copy()
    value.flags.writeable = writeable
    return value


def _fill_array(value: np.ndarray, content: Content) -> None:
    if value.flags.writeable:
        value[...] = _empty_array(np.ndarray, content.extra)


def _new(of: type, _extra: tuple) -> Any:
    return of.__new__(of)


_TUPLE = Container(lambda value: Content((), value), build=lambda of, content: of(content.children))
# its own __new__ has run
_NAMEDTUPLE = Container(
    _of_namedtuple, build=lambda of, content: tuple.__new__(of, content.children)
)
_DICT = Container(_of_dict, _empty_dict, _fill_dict)
_LIST = Container(_of_list, _new, _fill_list)
_OBJECT = Container(_of_object, _new, _fill_object)
_PARTIAL = Container(
    lambda p: Content(
        ("func", *range(len(p.args)), *map(Attribute, p.keywords)),
        (p.func, *p.args, *p.keywords.values()),
    ),
    build=lambda of, content: of(
        *(
            c
            for k, c in zip(content.keys, content.children, strict=True)
            if type(k) is not Attribute
        ),
        **{
            k.name: c
            for k, c in zip(content.keys, content.children, strict=True)
            if type(k) is Attribute
        },
    ),
)
_KINDS: dict[type, Container] = {
    list: _LIST,
    tuple: _TUPLE,
    dict: _DICT,
    collections.deque: Container(
        lambda value: Content((), value, (value.maxlen,)),
        lambda of, extra: of(maxlen=extra[0]),
        _fill_deque,
    ),
    set: Container(_of_set, _new, _fill_set),
    frozenset: Container(_of_set, build=lambda of, content: of(content.extra[0])),
    np.ndarray: Container(_of_array, _empty_array, _fill_array),
    functools.partial: _PARTIAL,
}
