"""Sets and lists in parts: writes that Dynamo's code does not make again end a graph, and the order
of a set that forward makes, which Dynamo does not know, is left to eager.

dynamo.py holds these around each look at a function.
"""

import contextlib
import operator
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import NotCapturable
from ..torch_internals.dynamo import (
    BaseListVariable,
    BuiltinVariable,
    SetVariable,
    SideEffects,
    UserDefinedObjectVariable,
)
from ..torch_internals.replace import replaced
from .breaks import end

# Whatever the order of the set that they are given, they give the same.
_WITHOUT_ORDER = (set, frozenset, sorted, len, bool)
_IN_PLACE = ("__iadd__", "__imul__")


@contextlib.contextmanager
def sets_as_they_are(asked: Callable[[NotCapturable], None]) -> Iterator[None]:
    """A set that is held is written to between two graphs: of most, Dynamo forgets the write.
    `asked` is told where one that forward makes is walked through, or an item taken out that the
    order chooses: to Dynamo that order is the one in which the items came, and at the end of a
    graph it makes the set anew, which Python may order otherwise."""
    unordered: list[Any] = []  # what runs that asks for no order
    ended: list[Exception] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(replaced(SideEffects, "mutation", _writing(ended)))
        stack.enter_context(replaced(SetVariable, "call_method", _calling(asked, unordered)))
        stack.enter_context(replaced(BuiltinVariable, "call_function", _given(unordered, ended)))
        for name in ("unpack_var_sequence", "tp_iter_impl"):  # the second after torch 2.12
            if hasattr(SetVariable, name):
                stack.enter_context(replaced(SetVariable, name, _walking(asked, unordered)))
        yield


def _writing(ended: list[Exception]) -> Callable:
    def make(original: Callable) -> Callable:
        def mutation(self, variable: Any) -> None:
            with _noted(ended):
                _end_where_held(variable)
            original(self, variable)

        return mutation

    return make


def _walking(asked: Callable[[NotCapturable], None], unordered: list[Any]) -> Callable:
    def make(original: Callable) -> Callable:
        def items(self, *args: Any) -> Any:
            if not unordered and self.source is None:
                _ask_where_ordered(asked, self)
            return original(self, *args)

        return items

    return make


def _calling(asked: Callable[[NotCapturable], None], unordered: list[Any]) -> Callable:
    def make(original: Callable) -> Callable:
        def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
            if name == "pop" and not args:
                _ask_where_ordered(asked, self)
            with _within(unordered, name != "__iter__"):
                return original(self, tx, name, args, kwargs)

        return call_method

    return make


def _given(unordered: list[Any], ended: list[Exception]) -> Callable:
    def make(original: Callable) -> Callable:
        def call_function(self, tx: Any, args: Any, kwargs: Any) -> Any:
            before = len(ended)
            with _within(unordered, self.fn in _WITHOUT_ORDER and not kwargs):
                result = original(self, tx, args, kwargs)
            if len(ended) > before:  # then Dynamo has computed with constants
                raise ended.pop()
            return result

        return call_function

    return make


@contextlib.contextmanager
def _noted(ended: list[Exception]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        ended.append(error)
        raise


def _end_where_held(written: Any) -> None:
    is_set = isinstance(written, SetVariable) or _is_of(written, set)
    if is_set and written.source is not None:
        end("a set that is held is written to", "set", "the write would be lost")


def _ask_where_ordered(asked: Callable[[NotCapturable], None], found: Any) -> None:
    kind = found.python_type()
    if kind in (set, frozenset) and len(found.items) > 1:
        asked(NotCapturable(f"forward walks through a {kind.__name__} in its order"))


@contextlib.contextmanager
def _within(running: list[Any], counts: bool) -> Iterator[None]:
    if not counts:
        yield
        return
    running.append(None)
    try:
        yield
    finally:
        running.pop()


@contextlib.contextmanager
def lists_written_in_place() -> Iterator[None]:
    """`*=` of a list, and `__iadd__` where code calls it, end a graph: Dynamo makes another list,
    or writes to the list and forgets it."""

    def stop(name: str) -> None:
        end("a list that is written to in place", name, "the write would be lost")

    def called(original: Callable) -> Callable:
        def call_method(self, tx: Any, name: str, *args: Any) -> Any:
            if name in _IN_PLACE and self.python_type() is not tuple:
                stop(name)
            return original(self, tx, name, *args)

        return call_method

    def given(original: Callable) -> Callable:
        def call_function(self, tx: Any, args: Any, kwargs: Any) -> Any:
            if self.fn is operator.imul and args and _is_of(args[0].realize(), list):
                stop("__imul__")
            return original(self, tx, args, kwargs)

        return call_function

    with (
        replaced(BaseListVariable, "call_method", called),
        replaced(BuiltinVariable, "call_function", given),
    ):
        yield


def _is_of(found: Any, kind: type) -> bool:
    known = isinstance(found, (BaseListVariable, UserDefinedObjectVariable))
    return known and issubclass(found.python_type(), kind)
