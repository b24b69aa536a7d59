"""What of Python a step of a graph may keep: what was there before forward ran.

A step (steps.py) runs a callable of the user's at each call, where the trace found it. An object
that forward made is another one at each call of eager's.
"""

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from ..guards import state_kinds

_ALWAYS = (*state_kinds.SCALARS, type, types.ModuleType, types.BuiltinFunctionType, range)


def made_by_forward(value: Any, seen: Callable[[Any], bool]) -> Any | None:
    """The first object behind `value` that is not `seen` to have been there before; None: none."""
    waiting, known = [value], set()
    while waiting:
        found = waiting.pop()
        if id(found) in known or isinstance(found, _ALWAYS) or found is None:
            continue
        known.add(id(found))
        inner = _behind(found)
        if inner is not None:
            waiting += inner
        elif not seen(found):
            return found
    return None


def _behind(value: Any) -> list[Any] | None:
    """What a function, method, partial or tuple is made of; None of anything else."""
    if isinstance(value, types.FunctionType):
        return [*_cells(value), *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    return list(value) if type(value) in (tuple, frozenset) else None


def _cells(function: types.FunctionType) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # empty
            yield cell.cell_contents


def seen_in(module: nn.Module, walk: Any) -> Callable[[Any], bool]:
    """Whether an object belongs to a module or was found by a walk over what it reaches."""
    modules = set(module.modules())
    return lambda value: (isinstance(value, nn.Module) and value in modules) or walk.found(value)
