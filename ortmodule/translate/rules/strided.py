"""as_strided and its kin: elements by their place in a tensor's memory.

A value of the graph has no memory but its own elements, so that torch's places are known only where
the traced tensor's elements lie side by side, in whatever order of its axes.
"""

import math

from ..emit import COMPLEX
from ..memory import memory_order
from ..positions import put
from ..provenance import traced_value
from ..registry import aten, inverse


@aten("as_strided.default", "as_strided_copy.default")
def as_strided(t, x, size, stride, storage_offset=None):
    _check_places(t, x, size, stride, storage_offset)
    if x.dtype in COMPLEX:
        return NotImplemented
    flat = t.reshape(t.transpose(x, _order(t)), [-1])
    return t.op("Gather", flat, _places(t, size, stride, storage_offset), axis=0)


@aten("as_strided_scatter.default")
def as_strided_scatter(t, x, src, size, stride, storage_offset=None):
    """torch's own, whose gradient is no derivative (it lacks what src does not cover)."""
    if _order(t) != tuple(range(x.rank)):
        t.refuse("as_strided_scatter of a tensor whose axes lie in another order")
    _check_places(t, x, size, stride, storage_offset)
    return NotImplemented


@inverse("as_strided.default")
def put_strided(t, base, view, size, stride, storage_offset=None):
    if not _each_once(size, stride):
        t.refuse("forward writes through as_strided to places that it may have twice")
    order = _order(t)
    places = _places(t, size, stride, storage_offset)
    written = put(t, t.transpose(base, order), places, view)
    return t.transpose(written, [order.index(axis) for axis in range(len(order))])


def _places(t, size, stride, offset):
    """int64 [*size]: storage_offset + sum over axes of index * stride."""
    places = t.scalar(offset or 0, "int64")
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        along = t.op("Range", t.scalar(0, "int64"), t.scalar(count, "int64"), t.scalar(1, "int64"))
        along = t.op("Mul", along, t.scalar(step, "int64"))
        later = range(1, len(size) - axis)
        places = t.op("Add", places, t.unsqueeze(along, list(later)))
    return places


def _each_once(size, stride):
    """Whether no place is known to hold two of the elements: each axis steps beyond what the
    narrower ones reach."""
    axes = [(step, n) for step, n in zip(stride, size, strict=True) if n != 1]
    if not all(isinstance(step, int) for step, _ in axes):
        return False
    reach = 0
    for step, n in sorted(axes, key=lambda axis: axis[0]):
        if step <= reach:
            return False
        reach += step * (n - 1) if isinstance(n, int) else math.inf
    return True


def _order(t):
    """The axes of the running op's tensor as they lie in memory."""
    traced = traced_value(t.node.args[0])
    order = memory_order(traced)
    if order is None:
        t.refuse("as_strided of a tensor whose elements do not lie side by side")
    return order or tuple(range(traced.dim()))


def _check_places(t, x, size, stride, offset):
    """Refuses what reads or writes elsewhere than eager would."""
    start = traced_value(t.node.args[0]).storage_offset()
    known = t.refs[0].storage.source is None and isinstance(start, int) and start == 0
    if not (offset is None or known):
        t.refuse("as_strided of a tensor that does not lie whole at the start of its memory")
    numbers = [*size, *stride, offset or 0, *x.dims]
    if not all(isinstance(number, int) for number in numbers) or 0 in size:
        return
    last = (offset or 0) + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if last >= math.prod(x.dims):
        t.refuse("as_strided reaches beyond its tensor's elements")
