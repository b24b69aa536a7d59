"""Sums, means, extrema, norms and cumulative ops."""

import math

import torch

from ..emit import FLOATING, dtype_name
from ..registry import aten, wide


def _axes(dim):
    if dim is None:
        return None
    return [dim] if isinstance(dim, int) else list(dim)


def _reducer(onnx: str):
    def rule(t, x, dim=None, keepdim=False, *, dtype=None):
        x = t.cast(x, t.out_dtype())
        return t.reduce(onnx, x, _axes(dim), keepdim)

    return rule


aten("sum.default", "sum.dim_IntList")(_reducer("ReduceSum"))
aten("mean.default", "mean.dim")(_reducer("ReduceMean"))
aten("amax.default")(_reducer("ReduceMax"))
aten("amin.default")(_reducer("ReduceMin"))


def _value_alone(onnx: str):
    """torch's gradient has rules of its own for NaNs, and for a product for zeros."""
    rule = _reducer(onnx)
    return lambda t, *args, **kwargs: (
        NotImplemented if t.needs_gradient() else rule(t, *args, **kwargs)
    )


aten("prod.default", "prod.dim_int")(_value_alone("ReduceProd"))
aten("max.default")(_value_alone("ReduceMax"))
aten("min.default")(_value_alone("ReduceMin"))


def _extremum(argument: str):
    """Values are gathered by the index found, so that the gradient goes where torch's goes."""

    def rule(t, x, dim, keepdim=False):
        if x.rank == 0:
            return [x, t.scalar(0, "int64")]
        axis = dim % x.rank
        index = t.op(argument, x, axis=axis, keepdims=1)
        value = t.op("GatherElements", x, index, axis=axis)
        return [value, index] if keepdim else [t.squeeze(value, [axis]), t.squeeze(index, [axis])]

    return rule


aten("max.dim")(_extremum("ArgMax"))
aten("min.dim")(_extremum("ArgMin"))


def _argument(onnx: str):
    def rule(t, x, dim=None, keepdim=False):
        if x.dtype == "bool":
            x = t.cast(x, "int32")
        if dim is None:
            index = t.op(onnx, t.op("Reshape", x, t.ints([-1])), axis=0, keepdims=0)
            return t.reshape(index, [1] * x.rank) if keepdim else index
        return t.op(onnx, x, axis=dim % max(x.rank, 1), keepdims=int(keepdim))

    return rule


aten("argmax.default")(_argument("ArgMax"))
aten("argmin.default")(_argument("ArgMin"))


@aten("any.default", "any.dim", "any.dims", "_is_any_true.default")
def any_(t, x, dim=None, keepdim=False):
    x = t.cast(x, "bool")
    if dim != []:  # of nothing: false, which a maximum would not be
        x = t.cast(t.reduce("ReduceSum", t.cast(x, "int64"), _axes(dim), keepdim), "bool")
    return t.cast(x, t.out_dtype())  # of bytes a byte


@aten("all.default", "all.dim", "all.dims", "_is_all_true.default")
def all_(t, x, dim=None, keepdim=False):
    x = t.cast(x, "bool")
    if dim != []:
        x = t.cast(t.reduce("ReduceMin", t.cast(x, "int32"), _axes(dim), keepdim), "bool")
    return t.cast(x, t.out_dtype())


@aten("count_nonzero.default", "count_nonzero.dim_IntList")
def count_nonzero(t, x, dim=None):
    return t.reduce("ReduceSum", t.cast(t.cast(x, "bool"), "int64"), _axes(dim), False)


def _count(t, x, axes):
    axes = range(x.rank) if not axes or not x.rank else [a % x.rank for a in axes]
    return " * ".join(f"({x.dims[a]})" for a in axes) or "1"


def _moments(t, x, dim, correction, keepdim):
    axes = _axes(dim)
    correction = 1 if correction is None else correction
    if t.needs_gradient() and (axes == [] or correction > 1):
        return NotImplemented  # torch's slope counts otherwise than its value
    # Its slope is nothing, as the offsets add up to zero.
    center = t.stop(t.reduce("ReduceMean", x, axes, keepdim=True))
    offset = t.op("Sub", x, center)
    # What the mean lacks, being rounded: of a large one it may be more than the offsets.
    rest = t.stop(t.reduce("ReduceMean", offset, axes, keepdim=True))
    zero = t.scalar(0, x.dtype)
    is_finite = t.op("Equal", t.op("Sub", rest, rest), zero)
    offset = t.op("Sub", offset, t.op("Where", is_finite, rest, zero))
    squares = t.reduce("ReduceSum", t.op("Mul", offset, offset), axes, keepdim)
    if isinstance(correction, float) and not correction.is_integer():
        return NotImplemented
    count = t.scalar(f"max({_count(t, x, axes)} - {int(correction)}, 0)", x.dtype)
    return t.op("Div", squares, count)


