"""Softmax and its relatives."""

from .emit import dtype_name
from .registry import aten


def _input(t, x, dtype):
    return t.cast(x, dtype_name(dtype)) if dtype is not None else x


@aten("softmax.int", "_softmax.default")
def softmax(t, x, dim, dtype=None):
    if isinstance(dtype, bool):  # _softmax's half_to_float
        dtype = None
    return t.op("Softmax", _input(t, x, dtype), axis=int(dim))


@aten("log_softmax.int", "_log_softmax.default")
def log_softmax(t, x, dim, dtype=None):
    if isinstance(dtype, bool):
        dtype = None
    return t.op("LogSoftmax", _input(t, x, dtype), axis=int(dim))


@aten("logsumexp.default")
def logsumexp(t, x, dim, keepdim=False):
    return t.reduce("ReduceLogSumExp", x, dim, keepdim)
