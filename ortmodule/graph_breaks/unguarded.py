"""What Dynamo takes to stay as it is although a user may change it; parts.py looks at it itself."""

import collections
import dataclasses
import enum
import functools
import sys
import types
from collections.abc import Iterable
from typing import Any

from torch import nn

from .. import _native
from ..guards import state_kinds
from ..guards.observation import OWN, Names, facts_of, kind_of_file
from ..guards.snapshot import unchanged
from ..guards.state_walk import StateWalk, Watched, difference, is_own

_ORDERED = collections.OrderedDict
_CONTAINERS = (dict, list, set)
_OF_CONTAINERS = {"__missing__", "__setitem__", "__delitem__", "__getitem__"}
_KINDS = (state_kinds.CLASS, state_kinds.BASES, state_kinds.REGISTRY, state_kinds.PARTS)


class Unguarded:
    """Classes, functions' code, the order of dicts, imported modules and names of builtins below a
    module.

    roots: functions that forward entered, as (function or None, code). `refusal`: why the module
    cannot run in parts at all; None: it can.
    """

    def __init__(
        self, module: nn.Module, roots: Iterable[tuple[types.FunctionType | None, types.CodeType]]
    ):
        walk = StateWalk(Names(every=True))
        walk.add_module(module)
        self._walk, self._watch = walk, None
        self._codes: set[types.CodeType] = set()
        self._stored: set[str] = set()
        self._named: set[str] = set()  # attributes, and with `_by_text` all texts in the code
        self._by_text = False
        self.refusal: str | None = None
        for function, code in roots:
            self.add(function, code)
        self.changed()

    def add(self, function: types.FunctionType | None, code: types.CodeType) -> None:
        """A function that forward enters: what it reaches is to stay as it is now."""
        if code in self._codes:
            return
        self._codes.add(code)
        facts = facts_of(code)
        self._stored.update(facts.stored)
        self._named.update(facts.attributes)
        own = kind_of_file(code.co_filename) == OWN
        if own and facts.any_name:
            self._by_text = True
            self._named.update(c for c in code.co_consts if isinstance(c, str))
        self._walk.add_function(function, code)
        self._watch = None
        if own:
            self.refusal = _refusal(self._walk, self._stored)

    def let_go(self) -> None:
        """Ends the cycle that would keep what forward reaches: it is not asked any more."""
        self._watch = None

    def changed(self) -> str | None:
        """The first difference, in words; None when there is none."""
        if self._watch is not None and self._watch.unchanged():
            return None
        if self._watch is None:
            self._choose()
        swapped = next(filter(None, map(difference, self._imported)), None)
        if swapped is not None:
            self.refusal = f"{swapped}: parts import it once"
            return None
        found = self._walk.changed_class()
        found = found or next(filter(None, map(difference, self._watched)), None)
        found = found or next(map("the order of {} changed".format, self._moved()), None)
        if found is None:  # the classes were written to, and are as before
            self._take()
        return found

    def _choose(self) -> None:
        walk = self._walk
        self.refusal = _refusal(walk, self._stored)
        self._watched = [w for w in walk.watched if w.kind in _KINDS]
        self._imported = [w for w in walk.watched if w.holder is sys.modules]
        self._absent = [_absent(w, w.keys) for w in walk.scopes() if w.holder is not sys.modules]
        self._absent += [_absent(w, self._named) for w in walk.watched if self._may_lack(w)]
        self._absent = [w for w in self._absent if w.keys]
        self._watched += self._absent
        ordered = (w for w in walk.watched if w.ordered and isinstance(w.holder, _ORDERED))
        self._orders = [(w.path, w.holder, [key for key, _ in w.items]) for w in ordered]

    def _may_lack(self, found: Watched) -> bool:
        """Whether code asks for attributes of it that Dynamo does not guard as missing."""
        owner = found.owner
        if isinstance(owner, types.FunctionType):
            return kind_of_file(owner.__code__.co_filename) == OWN
        return self._by_text and owner is not None and isinstance(found.holder, dict)

    def _take(self) -> None:
        functions, classes = list(self._walk.functions), list(self._walk.classes)
        instances = [(each.value, None) for each in self._walk.instances.values()]
        registries = [w for w in self._watched if w.kind is state_kinds.REGISTRY]
        same = unchanged(registries, [])
        slow = (lambda: same() and not any(self._moved())) if registries or self._orders else None
        imported = [(w.holder, list(w.keys), None) for w in (*self._imported, *self._absent)]
        self._watch = _native.torch_bridge().Watch(
            imported, [], [], [], functions, classes, instances, [], slow
        )

    def _moved(self) -> Iterable[str]:
        return (path for path, holder, keys in self._orders if list(holder) != keys)


def _looks_up_itself(cls: type) -> bool:
    """By Python code: the lookup in C of a thread's locals is followed."""
    found = vars(cls).get("__getattribute__")
    return found is not None and not isinstance(found, types.WrapperDescriptorType)


def _absent(found: Watched, names: Iterable[str]) -> Watched:
    """Names that a namespace or an object lacked when it was found: in a namespace, one that comes
    hides a builtin."""
    there = {name for name, _ in found.items}
    return dataclasses.replace(found, items=[], keys=set(names) - there)


def _sets(value: Any) -> bool:
    """Whether it is a descriptor that does something of its own when its attribute is set."""
    return hasattr(type(value), "__set__") and not isinstance(value, types.MemberDescriptorType)


def _refusal(walk: StateWalk, stored: set[str]) -> str | None:
    """Why what was found cannot run in parts: Dynamo would answer once, ask anew what a cache of
    the user's keeps, or set an attribute or an item past the user's own way to. stored: the
    attributes that code sets."""
    weak = walk.refers_weakly()
    if weak is not None:
        return f"forward reaches {weak}, a weak reference, whose object parts would keep alive"
    for cache, (path, _) in walk.caches.items():
        if is_own(cache):
            return f"forward reaches the cache of {path}, which parts do not follow"
    for w in walk.watched:
        if isinstance(w.owner, functools.partial) and vars(w.owner):
            return f"forward reaches an attribute of the partial {w.path}, which parts do not read"
    for cls in walk.classes:
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        if file is None or kind_of_file(file) == OWN:
            if getattr(cls, "_is_runtime_protocol", False):
                return f"forward reaches the Protocol {cls.__qualname__}, which parts do not follow"
            if "__class_getitem__" in vars(cls):
                return (
                    f"forward reaches {cls.__qualname__}.__class_getitem__, which parts call once"
                )
            if issubclass(cls, enum.Enum) and not all(map(state_kinds.stays, cls)):
                return f"forward reaches what the enum {cls.__qualname__} holds: parts read it once"
            if _looks_up_itself(cls):  # what it looks up has no guard
                return f"forward reaches {cls.__qualname__}.__getattribute__, which parts ask once"
            own = _OF_CONTAINERS & vars(cls).keys() if issubclass(cls, _CONTAINERS) else ()
            own = own or {name for name in stored & vars(cls).keys() if _sets(vars(cls)[name])}
            for name in own:
                return f"forward reaches {cls.__qualname__}.{name}, which parts do not call"
    return None
