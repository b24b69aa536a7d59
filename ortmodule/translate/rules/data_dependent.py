"""Ops that choose elements by their values: how many, only a run tells.

The graph's name for such a size is that of the node which finds it; the translation learns it from
the value (emit.py), and what follows is made of it like of any size.
"""

from ..emit import COMPLEX, FLOATING
from ..registry import aten
from .index import index, mask_positions


@aten("nonzero.default", "argwhere.default")
def nonzero(t, x):
    if x.rank == 0 or x.dtype in COMPLEX:
        return NotImplemented
    return t.transpose(t.found(x), [1, 0])


@aten("nonzero_numpy.default", "where.default")
def nonzero_by_axis(t, x):
    return NotImplemented if x.rank == 0 or x.dtype in COMPLEX else mask_positions(t, x)


@aten("masked_select.default")
def masked_select(t, x, mask):
    if mask.dtype != "bool":
        t.refuse(f"torch takes no mask of {mask.dtype}")
    rank = max(x.rank, mask.rank)
    if rank == 0:
        x, mask = t.reshape(x, [1]), t.reshape(mask, [1])
    dims = _broadcast(t, x.dims, mask.dims)
    return index(t, t.expand(x, dims), [t.expand(mask, dims)])


def _broadcast(t, a, b):
    """A trace takes any sizes, and the run of what nothing reads meets none."""
    rank = max(len(a), len(b))
    a, b = ([1] * (rank - len(dims)) + list(dims) for dims in (a, b))
    for x, y in zip(a, b, strict=True):
        if x != y and 1 not in (x, y):
            equal = t.op("Equal", t.scalar(x, "int64"), t.scalar(y, "int64"))
            t.check(equal, f"a mask of size {y} does not fit a size of {x}")
    return [y if x == 1 else x for x, y in zip(a, b, strict=True)]


@aten("_unique2.default", "_unique.default")
def unique(t, x, sorted=True, return_inverse=False, return_counts=False):  # noqa: A002
    """torch sorts on the host whether it is asked to or not."""
    _check_comparable(t, x)
    given = t.cast(x, "int64") if x.dtype == "bool" else x  # as other runtimes take it
    found, _, inverse, counts = t.op("Unique", given, n=4)
    found = t.cast(found, x.dtype)
    return _used(t, [found, t.reshape(inverse, x.dims), counts], return_inverse, return_counts)


@aten("unique_dim.default")
def unique_dim(t, x, dim, sorted=True, return_inverse=False, return_counts=False):  # noqa: A002
    if x.rank == 0 or 0 in x.dims:
        return NotImplemented
    _check_comparable(t, x)
    found, _, inverse, counts = t.op("Unique", x, n=4, axis=dim % x.rank)
    return _used(t, [found, inverse, counts], True, True)


@aten("unique_consecutive.default")
def unique_consecutive(t, x, return_inverse=False, return_counts=False, dim=None):
    if dim is not None and x.rank != 1:
        return NotImplemented
    if t.gradient_to(0):
        t.refuse("torch has no gradient for it")
    flat = x if x.rank == 1 else t.op("Reshape", x, t.ints([-1]))
    zero, one = t.scalar(0, "int64"), t.scalar(1, "int64")
    steps = t.op("Range", zero, t.g.size(flat.dims[0]), one)
    before = t.op("Gather", flat, t.op("Max", t.op("Sub", steps, one), zero), axis=0)
    same = t.op("And", t.op("Equal", flat, before), t.op("Greater", steps, zero))
    (first,) = mask_positions(t, t.op("Not", same))
    found = t.op("Gather", flat, first, axis=0)
    begun = t.op("CumSum", t.cast(t.op("Not", same), "int64"), zero)
    inverse = t.op("Sub", begun, one)
    counts = t.op(
        "ScatterElements", t.full(found.dims, 0, "int64"), inverse,
        t.full(flat.dims, 1, "int64"), axis=0, reduction="add",
    )  # fmt: skip
    return _used(t, [found, t.reshape(inverse, x.dims), counts], return_inverse, return_counts)


def _check_comparable(t, x):
    if x.dtype in COMPLEX:
        t.refuse("complex numbers have no order")
    if t.gradient_to(0):
        t.refuse("torch has no gradient for it")
    if x.dtype in FLOATING:  # NaNs are one value here, in torch each is one of its own
        t.check(t.op("Equal", x, x), "unique is given NaNs, each of which torch takes for another")


def _used(t, results, *asked):
    """What forward uses of (elements, positions, counts)."""
    for i in (1, 2):
        if i < len(t.node.meta["val"]) and t.uses(i):
            if not asked[i - 1]:
                t.refuse("forward uses a result that it did not ask for")
            if t.out_dtype(i) != "int64":  # and what follows is traced with that
                t.refuse(f"torch traces positions as {t.out_dtype(i)}, its kernel gives int64")
        else:
            results[i] = None
    return results[: len(t.node.meta["val"])]


@aten("repeat_interleave.self_Tensor")
def repeat_interleave(t, x, repeats, dim=None, *, output_size=None):
    if dim is None:
        x, dim = t.op("Reshape", x, t.ints([-1])), 0
    if x.rank == 0 or repeats.rank > 1:
        return NotImplemented
    axis = dim % x.rank
    repeats = t.expand(
        t.reshape(repeats, [*[1] * (1 - repeats.rank), *repeats.dims]), [x.dims[axis]]
    )
    return t.op("Gather", x, repeated(t, repeats), axis=axis)


@aten("repeat_interleave.Tensor")
def repeated(t, repeats, *, output_size=None):
    if repeats.dtype in FLOATING:
        t.refuse(f"torch repeats no {repeats.dtype} times")
    return t.ort("RepeatedPositions", t.cast(repeats, "int64"))
