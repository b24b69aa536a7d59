"""An optimizer's step as part of the backward: what `ORTModule.attach` gives.

Torch's own hooks tell when a parameter's gradient is complete, so the engine, a module in parts and
eager are one case. The engine hands a gradient over only when its backward no longer reads the
parameter (gradient_graph/segments.cpp), and in memory that the next segment uses again.
"""

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from . import attachable, surroundings


class Attached:
    """`optimizer` steps the parameters of `module` within the backward, until `remove()`.

    Those that are complete wait until their gradients have more than `segment_bytes`; then they are
    stepped together and their gradients dropped. Raises as ORTModule.attach says.
    """

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer, segment_bytes: int):
        self._names = {p: name for name, p in module.named_parameters()}
        attachable.check(module, self._names, optimizer)
        self.removed = False
        self._optimizer, self._segment_bytes = optimizer, segment_bytes
        self._step = attachable.own_step(optimizer)
        self._hooks: dict[torch.Tensor, list] = {}
        self._groups: dict[torch.Tensor, list[int]] = {}
        self._waiting: dict[torch.Tensor, None] = {}
        self._stepped: set[torch.Tensor] = set()  # since the last optimizer.step()
        self._bytes, self._task, self._whole = 0, -1, True
        self._lock = threading.RLock()  # parameters of two devices are complete in two threads
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

    def check_call(self) -> None:
        """Before a forward: raises where others wait for the gradients."""
        if not self.removed and surroundings.parallel() is not None:
            raise RuntimeError(
                "[attach] a DistributedDataParallel calls the module: it reduces gradients after "
                "they are complete, so the step cannot be part of the backward"
            )

    def has_stepped(self, p: torch.Tensor) -> bool:
        """Whether a backward stepped `p` and gave its gradient back, since the last step()."""
        return not self.removed and p in self._stepped

    def end(self) -> None:
        """At the user's optimizer.step(): what else has a gradient is stepped too."""
        attachable.check_options(self._optimizer)
        with self._lock:
            self._watch()
            self._step_those([p for p in self._groups if p.grad is not None])
            self._waiting.clear()
            self._stepped.clear()

    def begin_anew(self) -> None:
        """At zero_grad(): what a backward that failed has left is forgotten."""
        with self._lock:
            if self._stepped and self._whole:
                attachable.tell_dropped()
            self._waiting.clear()
            self._stepped.clear()

    def _watch(self) -> None:
        """Hooks for all that the optimizer steps now. A frozen parameter takes none."""
        held = weakref.ref(self)
        self._groups = {}
        for index, group in enumerate(self._optimizer.param_groups):
            for p in group["params"]:
                self._groups.setdefault(p, []).append(index)
                if p.requires_grad and p not in self._hooks:
                    self._hooks[p] = [
                        p.register_hook(functools.partial(_arrives, held, weakref.ref(p))),
                        p.register_post_accumulate_grad_hook(functools.partial(_complete, held)),
                    ]

    # --- in the backward ---

    def arrives(self, p: torch.Tensor) -> None:
        """A gradient of `p` is there, but not yet in `p.grad`."""
        name = self._names.get(p, "of the optimizer")
        if p in self._stepped:
            raise RuntimeError(
                f"[attach] parameter {name} gets a second gradient, but was stepped by the first: "
                "while the step is part of the backward, gradients of several backwards cannot be "
                "accumulated. Call optimizer.step() after each backward, or remove() what "
                "attach() returned"
            )
        attachable.check_gradient(p, name)
        attachable.check_hooks(p, name)

    def complete(self, p: torch.Tensor) -> None:
        """`p.grad` is complete, and no backward reads `p` any more."""
        with self._lock:
            task = torch._C._current_graph_task_id()
            if task != self._task:
                attachable.check_options(self._optimizer)
                self._task, self._whole = task, False
                torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)
            self._waiting[p] = None
            self._bytes += p.grad.nbytes if p.grad.layout == torch.strided else 0
            if self._bytes > self._segment_bytes:
                self._finish()

    def _end_backward(self) -> None:
        self._finish()
        self._whole = True  # none that failed comes here

    def _finish(self) -> None:
        with self._lock:
            waiting = [p for p in self._waiting if p.grad is not None]
            self._waiting.clear()
            self._step_those(waiting)

    @torch.no_grad()
    def _step_those(self, params: list[torch.Tensor]) -> None:
        self._bytes = 0
        if not params:
            return
        facts = attachable.facts_of(self._optimizer)
        with self._only(params):
            self._step(self._optimizer)
        self._stepped.update(params)
        for p in params:
            p.grad = None
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


# Hooks hold nothing: a module that has lost its wrapper is a plain one.
def _arrives(held: weakref.ref, of: weakref.ref, _gradient: torch.Tensor) -> None:
    attached, p = held(), of()
    if attached is not None and p is not None:
        attached.arrives(p)


def _complete(held: weakref.ref, p: torch.Tensor) -> None:
    attached = held()
    if attached is not None:
        attached.complete(p)


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
