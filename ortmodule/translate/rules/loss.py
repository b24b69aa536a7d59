"""Losses."""

import torch

from ..emit import FLOATING
from ..registry import aten, wide
from .index import from_zero

_REDUCTIONS = ("none", "mean", "sum")


def _reduced(t, x, reduction: int):
    if reduction == 0:
        return x
    return t.reduce("ReduceMean" if reduction == 1 else "ReduceSum", x, None, keepdim=False)


@aten("cross_entropy_loss.default")
def cross_entropy(t, logits, target, weight=None, reduction=1, ignore_index=-100, smoothing=0.0):
    if target.dtype in FLOATING:
        return _soft_cross_entropy(t, logits, target, weight, reduction, smoothing)
    unbatched = logits.rank == 1
    if unbatched:
        logits, target = t.unsqueeze(logits, [0]), t.unsqueeze(target, [0])
    ignored = t.op("Equal", target, t.scalar(ignore_index, target.dtype))
    index = t.op("Where", ignored, t.scalar(0, target.dtype), target)
    t.hold_positions(index, logits.dims[1])
    loss = t.ort(
        "CrossEntropy", logits, target, weight,
        ignore_index=int(ignore_index), reduction=_REDUCTIONS[reduction],
        label_smoothing=float(smoothing),
    )  # fmt: skip
    return t.squeeze(loss, [0]) if unbatched and reduction == 0 else loss


def _soft_cross_entropy(t, logits, target, weight, reduction, smoothing):
    """Class probabilities: -sum_c w_c p_c log softmax(x)_c, the mean over all but the classes."""
    axis = 0 if logits.rank == 1 else 1
    classes = logits.dims[axis]
    if smoothing:
        kept = t.op("Mul", target, t.scalar(1 - smoothing, logits.dtype))
        share = t.op("Div", t.scalar(smoothing, logits.dtype), t.scalar(classes, logits.dtype))
        target = t.op("Add", kept, share)
    terms = t.op("Mul", t.op("LogSoftmax", logits, axis=axis), target)
    if weight is not None:
        shape = [classes, *[1] * (logits.rank - axis - 1)]
        terms = t.op("Mul", terms, t.reshape(weight, shape))
    loss = t.op("Neg", t.reduce("ReduceSum", terms, [axis], keepdim=False))
    return _reduced(t, loss, reduction)


def _check_places(t, target, dims):
    """A target has a class for each place: a gather would do with fewer."""
    if len(dims) > 1 and list(target.dims) != dims:
        alike = t.op("Equal", t.sizes(target.dims), t.sizes(dims))
        t.check(alike, "size mismatch of input and target")


@aten("nll_loss.default", "nll_loss_nd.default", "nll_loss2d.default")
@wide
def nll_loss(t, x, target, weight=None, reduction=1, ignore_index=-100):
    """-w[target] x[target], zero where target is ignore_index; the mean is over the weights."""
    axis = 0 if x.rank == 1 else 1
    _check_places(t, target, [*x.dims[:axis], *x.dims[axis + 1 :]])
    valid = t.op("Not", t.op("Equal", target, t.scalar(ignore_index, target.dtype)))
    index = t.op("Where", valid, target, t.scalar(0, target.dtype))
    index = from_zero(t, index, x.dims[axis])
    picked = t.op("GatherElements", x, t.unsqueeze(index, [axis]), axis=axis)
    loss, zero = t.op("Neg", t.squeeze(picked, [axis])), t.scalar(0, x.dtype)
    weights = t.cast(valid, x.dtype)
    if weight is not None:
        weights = t.op("Where", valid, t.op("Gather", weight, index, axis=0), zero)
        loss = t.op("Mul", loss, weights)
    loss = t.op("Where", valid, loss, zero)  # an ignored one may be infinite
    if reduction == 0:
        return loss
    total = t.reduce("ReduceSum", loss, None, keepdim=False)
    if reduction == 2:
        return total
    return t.op("Div", total, t.reduce("ReduceSum", weights, None, keepdim=False))


