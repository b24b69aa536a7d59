"""Rehearsals: a call made to learn what it does; what it changed is put back.

`eager_error`, in eager: would this call raise there too, and what? module.py asks under
Options(fallback="error") where a call cannot go through the engine: what is wrong with the call
itself must surface as eager's own exception.

`first_writes`, on tensors without data: capture.py asks before it traces, as a trace costs ten
times as much and one that finds such writes is to be made again.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from . import tree
from .guards import Snapshot


def eager_error(module: nn.Module, args: tuple, kwargs: dict) -> Exception | None:
    """What `module(*args, **kwargs)` raises in eager; None when it raises nothing."""
    with _undone(module, args, kwargs):
        try:
            module(*args, **kwargs)
        except Exception as error:
            return error
    return None


@contextlib.contextmanager
def _undone(module: nn.Module, args: tuple, kwargs: dict) -> Iterator[None]:
    before, random = Snapshot(module), torch.get_rng_state()
    try:
        given, _ = tree.flatten([args, kwargs], "arguments")
    except tree.UnknownLeaf:
        given = []
    kept = [(t, t.detach().clone()) for t in (*module.buffers(), *given)]
    try:
        yield
    finally:
        before.restore()
        torch.set_rng_state(random)
        with torch.no_grad():
            for tensor, value in kept:  # batch norm moves no version
                if not torch.equal(tensor, value):
                    tensor.copy_(value)


def first_writes(
    module: nn.Module, spec: Any, tensors: Sequence[torch.Tensor]
) -> list[tuple[dict, Any, Any]]:
    """The scalars that forward sets, as (dict, key, value); none where it cannot be told so.

    The call's arguments are `spec` with `tensors`; the module is left as it was.
    """
    before = Snapshot(module, with_tensors=False)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with _on_fakes(module, mode):
            args, kwargs = tree.unflatten(spec, [_fake(t, mode) for t in tensors])
            with mode:
                module(*args, **kwargs)
        return before.plain_writes() or []
    except Exception:  # as a branch on data: the trace will say
        return []
    finally:
        before.restore()


def _fake(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    return mode.from_tensor(tensor, static_shapes=True)


@contextlib.contextmanager
def _on_fakes(module: nn.Module, mode: FakeTensorMode) -> Iterator[None]:
    """Parameters and buffers are fakes, so that a write to one moves no version of the real one."""
    homes = [d for m in module.modules() for d in (m._parameters, m._buffers)]
    real = [dict(home) for home in homes]
    try:
        for home in homes:
            home.update((k, _fake(t, mode)) for k, t in home.items() if t is not None)
        yield
    finally:
        for home, tensors in zip(homes, real, strict=True):
            home.clear()
            home.update(tensors)
