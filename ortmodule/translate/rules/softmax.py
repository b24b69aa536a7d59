"""Softmax and its relatives."""

from ..emit import FLOATING, dtype_name
from ..registry import aten, wide


def _input(t, x, dtype):
    return t.cast(x, dtype_name(dtype)) if dtype is not None else x


def _along(t, op, x, dim):
    if x.rank:
        return t.op(op, x, axis=int(dim))
    return t.reshape(t.op(op, t.reshape(x, [1]), axis=0), [])  # a number has an axis here


@aten("softmax.int", "_softmax.default")
def softmax(t, x, dim, dtype=None):
    if isinstance(dtype, bool):  # _softmax's half_to_float
        dtype = None
    return _along(t, "Softmax", _input(t, x, dtype), dim)


@aten("log_softmax.int", "_log_softmax.default")
def log_softmax(t, x, dim, dtype=None):
    if isinstance(dtype, bool):
        dtype = None
    return _along(t, "LogSoftmax", _input(t, x, dtype), dim)


@aten("logsumexp.default")
@wide
def logsumexp(t, x, dim, keepdim=False):
    x = x if x.dtype in FLOATING else t.cast(x, t.out_dtype())
    return t.reduce("ReduceLogSumExp", x, dim, keepdim)
