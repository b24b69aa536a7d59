"""What code asks of a tensor that a traced one answers otherwise: refused where it is asked.

patches.py holds `refused` around a fake run and a trace; breaks.py asks ONLY_EAGER where Dynamo
meets such a question.
"""

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from ..errors import NeedsCut, NotCapturable, ReadsData
from ..places import caller_place
from ..torch_internals.autograd import TensorBase
from ..torch_internals.replace import put
from ..torch_internals.tracing import FakeTensor
from .observation import LAYER, OWN, PACKAGE, STANDARD, kind_of_file

_HERE = threading.local()
THROUGH_DATA = "_is_the_data_of_another"  # an attribute of what forward gets of Tensor.data

# Dynamo cuts at these, or has a guard.
_CUT_AT = {
    "grad": "a gradient", "data_ptr": "where a tensor's memory is",
    "untyped_storage": "for a tensor's storage",
}  # fmt: skip
# These it answers once, or a part answers otherwise than eager.
ONLY_EAGER = {
    "grad_fn": "a tensor's grad_fn", "is_leaf": "whether a tensor is a leaf",
    "_base": "what a tensor is a view of", "_is_view": "whether a tensor is a view",
    "_version": "a tensor's version", "_cdata": "where a tensor's memory is",
    "is_inference": "whether a tensor is an inference tensor",
    "retains_grad": "whether a gradient is kept",
    "storage_offset": "where a tensor begins in memory",
}  # fmt: skip
_TEXTS = {
    torch.Tensor: ("__repr__", "__format__"), nn.Parameter: ("__repr__",),
    torch.SymFloat: ("__str__", "__repr__", "__format__"),
    torch.SymBool: ("__str__", "__repr__", "__format__"),
}  # fmt: skip
# What gives Python a number of a tensor's, and what gives another tensor of the same numbers.
_NUMBERS = (
    "item", "tolist", "equal", "allclose", "is_nonzero", "__float__", "__int__", "__index__",
    "__bool__", "__complex__",
)  # fmt: skip
_SAME_NUMBERS = (
    "to", "type", "long", "int", "short", "bool", "float", "double", "half", "clone", "detach",
    "contiguous", "cpu", "flatten", "view", "reshape", "squeeze",
)  # fmt: skip


def refusal(name: str, **place: Any) -> NotCapturable:
    """Why a capture whose forward asks a tensor for `name` is none."""
    what = _CUT_AT.get(name) or ONLY_EAGER[name]
    return (NeedsCut if name in _CUT_AT else NotCapturable)(
        f"forward asks {what} ({name})", **place
    )


@contextlib.contextmanager
def refused() -> Iterator[None]:
    """Within, a user's code of this thread that asks a tensor is refused, and one that asks for the
    text of a tensor, or of a number that was read out of one."""
    owner = threading.get_ident()
    with contextlib.ExitStack() as stack:
        for name in (*_CUT_AT, *ONLY_EAGER):
            original = getattr(TensorBase, name)
            make = _method if callable(original) else _attribute
            put(stack, torch.Tensor, name, make(name, original, owner))
        put(stack, torch.Tensor, "data", _data(TensorBase.data, owner))
        _refuse_numbers(stack, owner)
        for of, names in _TEXTS.items():
            for name in names:
                put(stack, of, name, _text(getattr(of, name), owner, of))
        yield


@contextlib.contextmanager
def in_function(given: Iterable[torch.Tensor]) -> Iterator[None]:
    """Within, this thread runs the code of an autograd.Function, which may ask for the gradient of
    a tensor that it makes itself: it does so at each call."""
    before = getattr(_HERE, "given", None)
    _HERE.given = set(map(id, given))
    try:
        yield
    finally:
        _HERE.given = before


def _check(name: str, owner: int, tensor: torch.Tensor) -> None:
    if threading.get_ident() != owner or _is_functions_own(name, tensor):
        return
    if (place := _asking(3, name)) is not None:
        raise refusal(name, **place)


def _is_functions_own(name: str, tensor: torch.Tensor) -> bool:
    given = getattr(_HERE, "given", None)
    of_function = given is not None and isinstance(tensor, FakeTensor) and id(tensor) not in given
    return name == "grad" and of_function and not isinstance(tensor, nn.Parameter)