@aten("var.correction")
@wide
def var(t, x, dim=None, *, correction=None, keepdim=False):
    return _moments(t, x, dim, correction, keepdim)


@aten("var.default", "var.dim")
@wide
def var_unbiased(t, x, dim=None, unbiased=True, keepdim=False):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return var(t, x, dim, correction=int(unbiased), keepdim=keepdim)


@aten("std.correction")
@wide
def std(t, x, dim=None, *, correction=None, keepdim=False):
    found = _moments(t, x, dim, correction, keepdim)
    if found is NotImplemented:
        return NotImplemented
    if not t.needs_gradient():
        return t.op("Sqrt", found)
    # torch has no slope at zero, whatever gradient comes in.
    zero, one = t.scalar(0, x.dtype), t.scalar(1, x.dtype)
    flat = t.op("Equal", found, zero)
    return t.op("Where", flat, zero, t.op("Sqrt", t.op("Where", flat, one, found)))


@aten("std.default", "std.dim")
@wide
def std_unbiased(t, x, dim=None, unbiased=True, keepdim=False):
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return std(t, x, dim, correction=int(unbiased), keepdim=keepdim)


@aten("var_mean.correction")
@wide
def var_mean(t, x, dim=None, *, correction=None, keepdim=False):
    found = _moments(t, x, dim, correction, keepdim)
    if found is NotImplemented:
        return found
    mean = t.reduce("ReduceMean", x, _axes(dim), keepdim)
    return [found, t.op("Where", t.op("IsInf", mean), t.scalar(math.nan, x.dtype), mean)]


@aten("linalg_vector_norm.default")
def vector_norm(t, x, ord=2, dim=None, keepdim=False, *, dtype=None):
    x = t.cast(x, t.out_dtype())
    axes = _axes(dim)
    if ord not in (1, 2) and t.needs_gradient():
        return NotImplemented
    if ord == 2:
        return t.reduce("ReduceL2", x, axes, keepdim)
    size = t.op("Abs", x)
    if ord == 1:
        return t.reduce("ReduceSum", size, axes, keepdim)
    if ord in (math.inf, -math.inf):
        return t.reduce("ReduceMax" if ord > 0 else "ReduceMin", size, axes, keepdim)
    if ord == 0:
        nonzero = t.cast(t.cast(x, "bool"), x.dtype)
        return t.reduce("ReduceSum", nonzero, axes, keepdim)
    total = t.reduce("ReduceSum", t.op("Pow", size, t.scalar(ord, x.dtype)), axes, keepdim)
    return t.op("Pow", total, t.scalar(1 / ord, x.dtype))


@aten("norm.Scalar", "norm.ScalarOpt_dim")
def norm(t, x, p=2, dim=None, keepdim=False):
    return vector_norm(t, x, 2 if p is None else p, dim or None, keepdim)


def _bits(dtype: str) -> int:
    return torch.finfo(getattr(torch, dtype)).bits


def _running(t, op, x, dim, dtype):
    to = dtype_name(dtype) if dtype is not None else t.out_dtype()
    if x.rank == 0:
        return t.cast(x, to)
    axis = t.scalar(dim % x.rank, "int64")
    if not t.gradient_to(0) or to == x.dtype or _bits(to) > _bits(x.dtype):
        return t.op(op, t.cast(x, to), axis)
    # torch's gradient is added up in x's dtype, and knows of no rounding
    rounded = t.cast(t.cast(t.stop(x), to), x.dtype)
    x = t.ort("WithSlope", x, rounded, t.scalar(1, x.dtype))
    return t.cast(t.op(op, x, axis), to)


@aten("cumsum.default")
def cumsum(t, x, dim, *, dtype=None):
    return _running(t, "CumSum", x, dim, dtype)


@aten("cumprod.default")
def cumprod(t, x, dim, *, dtype=None):
    return _running(t, "CumProd", x, dim, dtype)


@aten("nansum.default")
def nansum(t, x, dim=None, keepdim=False, *, dtype=None):
    if dim == []:
        return NotImplemented  # torch's own type of it is not what it gives
    x = t.cast(x, t.out_dtype())
    if x.dtype in FLOATING:
        is_nan = t.op("IsNaN", x)
        x = t.masked(x, t.op("Where", is_nan, t.scalar(0, x.dtype), x), is_nan)
    return t.reduce("ReduceSum", x, _axes(dim), keepdim)
