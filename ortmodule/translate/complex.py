"""Ops on complex numbers: each is a node of domain aten, as the engine's kernels are real.

Called by translator.py. Movement around them (a transposed output, a write through a slice) is the
engine's.
"""

from typing import Any

import torch

from .emit import COMPLEX, is_value
from .opaque import emit_opaque
from .refs import leaves

_REASON = "it has complex numbers"


def is_complex(t: Any, args: Any, kwargs: Any) -> bool:
    """Whether complex numbers go into the running op, or come out."""
    given, made = leaves((args, kwargs)), leaves(t.node.meta.get("val"))
    return (
        any(isinstance(x, complex) for x in given)
        or any(is_value(x) and x.dtype in COMPLEX for x in given)
        or any(isinstance(x, torch.Tensor) and x.is_complex() for x in made)
    )


def emit_complex(t: Any, name: str, args: list, kwargs: dict) -> Any:
    """The running op on complex numbers."""
    if name == "copy.default":
        return _copied(t, *args[:2])
    return emit_opaque(t, args, kwargs, _REASON)


def _copied(t: Any, x: Any, source: Any) -> Any:
    """What x holds after a copy, which torch does not differentiate: x is taken nowhere."""
    if x.dtype not in COMPLEX:
        t.refuse("forward copies complex numbers to real ones")
    if source.dtype != x.dtype:
        source = _operator(t, "_to_copy", [source], _type(x.dtype, source), dtype=x.dtype)
    return _operator(t, "where.self", [t.scalar(False, "bool"), x, source], _type(x.dtype, x))


def _type(dtype: str, like: Any) -> str:
    return f"{dtype}[{', '.join(map(str, like.dims))}]"


def _operator(t: Any, name: str, inputs: list, result: str, **attrs: Any) -> Any:
    """One node of an operator that gives one tensor, of type `result`."""
    attrs |= {"schema": f"aten::{name}", "reason": _REASON, "effect": "none", "types": [result]}
    return t.g.emit(name, inputs, attrs, 1, "aten")[0]
