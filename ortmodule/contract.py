"""What must hold for a whole capture, and what is patched while one runs.

Called by trace.py and rehearse.py. export would be silently wrong on everything that is refused
here; nothing is patched outside a capture, and other threads see the originals during one.
"""

import contextlib
import functools
import inspect
import logging
import os
import random
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
import torch.autograd.function as torch_function
import torch.export._trace as export_trace
import torch.utils.checkpoint as torch_checkpoint
from torch import nn
from torch.autograd import grad_mode
from torch.autograd import graph as torch_graph
from torch.nn.modules import module as torch_module

from . import _native, surroundings
from .errors import NotCapturable, WarmUp
from .kinds import GENERATORS
from .markers import attention, ctc_loss, mark_region, stand_ins
from .walk import GLOBAL_HOOKS

_LOCK = threading.RLock()
_HOOKS = {
    "_forward_pre_hooks": "forward pre-hook",
    "_forward_hooks": "forward hook",
    "_backward_pre_hooks": "backward pre-hook",
    "_backward_hooks": "backward hook",
}
_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_TORCH = os.path.dirname(os.path.abspath(torch.__file__))
_LAYERS = os.path.join(_TORCH, "nn", "modules")


def check_module(module: nn.Module, with_its_hooks: bool) -> None:
    """Raises NotCapturable when hooks, parameters or modes rule a whole capture out.

    with_its_hooks: hooks of the module itself too, which a wrapper runs around the capture.
    """
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            raise NotCapturable(f"autocast is active on {device}")
    for name in GLOBAL_HOOKS:
        for hook in getattr(torch_module, name).values():
            raise NotCapturable(f"a global module hook is set ({_name_of(hook)})", **place_of(hook))
    for name, parameter in module.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedTensorMixin):
            raise WarmUp(f"parameter {name} is not initialised yet")
    if module._backward_hooks and module._is_full_backward_hook is False:
        raise NotCapturable("a hook of register_backward_hook is set, which looks at grad_fn")
    for path, child in module.named_modules():
        child = surroundings.unwrapped(child)
        if type(vars(child).get("reducer")).__name__ == "Reducer":
            raise NotCapturable(
                "DistributedDataParallel inside of the module reduces gradients by its own hooks; "
                "wrap the ORTModule in it instead",
                module=path or type(child).__name__,
            )
        if child is module and not with_its_hooks:
            continue
        for attribute, kind in _HOOKS.items():
            for hook in getattr(child, attribute, {}).values():
                raise NotCapturable(
                    f"a {kind} is set ({_name_of(hook)})",
                    module=path or type(child).__name__,
                    **place_of(hook),
                )
    for name, parameter in module.named_parameters():
        check_tensor(parameter, f"parameter {name}")
    for name, buffer in module.named_buffers():
        if buffer.is_nested:
            raise NotCapturable(f"buffer {name} is a nested tensor")


def check_tensor(tensor: torch.Tensor, what: str) -> None:
    """Raises NotCapturable unless `tensor` is a plain dense CPU tensor of a dtype we take."""
    if type(tensor) not in (torch.Tensor, nn.Parameter, nn.Buffer):
        raise NotCapturable(f"{what} is a {type(tensor).__name__}, expected a torch.Tensor")
    foreign = _native.torch_bridge().foreign(tensor)
    if foreign is not None:
        raise NotCapturable(f"{what} {foreign}")
    if tensor.layout != torch.strided:
        raise NotCapturable(f"{what} has layout {tensor.layout}, expected torch.strided")
    if tensor.device.type != "cpu":
        raise NotCapturable(f"{what} is on {tensor.device}, expected cpu")
    inexact = tensor.is_floating_point() or tensor.is_complex()
    if inexact and tensor.dtype != torch.float32:
        raise NotCapturable(f"{what} has dtype {tensor.dtype}, expected torch.float32")


def place_of(function: Any) -> dict[str, Any]:
    """The file and first line of a function, partial, bound method or callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)
    code = code or getattr(type(function).__call__, "__code__", None)
    return {"file": code.co_filename, "line": code.co_firstlineno} if code else {}


def user_place(frames: list[tuple[str, int]]) -> dict[str, Any]:
    """The last of (file, line) neither in torch nor here; the last of all if there is none."""
    own = [f for f in frames if not f[0].startswith((_PACKAGE, _TORCH)) and f[0][:1] != "<"]
    found = own or frames
    return {"file": found[-1][0], "line": found[-1][1]} if found else {}


def caller_place() -> dict[str, Any]:
    """Where in the user's code the running call comes from."""
    frames = inspect.stack(context=0)
    return user_place([(f.filename, f.lineno) for f in reversed(frames)])


