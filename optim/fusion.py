"""`fuse`: an optimizer of torch's becomes ours where it is."""

import functools
import weakref

import torch

from .adafactor import Adafactor
from .adam import Adam
from .adamw import AdamW
from .fused import DTYPES, Fused
from .muon import Muon
from .sgd import SGD

_OURS = {
    torch.optim.AdamW: AdamW,
    torch.optim.Adam: Adam,
    torch.optim.SGD: SGD,
    torch.optim.Adafactor: Adafactor,
    torch.optim.Muon: Muon,
}


def fuse(optimizer: torch.optim.Optimizer, **around) -> torch.optim.Optimizer:
    """Makes a torch.optim.AdamW, Adam, SGD, Adafactor or Muon ours in place, and returns it.

    `around`: max_norm, zero_grad and ema_decay, as ours have them. State, groups, hooks and the
    schedulers that hold it stay; one of ours is returned as it is, but for `around` if there is
    any. Raises TypeError for another class, a subclass among them, ValueError for an option, a
    parameter or a wrapped step that ours cannot take; the optimizer is unchanged then.
    """
    kind = type(optimizer)
    if kind in _OURS.values():
        if around:
            optimizer.surround(**around)
        return optimizer
    if kind not in _OURS:
        raise TypeError(
            f"[fuse] optimizer is a {kind.__module__}.{kind.__qualname__}, "
            "expected torch.optim.AdamW, Adam, SGD, Adafactor or Muon itself"
        )
    ours = _OURS[kind]
    ours.refuse(optimizer)
    _check_parameters(optimizer)
    scheduled = _is_scheduled(optimizer)
    Fused.surround(optimizer, **around)
    optimizer.__class__ = ours
    vars(optimizer).pop("_step_supports_amp_scaling", None)  # of torch's fused kernel alone
    optimizer._patch_step_function()
    if scheduled:
        optimizer.step = _told(optimizer)
    return optimizer


def _check_parameters(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        for p in group["params"]:
            if p.device.type != "cpu" or p.dtype not in DTYPES:
                raise ValueError(
                    f"[fuse] a parameter is {p.dtype} on {p.device.type}, expected float32, "
                    "float64, bfloat16 or float16 on cpu"
                )


def _is_scheduled(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a scheduler has put its wrapper before the step, which holds torch's function."""
    step = vars(optimizer).get("step")
    if step is None:
        return False
    known = getattr(step, "_wrapped_by_lr_sched", False)
    if not known or getattr(step, "__wrapped__", None) is not type(optimizer).step:
        raise ValueError(
            "[fuse] optimizer.step is wrapped by something other than a scheduler, expected the "
            "class's own; fuse before wrapping it"
        )
    return True


def _told(optimizer: torch.optim.Optimizer):
    """The class's step, and what a scheduler's wrapper of it notes: that it was called."""
    held = weakref.ref(optimizer)  # no cycle, as in torch's

    @functools.wraps(type(optimizer).step)
    def step(*args, **kwargs):
        optimizer = held()
        optimizer._opt_called = True
        return type(optimizer).step(optimizer, *args, **kwargs)

    step._wrapped_by_lr_sched = True
    return step
