"""Writing by index."""

import math

import torch

from ..emit import FLOATING
from ..registry import aten
from .index import broadcast_index, from_zero, split_indices, without_masks

_REDUCE = {"add": "add", "sum": "add", "multiply": "mul", "prod": "mul", "amax": "max",
           "amin": "min", "mean": "add"}  # fmt: skip


@aten("scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce")
def scatter(t, x, dim, index, src, *, reduce=None):
    if reduce is not None and t.needs_gradient():
        return NotImplemented  # torch refuses to differentiate it
    axis = dim % max(x.rank, 1)
    src = t.cast(src, x.dtype) if hasattr(src, "dims") else t.full(index.dims, src, x.dtype)
    return _scatter(t, x, axis, index, src, _REDUCE[reduce] if reduce else "none")


@aten("scatter_add.default")
def scatter_add(t, x, dim, index, src):
    return _scatter(t, x, dim % max(x.rank, 1), index, src, "add")


@aten("scatter_reduce.two")
def scatter_reduce(t, x, dim, index, src, reduce, *, include_self=True):
    axis = dim % max(x.rank, 1)

    def read(values):
        return t.op("GatherElements", values, index, axis=axis)

    def write(values, updates, reduction):
        return t.op("ScatterElements", values, index, updates, axis=axis, reduction=reduction)

    if x.rank == 0 or index.rank == 0 or _has_no_gradient(t, src, index, reduce):
        return NotImplemented
    index = from_zero(t, index, x.dims[axis])
    return _reduced(t, x, _as_large(t, src, index), reduce, include_self, read, write)


@aten("index_reduce.default")
def index_reduce(t, x, dim, index, source, reduce, *, include_self=True):
    def read(values):
        return t.op("Gather", values, index, axis=dim % x.rank)

    def write(values, updates, reduction):
        return _along(t, values, dim, index, updates, reduction)

    if x.rank == 0 or index.rank == 0:
        return NotImplemented
    index = from_zero(t, index, x.dims[dim])
    return _reduced(t, x, source, reduce, include_self, read, write)


def _reduced(t, x, src, reduce, include_self, read, write):
    """x at some places reduced with src; without itself where `include_self` is false."""
    if reduce == "mean" and x.dtype not in FLOATING:
        return NotImplemented  # integers are divided downwards
    reduction = _REDUCE[reduce]
    start = x if include_self else write(x, _neutral(t, reduction, src), "none")
    if reduce == "mean":
        ones = t.full(src.dims, 1, x.dtype)
        count = write(t.full(x.dims, int(include_self), x.dtype), ones, "add")
        return t.op("Div", write(start, src, "add"), t.op("Max", count, t.scalar(1, x.dtype)))
    if not include_self and reduction in ("max", "min") and t.needs_gradient():
        return _largest_without_self(t, x, src, reduction, start, read, write)
    return write(start, src, reduction)


def _largest_without_self(t, x, src, reduction, start, read, write):
    """The largest or least of src, whose gradient torch shares with an x that is as large, though x
    takes no part."""
    x_now = t.stop(x)
    found = write(t.stop(start), t.stop(src), reduction)
    alike, neutral = t.op("Equal", read(x_now), read(found)), _neutral(t, reduction, src)
    start = write(x, t.op("Where", alike, read(x_now), neutral), "none")
    result = write(start, src, reduction)
    # Where all of src is what the others start from, that would have a share: a mean's are right.
    ends = t.op("Equal", found, t.scalar(-math.inf if reduction == "max" else math.inf, x.dtype))
    alone = t.op("And", ends, t.op("Not", t.op("Equal", x_now, found)))
    return t.op("Where", alone, _reduced(t, x, src, "mean", False, read, write), result)


def _neutral(t, reduction, like):
    """What changes nothing, in the shape of src."""
    least, most = -math.inf, math.inf
    if like.dtype not in FLOATING:
        ends = torch.iinfo(getattr(torch, like.dtype))
        least, most = ends.min, ends.max
    value = {"add": 0, "mul": 1, "max": least, "min": most}[reduction]
    return t.full(like.dims, value, like.dtype)


def _scatter(t, x, axis, index, src, reduction):
    if x.rank == 0 or index.rank == 0 or _has_no_gradient(t, src, index):
        return NotImplemented
    index = from_zero(t, index, x.dims[axis])
    src = _as_large(t, src, index)
    return t.op("ScatterElements", x, index, src, axis=axis, reduction=reduction)


def _has_no_gradient(t, src, index, reduce="sum"):
    """Whether torch's backward raises: it gives a gradient of index's shape for a larger src, which
    that of a product or an extremum reads in any case. A trace has compared the sizes."""
    larger = list(src.dims) != list(index.dims)
    reads = reduce in ("prod", "amax", "amin") and t.needs_gradient()
    return larger and (reads or t.gradient_to(3))