@aten("mse_loss.default")
@wide
def mse_loss(t, x, target, reduction=1):
    difference = t.op("Sub", x, target)
    return _reduced(t, t.op("Mul", difference, difference), reduction)


@aten("l1_loss.default")
@wide
def l1_loss(t, x, target, reduction=1):
    return _reduced(t, t.op("Abs", t.op("Sub", x, target)), reduction)


def _huber(t, x, target, delta: float):
    """d^2/2 where |d| < delta, else delta (|d| - delta/2)."""
    distance = t.op("Abs", t.op("Sub", x, target))
    # m (d - m / 2) with m = min(d, delta), which is the slope: no branch meets an infinity.
    slope = t.stop(t.op("Min", distance, t.scalar(delta, x.dtype)))
    half = t.op("Mul", slope, t.scalar(0.5, x.dtype))
    return t.op("Mul", slope, t.op("Sub", distance, half))


@aten("huber_loss.default")
@wide
def huber_loss(t, x, target, reduction=1, delta=1.0):
    return _reduced(t, _huber(t, x, target, delta), reduction)


@aten("smooth_l1_loss.default")
@wide
def smooth_l1_loss(t, x, target, reduction=1, beta=1.0):
    if beta == 0:
        return l1_loss(t, x, target, reduction)
    loss = _huber(t, x, target, beta)
    loss = loss if beta == 1 else t.op("Div", loss, t.scalar(beta, x.dtype))
    return _reduced(t, loss, reduction)


@aten("binary_cross_entropy.default")
@wide
def binary_cross_entropy(t, x, target, weight=None, reduction=1):
    """-(y max(log x, -100) + (1 - y) max(log(1 - x), -100)), as torch bounds it."""
    for name, given in (("input", x), ("target", target)):
        above = t.op("GreaterOrEqual", given, t.scalar(0, x.dtype))
        inside = t.op("And", above, t.op("LessOrEqual", given, t.scalar(1, x.dtype)))
        t.check(inside, f"all elements of {name} should be between 0 and 1")
    epsilon = 0.0 if t.out().dtype == torch.float16 else 1e-12  # torch's kernel rounds it
    loss = t.ort("BinaryCrossEntropy", x, target, epsilon=epsilon)
    return _reduced(t, loss if weight is None else t.op("Mul", loss, weight), reduction)


@aten("binary_cross_entropy_with_logits.default")
def binary_cross_entropy_with_logits(t, x, target, *args, **kwargs):
    if target.dtype != x.dtype:
        return NotImplemented  # torch gives another type than it says
    return _with_logits(t, x, target, *args, **kwargs)


@wide
def _with_logits(t, x, target, weight=None, pos_weight=None, reduction=1):
    """(1 - y) x + l softplus(-x), with l = 1 + (pos_weight - 1) y."""
    one = t.scalar(1, x.dtype)
    softplus = t.op("Softplus", t.op("Neg", x))
    if pos_weight is not None:
        scale = t.op("Mul", t.op("Sub", pos_weight, one), target)
        softplus = t.op("Mul", t.op("Add", one, scale), softplus)
    loss = t.op("Add", t.op("Mul", t.op("Sub", one, target), x), softplus)
    return _reduced(t, loss if weight is None else t.op("Mul", loss, weight), reduction)


@aten("kl_div.default")
@wide
def kl_div(t, x, target, reduction=1, *, log_target=False):
    """y (log y - x), zero where y is zero; exp(y) (y - x) with log_target."""
    if t.gradient_to(1):
        return NotImplemented
    if log_target:
        return _reduced(t, t.op("Mul", t.op("Exp", target), t.op("Sub", target, x)), reduction)
    zero, one = t.scalar(0, x.dtype), t.scalar(1, x.dtype)
    is_zero = t.op("Equal", target, zero)
    entropy = t.op("Mul", target, t.op("Log", t.op("Where", is_zero, one, target)))
    return _reduced(t, t.op("Sub", entropy, t.op("Mul", target, x)), reduction)