def error_place(error: BaseException) -> dict[str, Any]:
    """The deepest line of the user's code in an error's traceback."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return user_place(frames)


class PlainCheckpoint:
    """Stands for torch's reentrant CheckpointFunction during a capture."""

    @staticmethod
    def apply(function: Callable, _preserve_rng_state: bool, *args) -> Any:
        """As eager: without an argument that requires grad nothing inside gets a gradient."""
        differentiable = any(isinstance(a, torch.Tensor) and a.requires_grad for a in args)
        with torch.set_grad_enabled(torch.is_grad_enabled() and differentiable):
            mark_region(begin=True)
            result = function(*args)
            mark_region(begin=False)
            return result


@contextlib.contextmanager
def capturing() -> Iterator[set[str]]:
    """Holds the capture lock; refuses what export would get wrong; restores all random states.

    Gives a set for the names that forward's code looks up.
    """
    names: set[str] = set()
    here = surroundings.capture()
    with _LOCK, here, _kept_random_states(names), contextlib.ExitStack() as stack:
        owner = threading.get_ident()

        def replace(target: Any, name: str, make: Callable[[Any], Any]) -> None:
            original = inspect.getattr_static(target, name)
            current = getattr(target, name)
            new = make(current)

            @functools.wraps(current)
            def chosen(*args, **kwargs):
                here = threading.get_ident() == owner
                return (new if here else current)(*args, **kwargs)

            setattr(target, name, chosen)
            stack.callback(setattr, target, name, original)

        replace(torch_checkpoint, "_checkpoint_without_reentrant_generator", _no_generator)
        replace(torch.overrides, "has_torch_function", _no_fused_attention)
        for name in ("register_hook", "register_post_accumulate_grad_hook", "retain_grad"):
            replace(torch.Tensor, name, _refused(f"forward calls Tensor.{name}"))
        for name in ("manual_seed", "set_rng_state"):  # fork_rng ends with the second
            for home in (torch, torch.random):
                replace(home, name, _refused(f"forward calls torch.{name}"))
        reason = "forward runs a backward of its own"
        replace(torch.autograd, "_engine_run_backward", _refused(reason))
        replace(torch_graph.saved_tensors_hooks, "__enter__", _faithful_hooks)
        replace(grad_mode.inference_mode, "__enter__", _recorded_enter)
        replace(grad_mode.inference_mode, "__exit__", _recorded_exit)
        inference = torch.is_inference_mode_enabled()
        replace(torch, "is_inference_mode_enabled", _asked_by_user(lambda: inference))
        replace(torch, "ctc_loss", lambda _: ctc_loss)
        for home in (torch.nn.functional, torch._C._nn):
            replace(home, "scaled_dot_product_attention", attention)
        _guard_grad_fn(stack, owner)
        _silence_export(stack, owner)
        _replace_apply(stack, owner)
        _replace_recurrent(stack, owner)
        yield names


def _no_generator(_original: Callable) -> Callable:
    def generator(*_args, **_kwargs):
        mark_region(begin=True)
        yield  # checkpoint() itself calls the function here
        mark_region(begin=False)

    return generator


def _refused(reason: str) -> Callable:
    def make(_original: Callable) -> Callable:
        def refuse(*_args, **_kwargs):
            raise NotCapturable(reason, **caller_place())

        return refuse

    return make


def _asked_by_user(answer: Callable) -> Callable:
    """`answer` where the user's code asks, else torch's own."""

    def make(original: Callable) -> Callable:
        def ask(*args, **kwargs):
            frame = sys._getframe(2)  # below the function that chooses by thread
            own = frame.f_code.co_filename.startswith((_TORCH, _PACKAGE))
            return (original if own else answer)(*args, **kwargs)

        return ask

    return make


def _recorded_enter(original: Callable) -> Callable:
    """inference_mode sets the grad mode too; a trace records only what is set by itself."""

    def enter(self):
        self.grad_before = torch.is_grad_enabled()
        original(self)
        torch._C._set_grad_enabled(not self.mode)

    return enter


def _recorded_exit(original: Callable) -> Callable:
    def leave(self, *error):
        torch._C._set_grad_enabled(self.grad_before)
        return original(self, *error)

    return leave


def _faithful_hooks(original: Callable) -> Callable:
    def enter(self):
        if not surroundings.is_faithful(self.pack_hook):
            raise NotCapturable("forward sets hooks on saved tensors", **caller_place())
        return original(self)

    return enter


