"""What an attached optimizer (attached.py) cannot be right with: each refused with one error."""

import functools
import inspect
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

_PLAIN = (bool, int, float, complex, str, tuple, type(None))


def check(
    module: nn.Module,
    names: dict[torch.Tensor, str],
    optimizer: torch.optim.Optimizer,
    gives_back: bool,
) -> None:
    """Raises TypeError for what is no optimizer itself, ValueError for one that cannot step in
    parts, or whose gradients, which a step that `gives_back` drops, others want."""
    kind = type(optimizer).__name__
    if not isinstance(optimizer, torch.optim.Optimizer) or "param_groups" not in vars(optimizer):
        raise TypeError(f"[attach] got a {kind}, expected a torch.optim.Optimizer itself")
    closure = inspect.signature(own_step(optimizer)).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ValueError(
            f"[attach] {kind} needs a closure, which runs whole backwards within a step"
        )
    step = vars(optimizer).get("step")
    if step is not None and not getattr(step, "_wrapped_by_lr_sched", False):
        raise ValueError(
            f"[attach] {kind}.step is wrapped by something other than a scheduler, expected the "
            "class's own; attach before wrapping it"
        )
    check_options(optimizer)
    for m in module.modules():
        if isinstance(m, DistributedDataParallel):
            raise ValueError(
                "[attach] the module holds a DistributedDataParallel, which reduces gradients "
                "after they are complete, so the step cannot be part of the backward"
            )
    for group in optimizer.param_groups:
        for p in group["params"]:
            _check_parameter(p, names)
            if gives_back and p._post_accumulate_grad_hooks:
                raise _wanted(names[p])


def _check_parameter(p: torch.Tensor, names: dict[torch.Tensor, str]) -> None:
    if p not in names:
        raise ValueError(
            f"[attach] the optimizer has a parameter of sizes {list(p.shape)} that is none of the "
            "module's, expected parameters of the module alone"
        )
    if type(p.data) is not torch.Tensor:
        raise ValueError(
            f"[attach] parameter {names[p]} is a {type(p.data).__name__}, expected a plain tensor"
        )
    check_gradient(p, names[p])


def check_gradient(p: torch.Tensor, name: str) -> None:
    """Raises RuntimeError where a new gradient would be added to one that is there."""
    if p.grad is not None:
        raise RuntimeError(
            f"[attach] parameter {name} has a gradient already, and a step within the backward "
            "cannot wait for it to be accumulated: call zero_grad() before"
        )


def second_gradient(name: str) -> Exception:
    """Of a parameter that the backward before has stepped."""
    return RuntimeError(
        f"[attach] parameter {name} gets a second gradient, but was stepped by the first: "
        "while the step is part of the backward, gradients of several backwards cannot be "
        "accumulated. Call optimizer.step() after each backward, or remove() what "
        "attach() returned"
    )


def check_hooks(p: torch.Tensor, name: str) -> None:
    """Raises where somebody beside the attachment waits for the complete gradient."""
    if len(p._post_accumulate_grad_hooks) > 1:
        raise _wanted(name)


def _wanted(name: str) -> Exception:
    return RuntimeError(
        f"[attach] parameter {name} has a post-accumulate hook of another's, who wants the "
        "gradient that the step within the backward gives back"
    )


def check_options(optimizer: torch.optim.Optimizer) -> None:
    """Raises ValueError for what needs all gradients before the first step."""
    kind = type(optimizer).__name__
    groups = optimizer.param_groups
    for name in ("max_norm", "max_grad_norm"):
        bounds = (_of(optimizer, name), *_each(groups, name))
        if all(bound is None for bound in bounds):
            continue
        raise ValueError(
            f"[attach] {kind} has a {name}: the norm of all gradients is known after the "
            "backward alone, so the step cannot be part of it"
        )
    if any(_of(optimizer, name) is not None for name in ("grad_scale", "found_inf")):
        raise ValueError(
            f"[attach] a GradScaler steps the {kind}: whether a scaled gradient is finite is known "
            "after the backward, which has made its steps by then; use bfloat16, which needs no "
            "scaler, or remove() what attach() returned"
        )
    if any(_each(groups, "differentiable")):
        raise ValueError(f"[attach] {kind} is differentiable, which a step in parts is not")


def _of(optimizer: torch.optim.Optimizer, name: str) -> Any:
    return getattr(optimizer, name, None)


def _each(groups: list[dict], option: str) -> list:
    return [group.get(option) for group in groups]


def own_step(optimizer: torch.optim.Optimizer) -> Callable:
    """The class's step without the hooks that torch puts around it."""
    step = type(optimizer).step
    return step.__wrapped__ if getattr(step, "hooked", False) else step


def facts_of(optimizer: torch.optim.Optimizer) -> dict[tuple, Any]:
    """What the optimizer keeps of all parameters together: its options and its own numbers."""
    facts = {("optimizer", k): _fact(v) for k, v in vars(optimizer).items() if k[:1] != "_"}
    for number, group in enumerate(optimizer.param_groups):
        facts |= {(number, k): _fact(v) for k, v in group.items() if k != "params"}
    return facts


def _fact(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return id(value), value._version
    return value if isinstance(value, _PLAIN) else None


def check_unchanged(optimizer: torch.optim.Optimizer, facts: dict[tuple, Any]) -> None:
    """Raises RuntimeError for a step that counts for all parameters what it does to some."""
    now = facts_of(optimizer)
    changed = [k[-1] for k, fact in now.items() if facts.get(k, fact) != fact]
    if changed:
        kind = type(optimizer).__name__
        raise RuntimeError(
            f"[attach] a step of {kind} changes {changed[0]!r}, which is of all parameters, but a "
            "step within the backward is made in parts, some of them by now: remove() what "
            "attach() returned"
        )


# --- what a loop does to gradients between the backward and the step ---


def refuse_zeros() -> None:
    """Raises ValueError for zero_grad(set_to_none=False)."""
    raise ValueError(
        "[attach] zero_grad(set_to_none=False) keeps gradients as zeros, by which parameters that "
        "get no new one are stepped too, but a step within the backward gives them back: call "
        "zero_grad()"
    )


def tell_dropped() -> None:
    """Warns of a zero_grad() without a step() after the backward."""
    warnings.warn(
        "[attach] zero_grad() without step() after a backward drops no gradients: the backward has "
        "made its steps. Call step() after each backward; to leave one out, remove() what attach() "
        "returned",
        stacklevel=4,
    )


_attachments: weakref.WeakSet = weakref.WeakSet()


def watch_clipping(attached: Any) -> None:
    """From now on torch's functions that clip gradients raise RuntimeError for one of the
    parameters that `attached` has stepped, as they would clip nothing.

    Whoever imported them has torch's wrapper of them, so what that calls is replaced.
    """
    _attachments.add(attached)
    for wrapper in (torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad_value_):
        for cell in wrapper.__closure__ or ():
            if not hasattr(cell.cell_contents, "_of_attach"):
                cell.cell_contents = _honest(cell.cell_contents)


def _honest(clip: Callable) -> Callable:
    @functools.wraps(clip)
    def clip_what_is_there(parameters, *args, **kwargs):
        given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        if any(attached.has_stepped(p) for attached in _attachments for p in given):
            raise RuntimeError(
                f"[attach] {clip.__name__} comes after the steps that the backward has made: "
                "it would clip nothing. remove() what attach() returned"
            )
        return clip(given if given else parameters, *args, **kwargs)

    clip_what_is_there._of_attach = True
    return clip_what_is_there
