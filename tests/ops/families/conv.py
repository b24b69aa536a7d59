"""Convolutions and their gradients."""

import torch
import torch.nn.functional as F

from ..table import Op, bad, sample, t
from .matmul import activated, with_activations

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def settings(x, w, kernel_shape=None, strides=None, dilations=None, pads=None, auto_pad="NOTSET"):
    n = x.dim() - 2
    strides, dilations = strides or [1] * n, dilations or [1] * n
    pads = pads or [0] * 2 * n
    if auto_pad.startswith("SAME"):
        pads = [0] * 2 * n
        for d in range(n):
            out = -(-x.shape[2 + d] // strides[d])
            reach = (out - 1) * strides[d] + (w.shape[2 + d] - 1) * dilations[d] + 1
            total = max(0, reach - x.shape[2 + d])
            less, more = total // 2, total - total // 2
            pads[d], pads[n + d] = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
    return n, strides, dilations, pads


def conv(x, w, b=None, group=1, **attrs):
    n, strides, dilations, pads = settings(x, w, **attrs)
    both = [p for d in reversed(range(n)) for p in (pads[d], pads[n + d])]
    return CONV[n](F.pad(x, both), w, b, strides, 0, dilations, group)


def fused(x, w, b=None, z=None, activation="none", activation_numbers=(), **attrs):
    y = conv(x, w, b, **attrs)
    return activated(y if z is None else y + z, activation, activation_numbers)


def conv_transpose(x, w, b=None, group=1, output_padding=None, output_shape=None, **attrs):
    n, strides, dilations, pads = settings(x, w, **{**attrs, "auto_pad": "NOTSET"})
    y = TRANSPOSED[n](x, w, None, strides, 0, 0, group, dilations)
    extra = output_padding or [0] * n
    y = F.pad(y, [p for d in reversed(range(n)) for p in (0, extra[d])])
    mode = attrs.get("auto_pad", "NOTSET")
    for d in range(n):
        size = y.shape[2 + d]
        before, after = pads[d], pads[n + d]
        target = x.shape[2 + d] * strides[d] if mode.startswith("SAME") else None
        target = output_shape[d - n] if output_shape else target
        if target is not None:
            total = size - target
            before = total // 2 if mode == "SAME_UPPER" else total - total // 2
            after = total - before
        y = y.narrow(2 + d, before, size - before - after)
    return y if b is None else y + b.view(1, -1, *[1] * n)


def grad_x(dy, w, *, dims, **attrs):
    x = torch.zeros(dims, dtype=dy.dtype, requires_grad=True)
    return torch.autograd.grad(conv(x, w.detach(), **attrs), x, dy)[0]


def grad_w(dy, x, *, dims, **attrs):
    w = torch.zeros(dims, dtype=dy.dtype, requires_grad=True)
    return torch.autograd.grad(conv(x.detach(), w, **attrs), w, dy)[0]


CASES = [
    ((2, 3, 9), (4, 3, 3), {}),
    ((2, 3, 9, 7), (4, 3, 3, 2), {"strides": [2, 1], "pads": [1, 0, 2, 1]}),
    ((2, 4, 7, 7), (6, 2, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    ((2, 4, 7, 7), (4, 1, 3, 3), {"group": 4, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ((1, 2, 9, 9), (3, 2, 3, 3), {"dilations": [2, 3]}),
    ((2, 3, 5, 5), (4, 3, 1, 1), {"kernel_shape": [1, 1]}),
    ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), {"strides": [1, 2, 3]}),
    ((1, 2, 8, 9), (3, 2, 3, 4), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 2, 8, 9), (3, 2, 3, 4), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ((1, 2, 8, 9), (3, 2, 3, 4), {"auto_pad": "VALID"}),
    (
        (2, 4, 11, 1),
        (6, 2, 3, 1),
        {"group": 2, "strides": [2, 1], "dilations": [2, 1], "pads": [1, 0, 2, 0]},
    ),
]


def out_size(x, w, attrs):
    return tuple(conv(torch.zeros(x), torch.zeros(w), **attrs).shape)


# Dims of a kernel are known when a graph is made: its shape rule reads them.
OPS = [
    Op(
        "Conv",
        conv,
        [sample(t(*x), t(*w), symbolic=False, **attrs) for x, w, attrs in CASES]
        + [sample(t(*x), t(*w), t(w[0]), symbolic=False, **attrs) for x, w, attrs in CASES[:3]]
        + [sample(t(0, 3, 5), t(4, 3, 3), symbolic=False)],
        [
            bad(
                "x has 3 channels, w of shape [4, 2, 3] with group 1 expects 2",
                t(2, 3, 9),
                t(4, 2, 3),
            ),
            bad("axis 2 is smaller than the kernel [5]", t(2, 3, 3), t(4, 3, 5)),
            bad("do not fit 1 spatial axes", t(2, 3, 9), t(4, 3, 3), strides=[1, 2]),
            bad("must be positive", t(2, 3, 9), t(4, 3, 3), strides=[0]),
            bad("b has shape [3], expected [4]", t(2, 3, 9), t(4, 3, 3), t(3)),
            bad("group 3 does not divide w of shape [4, 1, 3]", t(2, 3, 9), t(4, 1, 3), group=3),
        ],
    ),
    Op(
        "ort::Conv",
        fused,
        [
            sample(t(*x), t(*w), t(w[0]), t(*out_size(x, w, attrs)), symbolic=False, **attrs)
            for x, w, attrs in CASES
        ]
        + [
            *with_activations(t(2, 3, 9, 7), t(4, 3, 3, 2), t(4), symbolic=False),
            *with_activations(t(2, 3, 9), t(4, 3, 2), None, t(2, 4, 8), symbolic=False),
        ],
        [
            bad("z has shape [2, 4], expected [2, 4, 8]", t(2, 3, 9), t(4, 3, 2), None, t(2, 4)),
            bad("unknown activation 'step'", t(2, 3, 9), t(4, 3, 2), activation="step"),
            bad(
                "activation 'leaky_relu' has 0 numbers, expected 1",
                t(2, 3, 9),
                t(4, 3, 2),
                activation="leaky_relu",
            ),
        ],
    ),
    Op(
        "ort::ConvGradX",
        grad_x,
        [
            sample(t(*out_size(x, w, attrs)), t(*w), dims=list(x), symbolic=False, **attrs)
            for x, w, attrs in CASES
        ],
        no_gradient="only in a backward",
    ),
    Op(
        "ort::ConvGradW",
        grad_w,
        [
            sample(t(*out_size(x, w, attrs)), t(*x), dims=list(w), symbolic=False, **attrs)
            for x, w, attrs in CASES
        ],
        no_gradient="only in a backward",
    ),
    Op(
        "ConvTranspose",
        conv_transpose,
        [
            sample(t(2, 4, 5), t(4, 3, 3), symbolic=False),
            sample(t(2, 4, 5), t(4, 3, 3), t(3), strides=[2], pads=[1, 0], symbolic=False),
            sample(t(2, 4, 5, 4), t(4, 3, 3, 2), strides=[2, 3], pads=[1, 0, 2, 1], symbolic=False),
            sample(t(2, 4, 5, 4), t(4, 2, 3, 2), t(4), group=2, symbolic=False),
            sample(t(2, 4, 5, 4), t(4, 2, 3, 3), dilations=[2, 1], symbolic=False),
            sample(
                t(1, 2, 4, 4), t(2, 3, 3, 3), strides=[2, 2], output_padding=[1, 1], symbolic=False
            ),
            sample(t(1, 2, 4), t(2, 3, 3), strides=[2], output_shape=[8], symbolic=False),
            sample(t(1, 2, 4), t(2, 3, 3), t(3), output_shape=[3], symbolic=False),
            sample(
                t(1, 2, 4, 5),
                t(2, 3, 3, 4),
                strides=[2, 3],
                dilations=[2, 1],
                output_shape=[8, 13],
                symbolic=False,
            ),
            sample(t(1, 2, 4), t(2, 3, 3), strides=[2], auto_pad="SAME_UPPER", symbolic=False),
            sample(t(1, 2, 4), t(2, 3, 3), strides=[2], auto_pad="SAME_LOWER", symbolic=False),
            sample(t(1, 2, 4, 5), t(2, 3, 3, 2), t(3), auto_pad="SAME_LOWER", symbolic=False),
            sample(t(1, 2, 4), t(2, 3, 3), strides=[2], auto_pad="VALID", symbolic=False),
        ],
        [
            bad("expected one rank of at least 3", t(2, 3, 9), t(3, 4, 3, 3)),
            bad("x has 3 channels, w of shape [4, 2, 3] expects 4", t(2, 3, 9), t(4, 2, 3)),
            bad("b has shape [4], expected [2]", t(2, 4, 9), t(4, 2, 3), t(4)),
        ],
    ),
]
