"""Ops on complex numbers: each is a node of domain aten, as the engine's kernels are real, unless a
rule has real nodes for pairs of parts that are known.

Called by translator.py. Movement around them (a transposed output, a write through a slice) is the
engine's; so are writes through views that make real numbers of them, or complex ones of real.
"""

from typing import Any

import torch

from .emit import COMPLEX, HAS_COMPLEX, is_value
from .opaque import emit_opaque
from .refs import leaves
from .registry import ON_PAIRS, inverse


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
    if (rule := ON_PAIRS.get(name)) is not None:
        outs = rule(t, *args, **kwargs)
        if outs is not NotImplemented:
            return outs
    return emit_opaque(t, args, kwargs, HAS_COMPLEX)


def _copied(t: Any, x: Any, source: Any) -> Any:
    """What x holds after a copy, which torch does not differentiate: x is taken nowhere."""
    if x.dtype not in COMPLEX:
        t.refuse("forward copies complex numbers to real ones")
    if source.dtype != x.dtype:
        made = source.dims, x.dtype
        source = t.aten("_to_copy", [source], made, HAS_COMPLEX, dtype=x.dtype)
    taken = [t.scalar(False, "bool"), x, source]
    return t.aten("where.self", taken, (x.dims, x.dtype), HAS_COMPLEX)


@inverse("view_as_real.default")
def undo_view_as_real(t, base, view):
    return t.as_complex(view)


@inverse("view_as_complex.default")
def undo_view_as_complex(t, base, view):
    return t.as_real(view)


@inverse("real.default")
def undo_real(t, base, view):
    return _with_half(t, base, view, 0) if base.dtype in COMPLEX else view


@inverse("imag.default")
def undo_imag(t, base, view):
    return _with_half(t, base, view, 1)


def _with_half(t: Any, base: Any, view: Any, which: int) -> Any:
    """`base` with the real or the imaginary numbers of `view`."""
    halves = [t.slice(t.as_real(base), base.rank, k, k + 1) for k in (0, 1)]
    halves[which] = t.unsqueeze(view, [base.rank])
    return t.as_complex(t.concat(halves, base.rank))


@inverse("_conj.default", "conj.default")
def undo_conj(t, base, view):
    if base.dtype not in COMPLEX:
        return view
    return t.aten("conj_physical", [view], (view.dims, view.dtype), HAS_COMPLEX)


@inverse("adjoint.default", "mH.default", "matrix_H.default")
def undo_adjoint(t, base, view):
    return undo_conj(t, base, t.swap(view, view.rank - 2, view.rank - 1))
