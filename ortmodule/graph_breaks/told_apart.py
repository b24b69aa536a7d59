"""Values in parts that Dynamo takes as equal, as a symbol or as an array, where forward can tell
them apart.

dynamo.py holds these around each look at a function.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..calls.exact import exact, is_nan, is_seen
from ..calls.varying import may_vary
from ..errors import NotCapturable
from ..guards.observation import OWN, PACKAGE, kind_of_file
from ..torch_internals.dynamo import (
    AsPythonConstantNotImplementedError,
    AttrSource,
    BaseListVariable,
    ConstantVariable,
    GuardBuilder,
    GuardManagerType,
    NumpyVariable,
    SliceVariable,
    SymNodeVariable,
    VariableTracker,
    get_key_index_source,
    get_verbose_code_parts,
    hashing,
    variable_builder,
)
from ..torch_internals.replace import replaced
from .breaks import compared, end
from .held_objects import is_one_of_its_kind

# How code asks whether a container has something; by the other names, whether a dict has.
_LOOKS_UP = {"__contains__": "in", "__getitem__": "[]", "get": "get", "pop": "pop"}
_SLOTS = {"sq_contains_impl": "in", "mp_subscript_impl": "[]"}  # after torch 2.11
# Their equal ones may be told apart.
_ALIKE = (float, complex, tuple, list, set, frozenset, slice, range)


@contextlib.contextmanager
def guards_as_exact() -> Iterator[None]:
    """Where Dynamo compares by ==, -0.0 is no 0.0 and True in a tuple no 1. Layers of torch's do
    not tell these apart."""

    def of_value(original: Callable) -> Callable:
        def equals_match(self, guard: Any, *args: Any, **kwargs: Any) -> None:
            original(self, guard, *args, **kwargs)
            layer = guard.originating_source.guard_source.is_unspecialized_builtin_nn_module()
            if not layer:
                _compare_exactly(self.get_guard_manager(guard), self.get(guard), guard)

        return equals_match

    def of_keys(original: Callable) -> Callable:
        def keys_and_order(self, value: dict, guard: Any) -> None:
            original(self, value, guard)
            for k, key in enumerate(dict.keys(value)):
                if _is_alike(key):
                    source = get_key_index_source(guard.name, k)
                    _compare_exactly(
                        self.get_guard_manager(guard).get_key_manager(
                            k, source, key, GuardManagerType.GUARD_MANAGER
                        ),
                        key,
                        guard,
                    )

        return keys_and_order

    with (
        replaced(GuardBuilder, "EQUALS_MATCH", of_value),
        replaced(GuardBuilder, "guard_on_dict_keys_and_order", of_keys),
    ):
        yield


def _is_alike(value: Any) -> bool:
    return isinstance(value, _ALIKE) and not (type(value) is float and value)


def _compare_exactly(manager: Any, value: Any, guard: Any) -> None:
    if _is_alike(value):
        key = exact(value)
        code = get_verbose_code_parts(f"{guard.name} is exactly {value!r}", guard)
        manager.add_lambda_guard(lambda now: exact(now) == key, code, guard.user_stack)


def aliases_guarded() -> contextlib.AbstractContextManager:
    """One object that is found at two places is guarded also where one of them is a global."""

    def make(original: Callable) -> Callable:
        def guard_of(source: Any, other: Any) -> Any:
            found = original(source, other)
            if found is None and other is not None and other != source:
                return functools.partial(GuardBuilder.DUPLICATE_INPUT, source_b=other)
            return found

        return guard_of

    return replaced(variable_builder, "make_dupe_guard", make)


def large_integers_as_they_are() -> contextlib.AbstractContextManager:
    """An integer that is no size is a constant."""

    def make(original: Callable) -> Callable:
        return lambda value, source: not may_vary(value, 0) or original(value, source)

    return replaced(variable_builder, "is_int_specialization_case", make)


def slices_as_they_are() -> contextlib.AbstractContextManager:
    """A slice is a constant where its bounds are; Dynamo takes an object for one."""

    def make(original: Callable) -> Callable:
        def as_python_constant(self) -> slice:
            bounds = (bound.realize() for bound in self.items)
            if not all(b.is_python_constant() or isinstance(b, SymNodeVariable) for b in bounds):
                raise AsPythonConstantNotImplementedError(self)
            return original(self)

        return as_python_constant

    return replaced(SliceVariable, "as_python_constant", make)


class _Float64(ConstantVariable):
    """A float of numpy's that an object holds, as a scale that is np.sqrt(width)."""

    def __init__(self, value: np.float64, **kwargs: Any):
        super().__init__(float(value), **kwargs)
        self.value = value  # the base keeps Python's

    def python_type(self) -> type:
        return np.float64

    def as_proxy(self) -> float:
        return float(self.value)  # whose text is code


