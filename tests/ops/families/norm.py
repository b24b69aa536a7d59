"""Normalisations."""

import numpy as np
import torch
import torch.nn.functional as F

from ..table import Op, bad, sample, t


def layer_norm(x, scale, bias=None, axis=-1, epsilon=1e-5):
    axes = list(range(axis % x.dim(), x.dim()))
    mean = x.mean(axes, keepdim=True)
    inv_std = torch.rsqrt(((x - mean) ** 2).mean(axes, keepdim=True) + epsilon)
    y = (x - mean) * inv_std * scale
    return y if bias is None else y + bias, mean, inv_std


def rms_norm(x, scale, axis=-1, epsilon=1e-5):
    axes = list(range(axis % x.dim(), x.dim()))
    return x * torch.rsqrt((x * x).mean(axes, keepdim=True) + epsilon) * scale


def batch_normalization(x, scale, bias, mean, var, epsilon=1e-5, momentum=0.9, training_mode=0):
    scale, bias, mean, var = (v.to(x.dtype) for v in (scale, bias, mean, var))
    if not training_mode:
        wide = [v.view(1, -1, *[1] * (x.dim() - 2)) for v in (mean, var, scale, bias)]
        return (x - wide[0]) * torch.rsqrt(wide[1] + epsilon) * wide[2] + wide[3]
    axes = [0, *range(2, x.dim())]
    now, biased = x.mean(axes), x.var(axes, unbiased=False)
    y = F.batch_norm(x, None, None, scale, bias, training=True, eps=epsilon)
    mix = lambda old, new: old * momentum + new * (1 - momentum)  # noqa: E731
    return y, mix(mean, now), mix(var, biased)


def batch_norm(x, scale, bias, mean, var, epsilon=1e-5, momentum=0.1, training=1):
    new_mean, new_var = mean.detach().clone(), var.detach().clone()
    y = F.batch_norm(x, new_mean, new_var, scale, bias, bool(training), momentum, epsilon)
    axes = [0, *range(2, x.dim())]
    used = (x.mean(axes), x.var(axes, unbiased=False)) if training else (mean, var)
    return y, new_mean, new_var, used[0].detach(), torch.rsqrt(used[1] + epsilon).detach()


def batch_norm_grad(dy, x, scale, mean, inv_std, training=1):
    x = x.detach().requires_grad_()
    scale = scale.detach().requires_grad_()
    bias = torch.zeros_like(scale, requires_grad=True)
    if training:
        y = F.batch_norm(x, None, None, scale, bias, training=True, eps=1e-5)
    else:
        wide = [v.view(1, -1, *[1] * (x.dim() - 2)) for v in (mean, inv_std, scale, bias)]
        y = (x - wide[0]) * wide[1] * wide[2] + wide[3]
    return torch.autograd.grad(y, (x, scale, bias), dy)


def batch_inputs(*shape):
    channels = shape[1]
    return t(*shape), t(channels), t(channels), t(channels), t(channels, low=0.5, high=2.0)


def saved_statistics(x):
    axes = (0, *range(2, x.ndim))
    return x.mean(axes), 1 / (x.var(axes) + 1e-5) ** 0.5


def in_float(inputs, *which):
    """These of them as float32, whatever dtype the others have."""
    return [x.astype("float32") if k in which else x for k, x in enumerate(inputs)]


def trained(*shape):
    x, scale = t(*shape), t(shape[1])
    return sample(t(*shape), x, scale, *saved_statistics(x))


def lp_normalization(x, axis=-1, p=2):
    norm = torch.linalg.vector_norm(x, p, axis, keepdim=True)
    return x / torch.where(norm == 0, 1.0, norm)


def mean_variance_normalization(x, axes=(0, 2, 3)):
    mean = x.mean(axes, keepdim=True)
    variance = (x * x).mean(axes, keepdim=True) - mean * mean
    return (x - mean) / (variance.sqrt() + 1e-9)