def _guard_grad_fn(stack: contextlib.ExitStack, owner: int) -> None:
    """What a forward does with a node, as to hook it, would be done to the trace's."""
    original = torch._C.TensorBase.grad_fn

    def grad_fn(tensor):
        file = sys._getframe(1).f_code.co_filename
        if threading.get_ident() == owner and not file.startswith((_TORCH, _PACKAGE)):
            raise NotCapturable("forward reads Tensor.grad_fn", **caller_place())
        return original.__get__(tensor)

    torch.Tensor.grad_fn = property(grad_fn)
    stack.callback(delattr, torch.Tensor, "grad_fn")


# The classes that torch makes for the gradients of our own ops (markers.py).
_STAND_IN = "GeneratedBackwardFor_ortmodule_"


def _replace_apply(stack: contextlib.ExitStack, owner: int) -> None:
    """Function.apply is a classmethod that subclasses inherit; checkpoint's own is a plain call."""
    original = inspect.getattr_static(torch.autograd.Function, "apply")

    def apply(cls, *args, **kwargs):
        if threading.get_ident() != owner or cls.__qualname__.startswith(_STAND_IN):
            return original.__get__(None, cls)(*args, **kwargs)
        if cls is torch_checkpoint.CheckpointFunction and args:
            return PlainCheckpoint.apply(*args, **kwargs)
        raise NotCapturable(
            f"forward calls the autograd.Function {cls.__qualname__}, whose backward is its own",
            **caller_place(),
        )

    torch.autograd.Function.apply = classmethod(apply)
    stack.callback(setattr, torch.autograd.Function, "apply", original)
    # `f = Doubled.apply`, bound before the capture, calls the original: it is known by a helper
    # that the original calls first.
    helper = torch_function._is_setup_context_defined

    def detect(setup_context):
        cls = sys._getframe(1).f_locals["cls"]
        if threading.get_ident() == owner and not cls.__qualname__.startswith(_STAND_IN):
            apply(cls)
        return helper(setup_context)

    torch_function._is_setup_context_defined = detect
    stack.callback(setattr, torch_function, "_is_setup_context_defined", helper)


def _no_fused_attention(original: Callable) -> Callable:
    """torch's layers ask this last before an operator that leaves rows nan where all is masked."""
    masks = ("attn_mask", "key_padding_mask", "src_mask", "src_key_padding_mask")

    def asked(tensors: Iterable[Any]) -> bool:
        caller = sys._getframe(2)
        masked = any(caller.f_locals.get(name) is not None for name in masks)
        slopes = torch.is_grad_enabled() and any(
            getattr(t, "requires_grad", False) for t in tensors
        )
        if masked and not slopes and caller.f_code.co_filename.startswith(_LAYERS):
            raise NotCapturable(
                "torch attends to masked sequences by an operator of its own where there are no "
                "gradients",
                **caller_place(),
            )
        return original(tensors)

    return asked


def _silence_export(stack: contextlib.ExitStack, owner: int) -> None:
    """A failing export prints its whole graph and logs warnings; the refusal says it in a line."""

    def quiet(*args, **kwargs):
        if threading.get_ident() != owner:
            print(*args, **kwargs)

    export_trace.print = quiet  # hides the builtin there
    stack.callback(delattr, export_trace, "print")
    loggers = [logging.getLogger(n) for n in logging.root.manager.loggerDict if n[:5] == "torch"]
    for handler in {h for logger in loggers for h in logger.handlers}:
        handler.addFilter(drop := lambda record: record.thread != owner)
        stack.callback(handler.removeFilter, drop)


def _replace_recurrent(stack: contextlib.ExitStack, owner: int) -> None:
    """torch._VF looks its functions up on each access, so an attribute of its own hides them."""

    def chosen(original: Callable, new: Callable) -> Callable:
        def call(*args, **kwargs):
            here = threading.get_ident() == owner
            return (new if here else original)(*args, **kwargs)

        return call

    for name, new in stand_ins().items():
        setattr(torch._VF, name, chosen(getattr(torch._VF, name), new))
        stack.callback(delattr, torch._VF, name)


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
def _kept_random_states(names: set[str]) -> Iterator[None]:
    """A forward that moves a generator while it is traced would have its draws baked in."""
    states = {
        "Python's random module": (random.getstate, random.setstate),
        "numpy's global generator": (np.random.get_state, np.random.set_state),
        "torch's generator": (torch.get_rng_state, torch.set_rng_state),
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
            raise NotCapturable(f"forward draws from or seeds {name} outside of tensor ops")

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


def _name_of(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)
