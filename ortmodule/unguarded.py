"""What Dynamo takes to stay as it is although a user may change it; parts.py looks at it itself."""

import collections
import enum
import types
from collections.abc import Iterable

from torch import nn

from . import _native, kinds
from .observe import Names
from .walk import Walk, difference

# What Dynamo reads once, as it traces: no guard would tell that it moved on. Of enums only members
# with state of their own are objects of a walk.
_ORDERED = collections.OrderedDict
_FROZEN = (*kinds.GENERATORS, collections.deque, enum.Enum)


class Unguarded:
    """Classes, functions' code and the order of dicts below a module.

    roots: functions that forward entered, as (function or None, code). `refusal`: why the module
    cannot run in parts at all; None: it can.
    """

    def __init__(
        self, module: nn.Module, roots: Iterable[tuple[types.FunctionType | None, types.CodeType]]
    ):
        walk = Walk(Names(every=True))
        walk.add_module(module)
        for function, code in roots:
            walk.add_function(function, code)
        held = [type(value).__name__ for value in walk.objects() if isinstance(value, _FROZEN)]
        self.refusal = f"forward reaches a {held[0]}, which parts do not follow" if held else None
        self._watched = [w for w in walk.watched if w.kind in (kinds.CLASS, kinds.PARTS)]
        ordered = (w for w in walk.watched if w.ordered and isinstance(w.holder, _ORDERED))
        self._orders = [(w.path, w.holder, list(w.holder)) for w in ordered]
        self._walk, self._watch = walk, None
        self._take()

    def changed(self) -> str | None:
        """The first difference, in words; None when there is none."""
        if self._watch.unchanged():
            return None
        found = next(filter(None, map(difference, self._watched)), None)
        found = found or next(map("the order of {} changed".format, self._moved()), None)
        if found is None:  # the classes were written to, and are as before
            self._take()
        return found

    def _take(self) -> None:
        functions, classes = list(self._walk.functions), list(self._walk.classes)
        slow = (lambda: not any(self._moved())) if self._orders else None
        self._watch = _native.torch_bridge().Watch([], [], [], functions, classes, [], slow)

    def _moved(self) -> Iterable[str]:
        return (path for path, holder, keys in self._orders if list(holder) != keys)