def local_response(x, size, alpha=1e-4, beta=0.75, bias=1.0):
    around = torch.nn.functional.pad((x * x).movedim(1, -1), ((size - 1) // 2, size // 2)).unfold(
        -1, size, 1
    )
    return x / (bias + alpha / size * around.sum(-1).movedim(-1, 1)) ** beta


OPS = [
    Op(
        "LpNormalization",
        lp_normalization,
        [
            sample(t(3, 5)),
            sample(t(2, 3, 5), axis=1, p=1),
            sample(np.array([[0.0, 0.0], [3.0, 4.0]]), smooth=False),
        ],
        [bad("p is 3, expected 1 or 2", t(3), p=3), bad("axis 1 does not exist", t(3), axis=1)],
    ),
    Op(
        "MeanVarianceNormalization",
        mean_variance_normalization,
        [sample(t(2, 3, 4, 5)), sample(t(3, 7), axes=[-1])],
        [bad("axis 2 does not exist, the input has rank 2", t(3, 5))],
    ),
    Op(
        "LRN",
        local_response,
        [
            sample(t(2, 7, 3, 3), size=5, alpha=0.1),
            sample(t(2, 7, 3), size=4, alpha=0.3, beta=0.5, bias=2.0),
        ],
        [bad("size is 0, expected 1 to 1000", t(2, 3, 4), size=0)],
    ),
    Op(
        "LayerNormalization",
        layer_norm,
        [
            sample(t(3, 8), t(8), t(8)),
            sample(t(2, 3, 5), t(5)),
            sample(t(2, 3, 5), t(3, 5), t(3, 5), axis=1, epsilon=1e-3),
            sample(t(2, 3, 5), t(5), t(5), axis=-2),
            sample(t(0, 5), t(5), t(5)),
        ],
        [
            bad("scale has shape [7], expected [8]", t(3, 8), t(7)),
            bad("axis 2 does not exist, the input has rank 2", t(3, 8), t(8), axis=2),
        ],
    ),
    Op(
        "RMSNormalization",
        rms_norm,
        [
            sample(t(3, 8), t(8)),
            sample(t(2, 3, 5), t(3, 5), axis=1, epsilon=1e-3),
            sample(t(2, 3, 5), t(5), axis=-1),
            sample(t(0, 5), t(5)),
        ],
        [bad("scale has shape [7], expected [8]", t(3, 8), t(7))],
    ),
    Op(
        "GroupNormalization",
        lambda x, scale, bias, num_groups, epsilon=1e-5: F.group_norm(
            x, num_groups, scale, bias, epsilon
        ),
        [
            sample(t(2, 6, 5), t(6), t(6), num_groups=3),
            sample(t(2, 6, 4, 3), t(6), t(6), num_groups=6, epsilon=1e-3),
            sample(t(2, 6, 4, 3), t(6), t(6), num_groups=1),
        ],
        [bad("6 channels do not divide into 4 groups", t(2, 6, 5), t(6), t(6), num_groups=4)],
    ),
    Op(
        "InstanceNormalization",
        lambda x, scale, bias, epsilon=1e-5: F.instance_norm(
            x, weight=scale, bias=bias, eps=epsilon
        ),
        [sample(t(2, 3, 7), t(3), t(3)), sample(t(2, 3, 4, 5), t(3), t(3), epsilon=1e-2)],
    ),
    Op(
        "BatchNormalization",
        batch_normalization,
        [
            sample(*batch_inputs(2, 3, 7)),
            sample(*batch_inputs(4, 3), epsilon=1e-3),
            sample(*batch_inputs(2, 3, 4, 5), training_mode=1),
            sample(*batch_inputs(4, 3), training_mode=1, momentum=0.3),
            sample(*in_float(batch_inputs(2, 3, 7), 1, 2, 3, 4)),
            sample(*in_float(batch_inputs(2, 3, 7), 3, 4)),
            sample(*in_float(batch_inputs(4, 3), 1, 2, 3, 4), training_mode=1),
        ],
        [
            bad("scale has shape [4], expected [3]", t(2, 3, 7), t(4), t(4), t(4), t(4)),
            bad("x has rank 1, expected at least 2", t(3), t(3), t(3), t(3), t(3)),
        ],
        through=(0,),
    ),
    Op(
        "ort::BatchNorm",
        batch_norm,
        [
            sample(*batch_inputs(2, 3, 7)),
            sample(*batch_inputs(4, 3), momentum=0.3, epsilon=1e-3),
            sample(*batch_inputs(2, 3, 4, 5), training=0),
            sample(*batch_inputs(2, 1, 4, 5)),
        ],
        [bad("running_var has shape [2], expected [3]", t(2, 3, 7), t(3), t(3), t(3), t(2))],
        through=(0,),
        wrt=(0, 1, 2),
    ),
    Op(
        "ort::BatchNormGrad",
        batch_norm_grad,
        [
            trained(2, 3, 7),
            trained(4, 3),
            sample(t(4, 3), t(4, 3), t(3), t(3), t(3, low=0.5, high=2.0), training=0),
        ],
        no_gradient="only in a backward",
    ),
]
