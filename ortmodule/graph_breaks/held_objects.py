"""Objects, lists and dicts that a module holds or makes, in parts: what Dynamo reads of them once,
as it traces, ends a graph, gets a guard or is kept.

dynamo.py holds these around each look at a function.
"""

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from torch import nn

from ..guards import state_kinds
from ..torch_internals.dynamo import (
    AttrSource,
    BaseListVariable,
    ConstantVariable,
    ConstDictVariable,
    GuardBuilder,
    InstructionTranslator,
    NumpyVariable,
    ObservedAttributeError,
    SideEffects,
    SymNodeVariable,
    TupleVariable,
    UnspecializedNNModuleVariable,
    UserDefinedObjectVariable,
    UserMethodVariable,
    hashing,
    install_guard,
    items_of,
    list_variables,
    setting,
)
from ..torch_internals.replace import first_of, replaced
from .breaks import compared, end

_WITH_STATE = (UserDefinedObjectVariable, BaseListVariable, *hashing())
_IN_C = (*state_kinds.IN_C, types.MethodWrapperType)
_KNOWN_LATER = "it is known when forward runs"


def identities_as_they_are() -> contextlib.AbstractContextManager:
    """Whether two objects of a module's are one ends a graph, as no guard holds it; objects that do
    not say when they are equal are equal to themselves."""

    def check(_tx: Any, name: str, left: Any, right: Any) -> None:
        by_identity = is_one_of_its_kind(left) or (name in ("is", "is not") and _is_held(left))
        if by_identity and _is_held(right):
            end("whether two objects are one", name, _KNOWN_LATER)

    return compared(("is", "is not", "==", "!="), check)


def _is_held(found: Any) -> bool:
    is_array = isinstance(found, NumpyVariable) and isinstance(found.value, np.ndarray)
    return (is_array or isinstance(found, _WITH_STATE)) and found.source is not None


def is_one_of_its_kind(found: Any) -> bool:
    """Whether it is an object that is held and equal to itself alone."""
    plain = isinstance(found, UserDefinedObjectVariable) and (
        found.python_type().__eq__ is object.__eq__
    )
    return plain and _is_held(found)


def contents_as_they_are() -> contextlib.AbstractContextManager:
    """Whether a list has an object that is held, or a tensor, is whether it is an item: no guard
    holds the first. Of the second Dynamo compares numbers, as eager does where it is not the list's
    first item."""

    def make(original: Callable) -> Callable:
        def contains(items: Iterable, search: Any, tx: Any, *rest: Any) -> Any:
            items = list(items)
            if search.is_tensor() and items:
                if items[0].is_tensor() and items[0].as_proxy() is search.as_proxy():
                    return ConstantVariable.create(True)
                end("whether a list has a tensor", "in", _KNOWN_LATER)
            if is_one_of_its_kind(search.realize()):
                end("whether a list has an object", "in", _KNOWN_LATER)
            return original(items, search, tx, *rest)

        return contains

    return replaced(list_variables, "iter_contains", make)


def missing_attributes_as_they_are() -> contextlib.AbstractContextManager:
    """An attribute that an object lacks ends a graph, also where a __getattr__ of its own answers,
    and so does its __dict__, which may lack some: no guard would tell that it has come."""

    def may_come(value: Any, name: str) -> bool:
        if isinstance(value, nn.Module):
            return False
        return name == "__dict__" or (
            hasattr(type(value), "__getattr__") and _is_missing(value, name)
        )

    def make(original: Callable) -> Callable:
        def var_getattr(self, tx: Any, name: str) -> Any:
            missing = self.source is not None and may_come(self.value, name)
            try:
                found = None if missing else original(self, tx, name)
            except ObservedAttributeError:
                if self.source is None:
                    raise
                missing = True
            if missing:
                end("an attribute that is not there", name, "it may be at another call")
            return found

        return var_getattr

    name = first_of(UserDefinedObjectVariable, "tp_getattro_impl", "var_getattr")
    return replaced(UserDefinedObjectVariable, name, make)


