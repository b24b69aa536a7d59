"""Normalisations."""

import functools
from collections.abc import Callable

import torch

from ..emit import FLOATING, HALVES, is_value
from ..registry import aten, wide


def _mixed(rule: Callable) -> Callable:
    """A rule for halves beside float32 parameters too, which torch computes in float32."""
    widened = wide(rule)

    @functools.wraps(rule)
    def call(t, x, *args, **kwargs):
        others = {a.dtype for a in args if is_value(a) and a.dtype in FLOATING}
        if others <= {x.dtype}:
            return rule(t, x, *args, **kwargs)
        return widened(t, x, *args, **kwargs) if others == {"float32"} else NotImplemented

    return call


def _apart(rule: Callable) -> Callable:
    """A rule whose op takes parameters and statistics of float32 beside halves, if all are."""
    mixed = _mixed(rule)

    @functools.wraps(rule)
    def call(t, x, *args, **kwargs):
        others = {a.dtype for a in args if is_value(a) and a.dtype in FLOATING}
        apart = x.dtype in HALVES and others == {"float32"}
        return (rule if apart else mixed)(t, x, *args, **kwargs)

    return call


def _ones(t, dims, dtype):
    return t.full(dims, 1, dtype)


@aten("layer_norm.default")
@_mixed
def layer_norm(t, x, shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True):
    axis = -len(shape)
    weight = weight if weight is not None else _ones(t, x.dims[axis:], x.dtype)
    return t.op("LayerNormalization", x, weight, bias, axis=axis, epsilon=float(eps))


@aten("native_layer_norm.default")
@_mixed
def native_layer_norm(t, x, shape, weight, bias, eps):
    if t.needs_gradient() and (t.uses(1) or t.uses(2)):
        return NotImplemented  # no gradient flows through mean and inv_std
    axis = -len(shape)
    weight = weight if weight is not None else _ones(t, x.dims[axis:], x.dtype)
    outs = t.op("LayerNormalization", x, weight, bias, n=3, axis=axis, epsilon=float(eps))
    return [t.cast(y, t.out_dtype(i)) for i, y in enumerate(outs)]


@aten("rms_norm.default")
@_mixed
def rms_norm(t, x, shape, weight=None, eps=None):
    axis = -len(shape)
    weight = weight if weight is not None else _ones(t, x.dims[axis:], x.dtype)
    if eps is None:  # of the type that torch computes in
        eps = torch.finfo(torch.float64 if x.dtype == "float64" else torch.float32).eps
    return t.op("RMSNormalization", x, weight, axis=axis, epsilon=float(eps))


@aten("group_norm.default")
@_mixed
def group_norm(t, x, groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True):
    channels = [t.static(x.dims[1], "the number of channels")]
    weight = weight if weight is not None else _ones(t, channels, x.dtype)
    bias = bias if bias is not None else t.full(channels, 0, x.dtype)
    attrs = {"num_groups": int(groups), "epsilon": float(eps)}
    return t.op("GroupNormalization", x, weight, bias, **attrs)


@aten("batch_norm.default")
@_apart
def batch_norm(t, x, weight, bias, mean, var, training, momentum, eps, cudnn_enabled=True):
    return _batch_norm(t, x, weight, bias, mean, var, training, momentum, eps)


@aten("native_batch_norm.default")
@_mixed
def native_batch_norm(t, x, weight, bias, mean, var, training, momentum, eps):
    """y, mean and inverse deviation of the batch: empty in eval, and never with a gradient."""
    if not training:
        y = _batch_norm(t, x, weight, bias, mean, var, training, momentum, eps)
        return [y, *(t.full(t.out_dims(i), 0, t.out_dtype(i)) for i in (1, 2))]
    y, *saved = _batch_norm(t, x, weight, bias, mean, var, training, momentum, eps, saves=True)
    return [y, *(t.cast(t.stop(s), t.out_dtype(i)) for i, s in enumerate(saved, 1))]


def _batch_norm(t, x, weight, bias, mean, var, training, momentum, eps, saves=False):
    """y; with `saves` a list with mean and inverse deviation of the batch too."""
    if x.rank < 2:
        t.refuse("batch norm of a vector")
    channels = [t.static(x.dims[1], "the number of channels")]
    dtype = next((v.dtype for v in (weight, mean) if v is not None), x.dtype)
    weight = weight if weight is not None else _ones(t, channels, dtype)
    bias = bias if bias is not None else t.full(channels, 0, dtype)
    keeps = mean is not None and training
    if mean is None:
        mean, var = t.full(channels, 0, dtype), _ones(t, channels, dtype)
    outs = t.ort(
        "BatchNorm", x, weight, bias, mean, var, n=5 if saves else 3 if keeps else 1,
        momentum=float(momentum) if keeps else 0.0, epsilon=float(eps), training=int(training),
    )  # fmt: skip
    if keeps:
        t.update(3, outs[1])
        t.update(4, outs[2])
    return [outs[0], *outs[3:]] if saves else outs[0] if keeps else outs


@aten("instance_norm.default")
@_mixed
def instance_norm(t, x, weight, bias, mean, var, use_input_stats, momentum, eps, cudnn_enabled):
    channels = [x.dims[1]]
    weight = weight if weight is not None else _ones(t, channels, x.dtype)
    bias = bias if bias is not None else t.full(channels, 0, x.dtype)
    if not use_input_stats:
        attrs = {"epsilon": float(eps), "training": 0, "momentum": 0.0}
        return t.ort("BatchNorm", x, weight, bias, mean, var, **attrs)
    if mean is not None:
        _update_statistics(t, x, mean, var, momentum)
    return t.op("InstanceNormalization", x, weight, bias, epsilon=float(eps))


@aten("_weight_norm_interface.default")
@wide
def weight_norm(t, v, g, dim=0):
    """The weight, and a norm that only torch's own backward reads."""
    others = [axis for axis in range(v.rank) if axis != dim]
    if not others or t.uses(1):
        return NotImplemented
    norm = t.reduce("ReduceL2", v, others, keepdim=True)
    return [t.op("Mul", v, t.op("Div", g, norm)), norm]


def _update_statistics(t, x, mean, var, momentum):
    """Running statistics follow the mean over the batch of each instance's own statistics."""
    x, space = t.cast(x, mean.dtype), list(range(2, x.rank))
    count = " * ".join(f"({d})" for d in x.dims[2:])
    center = t.reduce("ReduceMean", x, space, keepdim=True)
    offset = t.op("Sub", x, center)
    squares = t.reduce("ReduceSum", t.op("Mul", offset, offset), space, keepdim=False)
    unbiased = t.op("Div", squares, t.scalar(f"{count} - 1", x.dtype))
    center = t.squeeze(center, space)
    for position, old, new in ((3, mean, center), (4, var, unbiased)):
        new = t.reduce("ReduceMean", new, [0], keepdim=False)
        kept = t.op("Mul", old, t.scalar(1 - momentum, x.dtype))
        fresh = t.op("Mul", new, t.scalar(momentum, x.dtype))
        t.update(position, t.stop(t.op("Add", kept, fresh)))
