"""Dropout: a key and a counter, never a stored mask. Other random ops stay aten's."""

from ..emit import FLOATING
from ..registry import aten


@aten("dropout.default")
def dropout(t, x, p, train):
    if not train or p == 0:
        return x
    if p == 1:
        return t.op("Mul", x, t.scalar(0, x.dtype))
    return t.ort("Dropout", x, t.key_input(), ratio=float(p), counter=t.next_counter())


@aten("native_dropout.default")
def native_dropout(t, x, p, train):
    if train is False or p == 0:
        return [x, t.full(x.dims, True, "bool")]
    return NotImplemented  # the mask is asked for


@aten("feature_dropout.default")
def feature_dropout(t, x, p, train):
    """Whole channels: the mask of [N, C, 1, ...] ones is spread over each."""
    if not train or p == 0:
        return x
    ones = t.full([*x.dims[:2], *[1] * (x.rank - 2)], 1, x.dtype)
    return t.op("Mul", x, dropout(t, ones, p, train))


@aten("bernoulli.p", "bernoulli.float")
def bernoulli(t, x, p=0.5, *, generator=None):
    """One with probability p: where dropout keeps a one."""
    if generator is not None or x.dtype not in FLOATING or t.needs_gradient():
        return NotImplemented  # torch has no derivative, and says so
    if p in (0, 1):
        return t.full(x.dims, p, x.dtype)
    kept = dropout(t, t.full(x.dims, 1, x.dtype), 1 - p, True)
    return t.cast(t.cast(kept, "bool"), x.dtype)


@aten("alpha_dropout.default", "feature_alpha_dropout.default")
def alpha_dropout(t, x, p, train):
    return x if not train or p == 0 else NotImplemented
