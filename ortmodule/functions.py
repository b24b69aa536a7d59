"""The autograd.Functions that forward calls: each is one operator of torch in the traced graph.

It runs the user's own forward and, from torch's history of it, the user's own backward. patches.py
holds `recorded` around a capture. Where a call is rehearsed its backward is rehearsed too: what
that writes, no capture can hold.
"""

import contextlib
import functools
import inspect
import itertools
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.autograd.function import AUTOGRAD_FUNCTION_COUNTER
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils._python_dispatch import TorchDispatchMode

from . import kinds
from .errors import NeedsExactSizes, NotCapturable
from .places import caller_place
from .saved import storage_key
from .translate import autocast

NAMESPACE = "autograd_function"
# The classes that torch makes for the gradients of operators written in Python.
_OF_OPERATORS = "GeneratedBackwardFor_"
_APPLY = inspect.getattr_static(torch.autograd.Function, "apply").__func__
_ORIGINAL = types.FunctionType(
    _APPLY.__code__, _APPLY.__globals__, "apply", _APPLY.__defaults__, _APPLY.__closure__
)
_SCHEMA = "(Tensor[] tensors, SymInt[] sizes) -> Tensor[]"
_HERE = threading.local()
_NUMBERS = itertools.count()
_OPERATORS: dict[tuple, "_Operator"] = {}


class _Hole(NamedTuple):
    """Stands among the arguments of a Function for the tensor or size that an operator is given."""

    kind: type


class _Operator(NamedTuple):
    """`gives`: whether the Function returns a tensor or a tuple, known once it has run."""

    overload: Any
    gives: list[type]


@contextlib.contextmanager
def recorded(instead: Mapping[type, Callable]) -> Iterator[None]:
    """Within, this thread's calls of Function.apply are the capture's; `instead`: of what to call
    for some of torch's own.

    The code of torch's function is another then: `f = Doubled.apply`, bound before, is it too.
    """
    outer = getattr(_HERE, "capture", None)
    code = _APPLY.__code__
    _HERE.capture = next(AUTOGRAD_FUNCTION_COUNTER), instead
    _APPLY.__code__ = _stand_in_code()
    try:
        yield
    finally:
        _APPLY.__code__ = code
        _HERE.capture = outer


def _stand_in_code() -> types.CodeType:
    """Of a function with the free variable of Function.apply, which runs with torch's globals."""
    __class__ = None

    def apply(cls, *args, **kwargs):
        from ortmodule.functions import applied

        return __class__ and applied(cls, args, kwargs)

    return apply.__code__


def applied(cls: type, args: tuple, kwargs: dict) -> Any:
    """What `cls.apply(*args, **kwargs)` gives, in a thread that captures and in any other."""
    capture = getattr(_HERE, "capture", None)
    plain = kwargs or cls.__qualname__.startswith(_OF_OPERATORS)  # torch takes no keywords
    if capture is None or plain or getattr(_HERE, "inside", False):
        return _ORIGINAL(cls, *args, **kwargs)
    made_before, instead = capture
    if cls in instead:
        return instead[cls](*args, **kwargs)
    if cls._backward_cls._autograd_function_id > made_before:
        _refuse(cls, "forward makes")
    return _recorded(cls, args)


def plain_apply(cls: type, *args: Any) -> Any:
    """torch's own `cls.apply(*args)`, within a capture too."""
    return _ORIGINAL(cls, *args)


def _recorded(cls: type, args: tuple) -> Any:
    given = tuple(_described(cls, a) for a in args)
    state = tuple(autocast.ambient().items())
    with torch._C.DisableTorchFunction():
        if get_proxy_mode() is None:
            return _rehearsed(cls, args)
        operator = _operator(cls, given, state)
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        outs = operator.overload(tensors, [a for a in args if isinstance(a, torch.SymInt)])
    return tuple(outs) if operator.gives[0] is tuple else outs[0]


def _refuse(cls: type, what: str, kind: type = NotCapturable) -> None:
    raise kind(f"{what} the autograd.Function {cls.__qualname__}", **caller_place())


def _described(cls: type, argument: Any) -> Any:
    """An argument of a Function as part of its operator's identity."""
    if isinstance(argument, torch.Tensor):
        return _Hole(torch.Tensor)
    if isinstance(argument, torch.SymInt):
        return _Hole(torch.SymInt)
    if isinstance(argument, (torch.SymFloat, torch.SymBool)):
        _refuse(cls, "forward gives a number made of sizes to", NeedsExactSizes)
    if not isinstance(argument, kinds.SCALARS):
        _refuse(cls, f"forward gives a {type(argument).__name__} to")
    return type(argument), repr(argument), argument


def _operator(cls: type, given: tuple, state: tuple) -> _Operator:
    """The operator that calls `cls` with these arguments under this state of autocast."""
    key = cls, given, state
    if key not in _OPERATORS:
        gives: list[type] = []

        def run(tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
            rest = {torch.Tensor: iter(tensors), torch.SymInt: iter(sizes)}
            args = [next(rest[g.kind]) if isinstance(g, _Hole) else g[-1] for g in given]
            with _inside(), torch._C.DisableTorchFunction(), autocast.entered(dict(state)):
                out = cls.apply(*args)
            gives[:] = [type(out)]
            return list(out) if isinstance(out, tuple) else [out]

        _OPERATORS[key] = _Operator(_defined(cls.__name__, run), gives)
    return _OPERATORS[key]


def _defined(name: str, run: Callable) -> Any:
    name, overload = name if name.isidentifier() else "function", f"n{next(_NUMBERS)}"
    library = _library()
    library.define(f"{name}.{overload}{_SCHEMA}")
    for key in ("Autograd", "CompositeExplicitAutograd"):
        library.impl(f"{name}.{overload}", run, key)
    torch.library.register_fake(f"{NAMESPACE}::{name}.{overload}", run, lib=library)
    return getattr(getattr(getattr(torch.ops, NAMESPACE), name), overload)


@functools.cache
def _library() -> torch.library.Library:
    return torch.library.Library(NAMESPACE, "FRAGMENT")


@contextlib.contextmanager
def _inside() -> Iterator[None]:
    before = getattr(_HERE, "inside", False)
    _HERE.inside = True
    try:
        yield
    finally:
        _HERE.inside = before


class _Draws(TorchDispatchMode):
    """Notes whether random numbers are drawn."""

    def __init__(self):
        super().__init__()
        self.any = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.any = self.any or torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def _rehearsed(cls: type, args: tuple) -> Any:
    """What the Function gives; refuses one that no operator without effects stands for."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    versions = [t._version for t in tensors]
    with _inside(), _Draws() as draws:
        out = _ORIGINAL(cls, *args)
        outs = out if isinstance(out, tuple) else (out,)
        if not outs or not all(isinstance(o, torch.Tensor) for o in outs):
            _refuse(cls, "a value that is no tensor comes from")
        _rehearse_backward(outs)
    if [t._version for t in tensors] != versions:
        _refuse(cls, "an argument is written to by")
    memory = [storage_key(o) for o in outs]
    if len({*memory} - {storage_key(t) for t in tensors}) < len(outs):
        _refuse(cls, "a view comes from")
    if draws.any:
        _refuse(cls, "random numbers are drawn by")
    return out


def _rehearse_backward(outs: Sequence[torch.Tensor]) -> None:
    """Runs the user's backward once on tensors without data; what it raises, it will then."""
    node = next((o.grad_fn for o in outs if o.requires_grad), None)
    with contextlib.suppress(Exception), torch.no_grad():
        if node is not None:
            node.apply(*map(torch.empty_like, outs))
