"""Contexts that a graph of Dynamo's enters and leaves by two calls: autocast, inference mode,
torch.func's.

part_inputs.py puts the calls for the first two in; who runs such a graph holds `left_again` around
it.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

from ..torch_internals.modes import functorch, set_grad_enabled

_HERE = threading.local()
_DEVICES = ("cpu", "cuda")
_LEFT_BY = {
    functorch.TransformType.Vmap: functorch._vmap_decrement_nesting,
    functorch.TransformType.Grad: functorch._grad_decrement_nesting,
    functorch.TransformType.Jvp: functorch._jvp_decrement_nesting,
    functorch.TransformType.Functionalize: functorch._func_decrement_nesting,
}


def enter_autocast(*settings: Any) -> torch.autocast:
    """torch's own call only notes it where a trace is on."""
    context = torch.autocast(*settings)
    context.__enter__()
    _open().append(context)
    return context


def enter_inference_mode(mode: bool) -> torch.inference_mode:
    """As a user's code does, where a trace records the grad mode that it sets."""
    context = torch.inference_mode(mode)
    context.__enter__()
    _open().append(context)
    return context


def exit_context(context: torch.autocast | torch.inference_mode) -> None:
    _open().remove(context)
    context.__exit__(None, None, None)


@contextlib.contextmanager
def left_again() -> Iterator[None]:
    """What is entered within and not left, as an error came between, is left at the end: an
    autocast, an inference mode, a transform of torch.func; so is a change of the grad mode."""
    before, grad = len(_open()), torch.is_grad_enabled()
    depth = functorch.get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        while functorch.get_dynamic_layer_stack_depth() > depth:
            _LEFT_BY[functorch.peek_interpreter_stack().key()]()
        set_grad_enabled(grad)
        while len(_open()) > before:
            exit_context(_open()[-1])


def autocast_state() -> list[tuple[str, bool, torch.dtype]]:
    """Whether autocast is on, and to which dtype, by device."""
    return [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _DEVICES]


@contextlib.contextmanager
def autocast_kept() -> Iterator[None]:
    """Puts autocast's state back: a trace that is given up leaves what forward entered by hand.

    Goes around `left_again`: a trace turns the cache off, and a context that is left after its
    error would leave the cache as it found it.
    """
    before = autocast_state()
    cache, nesting = torch.is_autocast_cache_enabled(), _nesting()
    try:
        yield
    finally:
        for device, enabled, dtype in before:
            torch.set_autocast_enabled(device, enabled)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(cache)
        while _nesting() > nesting:
            torch.autocast_decrement_nesting()


def _nesting() -> int:
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def _open() -> list[torch.autocast]:
    if not hasattr(_HERE, "open"):
        _HERE.open = []
    return _HERE.open