def looked_up_attributes_guarded() -> contextlib.AbstractContextManager:
    """What a module's __getattr__ answers holds as long as its __dict__ has no such attribute,
    which would hide it."""

    def make(original: Callable) -> Callable:
        def var_getattr(self, tx: Any, name: str) -> Any:
            if self.source is not None and _is_missing(self.value, name):
                absent = functools.partial(GuardBuilder.NOT_PRESENT_IN_GENERIC_DICT, attr=name)
                install_guard(self.source.make_guard(absent))
            return original(self, tx, name)

        return var_getattr

    name = first_of(UnspecializedNNModuleVariable, "tp_getattro_impl", "var_getattr")
    return replaced(UnspecializedNNModuleVariable, name, make)


def methods_in_c_guarded() -> contextlib.AbstractContextManager:
    """An attribute of an object that is a method in C gets a guard: Dynamo takes it to stay."""

    def make(original: Callable) -> Callable:
        def var_getattr(self, tx: Any, name: str) -> Any:
            held = getattr(self.value, "__dict__", {}).get(name)
            in_c = isinstance(held, _IN_C) or state_kinds.is_of_pybind(held)
            if in_c and self.source is not None:
                source = AttrSource(self.source, name)
                install_guard(source.make_guard(GuardBuilder.ID_MATCH))
            return original(self, tx, name)

        return var_getattr

    name = first_of(UserDefinedObjectVariable, "tp_getattro_impl", "var_getattr")
    return replaced(UserDefinedObjectVariable, name, make)


def _is_missing(value: Any, name: str) -> bool:
    return inspect.getattr_static(value, name, state_kinds.MISSING) is state_kinds.MISSING


def missing_keys_guarded() -> contextlib.AbstractContextManager:
    """A KeyError is caught in the graph only as long as the dict lacks the key."""

    def make(original: Callable) -> Callable:
        def getitem(self, tx: Any, key: Any) -> Any:
            if key not in self:
                self.install_dict_contains_guard(tx, [key])
            return original(self, tx, key)

        return getitem

    return replaced(ConstDictVariable, "getitem_const_raise_exception_if_absent", make)


def truth_of_objects() -> contextlib.AbstractContextManager:
    """What an object's __bool__ or __len__ says of a number is guarded: a branch that Dynamo takes
    on it does not ask for which of the two answers it jumps."""

    def make(original: Callable) -> Callable:
        def call_function(self, tx: Any, *rest: Any) -> Any:
            result = original(self, tx, *rest)
            if isinstance(result, SymNodeVariable) and self.get_name() in ("__bool__", "__len__"):
                return ConstantVariable.create(result.evaluate_expr())
            return result

        return call_function

    return replaced(UserMethodVariable, "call_function", make)


def setattr_gives_none() -> contextlib.AbstractContextManager:
    """Dynamo's setattr() of a tensor gives the value."""

    def make(original: Callable) -> Callable:
        def call(self, *args: Any) -> Any:
            done = original(self, *args)
            return done if done is None else ConstantVariable.create(None)

        return call

    return replaced(*setting(), make)


def tuples_as_made() -> contextlib.AbstractContextManager:
    """A tuple or frozenset of a class of the user's has the items of the moment when it is made.
    Dynamo's code makes it when the graph has run, and from the argument that it was made from: an
    iterator that has ended by then, or a list that has changed."""

    def make(original: Callable) -> Callable:
        def track(self, base: Any, cls: Any, given: Any, **rest: Any) -> Any:
            if given and issubclass(cls.value, (tuple, frozenset)):
                given = [TupleVariable(items_of(given[0], InstructionTranslator.current_tx()))]
            return original(self, base, cls, given, **rest)

        return track

    return replaced(SideEffects, "track_new_user_defined_object", make)
