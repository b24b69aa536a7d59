"""An optimizer that steps some parameters before the user's step(): the base of what attaches it.

attached.py steps them within the backward, distributed/bucket_steps.py as buckets are reduced.
"""

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from ..fork import guarded
from . import attachable


class EarlySteps:
    """`optimizer` steps parameters of `module` when they are ready, the rest at the user's step().

    From construction to `remove()` the optimizer's own step() and zero_grad() are ours. A class of
    these says which parameters are stepped when. Raises as ORTModule.attach says.
    """

    gives_back = False  # whether a step drops the gradients that it read

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer):
        self._names = {p: name for name, p in module.named_parameters()}
        attachable.check(module, self._names, optimizer, self.gives_back)
        self.removed = False
        self._optimizer, self._step = optimizer, attachable.own_step(optimizer)
        self._hooks: dict[torch.Tensor, list] = {}  # of parameters, to be removed
        self._groups: dict[torch.Tensor, list[int]] = {}
        self._stepped: set[torch.Tensor] = set()  # since the last optimizer.step()
        self._lock = guarded(threading.RLock())  # parameters of two devices come in two threads
        self._watch()
        attachable.watch_clipping(self)
        scaled = vars(optimizer).get("_step_supports_amp_scaling")
        self._undo = weakref.finalize(self, _undo, self._hooks, weakref.ref(optimizer), scaled)
        optimizer._step_supports_amp_scaling = True  # so that a GradScaler comes to the step
        held = weakref.ref(self)
        _put_before(optimizer, "step", held, _ended(held))
        _put_before(optimizer, "zero_grad", held, _zeroed(held))

    def remove(self) -> None:
        """From now on the optimizer steps when its step is called, as before."""
        self.removed = True
        self._undo()  # once

    def has_stepped(self, p: torch.Tensor) -> bool:
        """Whether `p` was stepped since the last step()."""
        return not self.removed and p in self._stepped

    def end(self) -> None:
        """At the user's optimizer.step(): what else has a gradient is stepped too."""
        attachable.check_options(self._optimizer)
        with self._lock:
            self._watch()
            self._step_those(p for p in self._groups if p.grad is not None)
            self._stepped.clear()

    def begin_anew(self) -> None:
        """At zero_grad(): what a backward that failed has left is forgotten."""
        with self._lock:
            if self._stepped and self._is_whole():
                attachable.tell_dropped()
            self._stepped.clear()

    def _is_whole(self) -> bool:
        """Whether the last backward came to its end."""
        return True

    def _watch(self) -> None:
        """Takes the optimizer's groups as they are now."""
        self._groups = {}
        for index, group in enumerate(self._optimizer.param_groups):
            for p in group["params"]:
                self._groups.setdefault(p, []).append(index)

    @torch.no_grad()
    def _step_those(self, params: Iterable[torch.Tensor]) -> None:
        those = list(params)
        if not those:
            return
        facts = attachable.facts_of(self._optimizer)
        with self._only(those):
            self._step(self._optimizer)
        self._stepped.update(those)
        attachable.check_unchanged(self._optimizer, facts)

    @contextlib.contextmanager
    def _only(self, params: list[torch.Tensor]) -> Iterator[None]:
        """Within, the optimizer's groups have these alone. A step that calls its base's runs no
        hooks: they run once, at the user's step."""
        optimizer = self._optimizer
        own = {k: getattr(optimizer, k) for k in ("param_groups", *_STEP_HOOKS)}
        members: dict[int, list] = {}
        for p in params:
            for index in self._groups[p]:
                members.setdefault(index, []).append(p)
        groups = [own["param_groups"][index] for index in members]
        all_params = [group["params"] for group in groups]
        vars(optimizer).update({k: {} for k in _STEP_HOOKS} | {"param_groups": groups})
        for group, those in zip(groups, members.values(), strict=True):
            group["params"] = those
        try:
            yield
        finally:
            for group, before in zip(groups, all_params, strict=True):
                group["params"] = before
            vars(optimizer).update(own)


_STEP_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")


def _undo(hooks: dict[torch.Tensor, list], of: weakref.ref, scaled: bool | None) -> None:
    """What an attachment left with parameters and optimizer, as it was before."""
    for handles in hooks.values():
        for handle in handles:
            handle.remove()
    hooks.clear()
    optimizer = of()
    if optimizer is not None:
        vars(optimizer).pop("_step_supports_amp_scaling", None)
        if scaled is not None:
            optimizer._step_supports_amp_scaling = scaled


# --- the user's own calls ---


def _ended(held: weakref.ref) -> Callable:
    """A step that is made already; the hooks of steps run around it."""

    @torch.optim.Optimizer.profile_hook_step
    def step(_optimizer: torch.optim.Optimizer, closure: Callable | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        held().end()
        return loss

    return step


def _zeroed(held: weakref.ref) -> Callable:
    def zero_grad(optimizer: torch.optim.Optimizer, set_to_none: bool = True) -> None:
        if not set_to_none:
            attachable.refuse_zeros()
        held().begin_anew()
        type(optimizer).zero_grad(optimizer)

    return zero_grad


def _put_before(optimizer: torch.optim.Optimizer, name: str, held: weakref.ref, ours) -> None:
    """The optimizer's method is `ours` while there is an attachment, and what it was after it."""
    former = vars(optimizer).get(name)
    former = getattr(former, "_before_attach", former)
    of = weakref.ref(optimizer)  # no cycle, as in torch's schedulers

    def method(*args, **kwargs):
        optimizer, attached = of(), held()
        if name == "step":
            optimizer._opt_called = True  # as schedulers note it
        if attached is not None and not attached.removed:
            return ours(optimizer, *args, **kwargs)
        if former is not None:
            return former(*args, **kwargs)
        return getattr(type(optimizer), name)(optimizer, *args, **kwargs)

    method.__name__ = name
    method._before_attach = former
    method._wrapped_by_lr_sched = True
    setattr(optimizer, name, method)
