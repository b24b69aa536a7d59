"""Random generators around a capture: what forward draws outside of tensor ops is put back."""

import contextlib
import functools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from .. import devices
from ..errors import NeedsCut, NotCapturable
from ..guards.state_kinds import GENERATORS


def _methods(module: Any) -> set[str]:
    """The functions of a module that are methods of its own generator."""
    held = vars(module).items()
    return {n for n, f in held if isinstance(getattr(f, "__self__", None), GENERATORS)}


# What code names that moves a generator outside of tensor ops; another thread may move one while
# this one captures.
_MOVERS = {
    "Python's random module": _methods(random),
    "numpy's global generator": _methods(np.random),
    "torch's generator": {"seed", "default_generator", "manual_seed", "set_rng_state", "fork_rng"},
}


@contextlib.contextmanager
def kept(names: set[str], device: torch.device) -> Iterator[None]:
    """A forward that moves a generator while it is traced would have its draws baked in.

    names: what its code looks up; device: where it computes.
    """
    states = {
        "Python's random module": (random.getstate, random.setstate),
        "numpy's global generator": (np.random.get_state, np.random.set_state),
        "torch's generator": (
            functools.partial(devices.random_states, device),
            functools.partial(devices.set_random_states, device),
        ),
    }
    before = {name: get() for name, (get, _) in states.items()}

    def put_back() -> None:
        moved = [
            name
            for name, (get, _) in states.items()
            if names & _MOVERS[name] and not _same_state(before[name], get())
        ]
        for name in moved:
            states[name][1](before[name])
        for name in moved:
            raise NeedsCut(f"forward draws from or seeds {name} outside of tensor ops")

    try:
        yield
    except NotCapturable:
        put_back()  # a draw is the reason of whatever else was found
        raise
    put_back()


def _same_state(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_same_state, a, b))
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    return bool(np.all(a == b))
