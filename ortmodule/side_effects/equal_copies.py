"""Writes of forward's that change nothing: an entry for the class of traced tensors where there is
one for that of real ones, and an object of a package's that makes a copy of itself at each call."""

import dataclasses
import sys
from typing import Any

import torch

from ..guards import state_kinds
from ..guards.observation import OWN, kind_of_file
from ..guards.state_walk import Watched, difference
from ..torch_internals.tracing import FakeTensor

_DEPTH = 20


def change(w: Watched) -> str | None:
    """The first difference that counts, as `state_walk.difference` words it."""
    found = difference(w)
    if found is None:
        return None
    was, now = dict(w.items), dict(w.now())
    owner = w.owner if w.owner is not None else w.holder if w.kind.attributes else None
    if owner is not None and _is_of_package(owner):
        for key in was.keys() & now.keys():
            if _equal(was[key], now[key], _DEPTH):
                now[key] = was[key]
    elif isinstance(w.holder, dict):
        was, now = _without_traced(was, now), _without_traced(now, now)
    else:
        return found
    items = list(was.items())
    return difference(
        dataclasses.replace(w, items=items, holder=now, owner=None, kind=state_kinds.kind_of({}))
    )


def _without_traced(items: dict, known: dict) -> dict:
    return {key: value for key, value in items.items() if not _has_real_twin(key, known)}


def _has_real_twin(key: Any, known: dict) -> bool:
    """Whether `key` names the class of traced tensors, and `known` the same of real ones."""
    if key is FakeTensor:
        return torch.Tensor in known
    if not isinstance(key, tuple) or FakeTensor not in key:
        return False
    return any(
        isinstance(other, tuple)
        and len(other) == len(key)
        and all(_is_real(b) if a is FakeTensor else b is a for a, b in zip(key, other, strict=True))
        for other in known
    )


def _is_real(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, torch.Tensor) and cls is not FakeTensor


def _is_of_package(value: Any) -> bool:
    """Whether the class of an object is neither the user's own nor one that has no file."""
    file = getattr(sys.modules.get(type(value).__module__), "__file__", None)
    return file is not None and kind_of_file(file) != OWN


def _equal(was: Any, now: Any, depth: int) -> bool:
    """Whether what a package holds now is a copy of what it held: of the same classes down to what
    is the same or equal."""
    if state_kinds.same(was, now):
        return True
    if type(was) is not type(now) or not depth:
        return False
    if type(was) in (list, tuple):
        return len(was) == len(now) and all(
            _equal(a, b, depth - 1) for a, b in zip(was, now, strict=True)
        )
    if type(was) is dict:
        was, now = _without_traced(was, now), _without_traced(now, now)
        return (
            len(was) == len(now)
            and all(map(state_kinds.same, was, now))
            and all(_equal(was[key], now[key], depth - 1) for key in was)
        )
    if type(was) is set:
        return len(was) == len(now) and all(
            isinstance(value, (*state_kinds.SCALARS, type)) and value in now for value in was
        )
    if not _is_of_package(was) or state_kinds.kind_of(was) is not state_kinds.OBJECT:
        return False
    held, holds = (dict(state_kinds.OBJECT.items(value)) for value in (was, now))
    return _equal(held, holds, depth - 1)