def _as_large(t, src, index):
    """torch lets src be larger than index."""
    for i in range(index.rank):
        if src.dims[i] != index.dims[i]:
            src = t.slice(src, i, 0, index.dims[i])
    return src


def _along(t, x, dim, index, updates, reduction):
    """Slices of `dim` at the positions `index` (int64) become, or are joined with, updates'."""
    axis = dim % x.rank
    moved, updates = t.swap(x, 0, axis), t.swap(updates, 0, axis)
    at = t.unsqueeze(index, [1])
    return t.swap(t.op("ScatterND", moved, at, updates, reduction=reduction), 0, axis)


@aten("index_add.default")
def index_add(t, x, dim, index, source, *, alpha=1):
    if x.rank == 0 or index.rank == 0:
        return NotImplemented
    source = t.cast(source, x.dtype)
    source = source if alpha == 1 else t.op("Mul", source, t.scalar(alpha, x.dtype))
    return _along(t, x, dim, from_zero(t, index, x.dims[dim]), source, "add")


@aten("index_copy.default")
def index_copy(t, x, dim, index, source):
    if x.rank == 0 or index.rank == 0:
        return NotImplemented
    index = from_zero(t, index, x.dims[dim])
    return _along(t, x, dim, index, t.cast(source, x.dtype), "none")


@aten("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(t, x, dim, index, value):
    if x.rank == 0 or index.rank == 0:
        return NotImplemented
    if t.gradient_to(3):
        return NotImplemented  # torch counts a position that comes twice twice
    axis = dim % x.rank
    dims = [d if i != axis else index.dims[0] for i, d in enumerate(x.dims)]
    t.hold_positions(index, x.dims[axis], from_end=True)
    index = t.cast(index, "int64")  # here torch takes negative positions
    return _along(t, x, dim, index, t.full(dims, value, x.dtype), "none")


@aten("index_put.default", "_index_put_impl.default")
def index_put(t, x, indices, values, accumulate=False, unsafe=False):
    given = [i for i in indices if i is not None]
    values = t.cast(values, x.dtype)
    is_told = not any(t.depends_on_data(size) for size in values.dims)
    if len(given) == 1 and given[0].dtype == "bool" and not accumulate and is_told:
        before = next(i for i, index in enumerate(indices) if index is not None)
        if values.rank <= (0 if before else x.rank - given[0].rank):
            return _put_by_mask(t, x, before, given[0], values)
    indices = without_masks(t, indices)
    given = [i for i in indices if i is not None]
    axes, rest, together = split_indices(x, indices)
    for i, axis in zip(given, axes, strict=False):
        t.hold_positions(i, x.dims[axis], from_end=True)
    if together and axes[0] > 0 and values.rank > 0:
        return NotImplemented  # values' axes lie in another order
    at = broadcast_index(t, given)
    moved = t.transpose(x, [*axes, *rest])
    updates = _spread(t, values, [*at.dims[:-1], *(x.dims[i] for i in rest)])
    reduction = "add" if accumulate else "none"
    moved = t.op("ScatterND", moved, at, updates, reduction=reduction)
    order = [*axes, *rest]
    return t.transpose(moved, [order.index(i) for i in range(x.rank)])


def _spread(t, values, dims):
    """`values` of these dims. Whether a size that depends on data is a 1 to broadcast, a run tells:
    positions then repeat, whose gradient is a sum."""
    axes = range(len(dims) - values.rank, len(dims))
    for axis, (size, wanted) in enumerate(zip(values.dims, (dims[i] for i in axes), strict=True)):
        if size == wanted or t.standard or not t.depends_on_data(size):  # Expand is told by a run
            continue
        have, want = t.g.size(size), t.g.size(t.canonical(wanted))
        zero, one = t.scalar(0, "int64"), t.scalar(1, "int64")
        fits = t.op("Or", t.op("Equal", have, want), t.op("Equal", have, one))
        t.check(fits, f"values of size {size} are assigned to {wanted} places")
        steps = t.op("Range", zero, want, one)
        values = t.op("Gather", values, t.op("Min", steps, t.op("Sub", have, one)), axis=axis)
    return t.expand(values, dims)


def _put_by_mask(t, x, before, mask, values):
    """x[mask] = the same everywhere the mask is set, which lies `before` axes from the first."""
    after = x.rank - mask.rank - before
    mask = t.reshape(mask, [*[1] * before, *mask.dims, *[1] * after])
    return t.op("Where", mask, values, x)