def _asking(depth: int, name: str = "") -> dict[str, Any] | None:
    """Where the frame so far up stands, if it is of a user's code or of a package. Of torch's own
    only zero_grad asks for what is not of this call."""
    frame = sys._getframe(depth)
    file = frame.f_code.co_filename
    kind = kind_of_file(file)
    if name == "grad" and frame.f_code.co_name == "zero_grad":
        return caller_place()
    if kind in (STANDARD, PACKAGE, OWN):
        return {"file": file, "line": frame.f_lineno}
    return None


def _attribute(name: str, original: Any, owner: int) -> property:
    def get(tensor: torch.Tensor) -> Any:
        _check(name, owner, tensor)
        return original.__get__(tensor)

    def put(tensor: torch.Tensor, value: Any) -> None:
        check_set(tensor)
        original.__set__(tensor, value)

    def delete(tensor: torch.Tensor) -> None:
        check_set(tensor)
        original.__delete__(tensor)

    def check_set(tensor: torch.Tensor) -> None:
        if _is_functions_own(name, tensor):
            return
        if threading.get_ident() == owner and (place := _asking(3, name)) is not None:
            what = _CUT_AT.get(name) or ONLY_EAGER[name]
            raise NotCapturable(f"forward sets {what} ({name})", **place)

    return property(get, put, delete)


def _data(original: Any, owner: int) -> property:
    """Tensor.data: no trace sees torch's own, which is detach() but for the tensor's version."""

    def by_forward() -> bool:
        """Whether a user's code or a layer of torch's asks."""
        kind = kind_of_file(sys._getframe(2).f_code.co_filename)
        return threading.get_ident() == owner and kind in (STANDARD, PACKAGE, OWN, LAYER)

    def get(tensor: torch.Tensor) -> torch.Tensor:
        if not by_forward():
            return original.__get__(tensor)
        data = tensor.detach()
        setattr(data, THROUGH_DATA, True)
        return data

    def put(tensor: torch.Tensor, value: torch.Tensor) -> None:
        if by_forward():
            raise NotCapturable("forward assigns to the data of a tensor", **caller_place())
        original.__set__(tensor, value)

    return property(get, put)


def _refuse_numbers(stack: contextlib.ExitStack, owner: int) -> None:
    """A tensor that is neither a parameter, nor a buffer, nor an argument has its numbers while it
    is traced: to read one would be to keep it."""
    held = WeakIdKeyDictionary()

    def is_held(value: Any) -> bool:
        real = isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)
        return (real and type(value) in (torch.Tensor, nn.Parameter)) or value in held

    def reading(original: Callable) -> Callable:
        def read(*args: Any, **kwargs: Any) -> Any:
            asks = threading.get_ident() == owner and any(map(is_held, args[:2]))
            place = _asking(2) if asks else None
            if place is not None:
                raise NeedsCut("forward reads a number of a tensor that it holds", **place)
            return original(*args, **kwargs)

        return functools.wraps(original)(read)

    def keeping(original: Callable) -> Callable:
        def same(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            found = original(tensor, *args, **kwargs)
            if threading.get_ident() == owner and is_held(tensor):
                held[found] = None
            return found

        return functools.wraps(original)(same)

    for names, make in ((_NUMBERS, reading), (_SAME_NUMBERS, keeping)):
        for name in names:
            put(stack, torch.Tensor, name, make(getattr(torch.Tensor, name)))
    for name in ("equal", "allclose", "is_nonzero"):
        put(stack, torch, name, reading(getattr(torch, name)))


def _method(name: str, original: Callable, owner: int) -> Callable:
    def method(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        _check(name, owner, tensor)
        return original(tensor, *args, **kwargs)

    return method


def _text(original: Callable, owner: int, of: type) -> Callable:
    kind, what = (NeedsCut, "a tensor") if issubclass(of, torch.Tensor) else (ReadsData, "a number")

    def text(value: Any, *args: Any, **kwargs: Any) -> str:
        if threading.get_ident() == owner and (place := _asking(2)) is not None:
            raise kind(f"forward asks for the text of {what}", **place)
        return original(value, *args, **kwargs)

    return text