def numpy_scalars_as_they_are() -> contextlib.AbstractContextManager:
    """A scalar of numpy's ends a graph: to Dynamo it is an array, which tensors and isinstance take
    otherwise. A float64 that an object holds is a constant."""

    def make(original: Callable) -> Callable:
        def call(self, value: Any) -> VariableTracker:
            if not isinstance(value, np.generic):
                return original(self, value)
            if type(value) is not np.float64 or not isinstance(self.source, AttrSource):
                end("a scalar of numpy's", type(value).__name__, "to Dynamo it is an array")
            self.install_guards(GuardBuilder.EQUALS_MATCH)
            return _Float64(value, source=self.source)

        return call

    builder = variable_builder.VariableBuilder
    return replaced(builder, "_call_impl", make)


def arrays_as_they_are() -> contextlib.AbstractContextManager:
    """An array of numpy's is no constant: Dynamo would compute with it, and write to it, while it
    traces, and the code once more."""

    def make(original: Callable) -> Callable:
        return lambda self: not isinstance(self.value, np.ndarray) and original(self)

    return replaced(NumpyVariable, "is_python_constant", make)


@contextlib.contextmanager
def identities_of_values(asked: Callable[[NotCapturable], None]) -> Iterator[None]:
    """`asked` is told where code asks whether two values are one object, which no guard holds: by
    `is`, of a NaN, which is equal to itself alone, or of an object that a set or dict may have."""

    def check(tx: Any, name: str, left: Any, right: Any) -> None:
        asks = kind_of_file(tx.f_code.co_filename) in (PACKAGE, OWN)
        if asks and _tells_apart(name, left, right):
            asked(_refusal(name, tx))

    def contains(original: Callable) -> Callable:
        def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
            if name in _LOOKS_UP and args:
                check(tx, _LOOKS_UP[name], args[0].realize(), self)
            return original(self, tx, name, args, kwargs)

        return call_method

    def looked_up(name: str) -> Callable:
        def make(original: Callable) -> Callable:
            def slot(self, tx: Any, item: Any) -> Any:
                check(tx, name, item.realize(), self)
                return original(self, tx, item)

            return slot

        return make

    with contextlib.ExitStack() as stack:
        stack.enter_context(compared(("is", "is not", "==", "!="), check))
        for kind in {BaseListVariable, *hashing()}:
            stack.enter_context(replaced(kind, "call_method", contains))
            for slot in _SLOTS.keys() & vars(kind).keys():
                stack.enter_context(replaced(kind, slot, looked_up(_SLOTS[slot])))
        yield


def _tells_apart(name: str, left: Any, right: Any) -> bool:
    if name in ("is", "is not"):
        return _is_seen(left) and _is_seen(right)
    if isinstance(right, hashing()):
        return is_one_of_its_kind(left)
    asks = name in ("in", "==", "!=") and isinstance(right, BaseListVariable)
    return asks and any(map(_is_nan, right.items))


def _is_seen(found: Any) -> bool:
    if isinstance(found, BaseListVariable):
        return found.python_type() is not list
    return isinstance(found, SymNodeVariable) or (
        isinstance(found, ConstantVariable) and is_seen(found.value)
    )


def _is_nan(found: Any) -> bool:
    item = found.realize()
    return isinstance(item, ConstantVariable) and is_nan(item.value)


def _refusal(name: str, tx: Any) -> NotCapturable:
    place = {"file": tx.f_code.co_filename, "line": tx.current_instruction.positions.lineno}
    reason = f"forward asks by `{name}` which object a value is, which parts do not hold"
    return NotCapturable(reason, **place)
