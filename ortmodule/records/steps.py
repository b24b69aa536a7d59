"""Python callables as operators of torch, which run as steps of a plan with torch's own history.

functions.py makes one of an autograd.Function, hooks.py of hooks on gradients. Torch forgets no
operator, so that of a capture that is gone is taken again.
"""

import collections
import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..fork import guarded

NAMESPACE = "ortmodule_python"
_SCHEMA = "(Tensor[] tensors, SymInt[] sizes) -> Tensor[]"
_NUMBERS = itertools.count()
_FREE: dict[tuple[str, bool], list[int]] = collections.defaultdict(list)
_STEPS: dict[int, "weakref.ref[Step]"] = {}
_LOCK = guarded(threading.Lock())

Run = Callable[[Sequence[torch.Tensor], Sequence[int]], list[torch.Tensor]]


class Step:
    """The operator `overload` that calls `run(tensors, sizes)`, for as long as this lives.

    `reason`: why it is no op of ours; `draws`: whether random numbers are drawn by it; `shares`:
    whether a result may show the memory of an argument, or a backward reads that of either;
    `uses_own`: whether it is given the module's own parameters; `is_hook`: whether it is called
    for a gradient; `on_itself`: what does the same for tensors that have their own history, by
    which they are given back; `without`: the tensors to which no call gives a gradient;
    `is_numbered`: whether the last of the sizes is the number of the call among those of a trace.
    """

    def __init__(
        self, name: str, run: Run, reason: str, draws: bool = False, shares: bool = False,
        uses_own: bool = False, is_hook: bool = False, on_itself: Run | None = None,
        without: frozenset[int] = frozenset(), is_numbered: bool = False,
    ):  # fmt: skip
        name = name if name.isidentifier() else "step"
        self.run, self.reason, self.draws, self.shares = run, reason, draws, shares
        self.uses_own, self.is_hook, self.on_itself = uses_own, is_hook, on_itself
        self.without, self.is_numbered = without, is_numbered
        with _LOCK:
            free = _FREE[name, draws]
            number = free.pop() if free else _define(name, draws)
            _STEPS[number] = weakref.ref(self)
        weakref.finalize(self, free.append, number)
        self.overload = getattr(getattr(getattr(torch.ops, NAMESPACE), name), f"n{number}")


def step_of(target: Any) -> Step | None:
    """The step whose operator `target` is; None where it is another operator."""
    if getattr(target, "namespace", None) != NAMESPACE:
        return None
    return _STEPS[int(target._overloadname[1:])]()


def number_of_call(node: torch.fx.Node) -> int | None:
    """The number of a traced call, where it has one."""
    step = step_of(node.target)
    return node.args[1][-1] if step is not None and step.is_numbered else None


def _define(name: str, draws: bool) -> int:
    number = next(_NUMBERS)

    def run(tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
        step = _STEPS[number]()
        if step is None:
            raise RuntimeError(f"the capture that {name} was a step of is gone")
        return step.run(tensors, sizes)

    overload = f"{name}.n{number}"
    library = _library()
    tags = (torch.Tag.nondeterministic_seeded,) if draws else ()
    library.define(f"{overload}{_SCHEMA}", tags=tags)
    for key in ("Autograd", "CompositeExplicitAutograd"):
        library.impl(overload, run, key)
    torch.library.register_fake(f"{NAMESPACE}::{overload}", run, lib=library)
    made = getattr(getattr(getattr(torch.ops, NAMESPACE), name), f"n{number}")
    torch.fx.node.has_side_effect(made)  # a trace keeps it, whoever reads its results
    return number


@functools.cache
def _library() -> torch.library.Library:
    return torch.library.Library(NAMESPACE, "FRAGMENT")
