"""Writes through any view: what the view makes of a tensor's positions says where its elements lie.

Called by refs.py for views without an inverse of their own, and by rules that write to positions.
"""

from typing import Any

from .emit import COMPLEX


def positions_of(t: Any, base: Any) -> Any:
    """int64, of the sizes of `base`: the number of each of its elements."""
    first, step = t.scalar(0, "int64"), t.scalar(1, "int64")
    return t.reshape(t.op("Range", first, t.op("Size", base), step), base.dims)


def put(t: Any, base: Any, at: Any, new: Any) -> Any:
    """`base` with the elements of `new` at the positions `at`, each of which comes once."""
    at = t.op("Reshape", at, t.ints([-1]))
    if base.dtype in COMPLEX:  # a pair of real numbers each
        pairs = t.as_real(base)
        flat, rows = (t.op("Reshape", x, t.ints([-1, 2])) for x in (pairs, t.as_real(new)))
        flat = t.op("ScatterND", flat, t.unsqueeze(at, [1]), rows)
        return t.as_complex(t.reshape(flat, pairs.dims))
    flat, values = (t.op("Reshape", x, t.ints([-1])) for x in (base, t.cast(new, base.dtype)))
    flat = t.op("ScatterElements", flat, at, values, axis=0, reduction="none")
    return t.reshape(flat, base.dims)
