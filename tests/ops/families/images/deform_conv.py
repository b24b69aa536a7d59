"""DeformConv: torchvision's in two dimensions, samples and a product in others."""

import math

import torch
import torchvision

from ...table import Op, bad, sample, t
from .grid_sample import grid_sample


def by_samples(x, w, offset, bias, mask, strides, dilations, pads, group, offset_group):
    n, kernel, out = x.dim() - 2, w.shape[2:], offset.shape[2:]
    taps = math.prod(kernel)
    offset = offset.reshape(x.shape[0], offset_group, *kernel, n, *out)
    mask = torch.ones(1) if mask is None else mask
    result = torch.zeros(x.shape[0], w.shape[0], *out, dtype=x.dtype)
    step, made = x.shape[1] // offset_group, w.shape[0] // group
    for k, at in enumerate(torch.cartesian_prod(*map(torch.arange, kernel)).reshape(taps, n)):
        regular = [torch.arange(o) * s - p + int(a) * d for o, s, p, a, d in
                   zip(out, strides, pads, at, dilations, strict=False)]  # fmt: skip
        regular = torch.stack(torch.meshgrid(*regular, indexing="ij"))
        for g in range(offset_group):
            places = offset[(slice(None), g, *at.tolist())] + regular
            part = x[:, g * step : (g + 1) * step]
            read = grid_sample(part, places.movedim(1, -1).flip(-1), in_elements=1)
            if mask.dim() > 1:
                read = read * mask[:, g * taps + k, None]
            for c in range(step):
                channel = g * step + c
                which = channel // w.shape[1]
                rows = slice(which * made, (which + 1) * made)
                weight = w[(rows, channel % w.shape[1], *at.tolist())]
                more = torch.einsum("n...,o->no...", read[:, c], weight)
                result = torch.cat(
                    [result[:, : rows.start], result[:, rows] + more, result[:, rows.stop :]], 1
                )
    return result if bias is None else result + bias.reshape(-1, *[1] * n)


def deform_conv(x, w, offset, bias=None, mask=None, strides=None, dilations=None, pads=None,
                group=1, offset_group=1, kernel_shape=None):  # fmt: skip
    n = x.dim() - 2
    strides, dilations, pads = strides or [1] * n, dilations or [1] * n, pads or [0] * 2 * n
    if n == 2 and pads[:n] == pads[n:]:
        return torchvision.ops.deform_conv2d(x, offset, w, bias, strides, pads[:n], dilations, mask)
    return by_samples(x, w, offset, bias, mask, strides, dilations, pads, group, offset_group)


CASES = [
    # X, W, places, whether there are B and mask, attributes
    ((2, 4, 5, 6), (3, 4, 3, 2), (3, 5), False, False, {}),
    ((2, 4, 5, 6), (3, 4, 3, 3), (5, 6), True, True, {"pads": [1, 1, 1, 1]}),
    ((1, 4, 7, 6), (4, 2, 2, 2), (3, 2), True, True,
     {"strides": [2, 2], "dilations": [2, 3], "group": 2, "offset_group": 2}),
    ((1, 6, 4, 4), (6, 2, 2, 2), (3, 3), True, False,
     {"group": 3, "offset_group": 2, "kernel_shape": [2, 2]}),
    ((1, 2, 4, 4), (2, 2, 2, 2), (4, 3), False, True, {"pads": [0, 0, 1, 0]}),
    ((2, 2, 6), (3, 2, 3), (4,), True, True, {}),
    ((1, 1, 3, 4, 3), (2, 1, 2, 2, 1), (2, 3, 3), False, False, {}),
]  # fmt: skip


def made_of(x, w, places, bias, mask, attrs):
    taps, n = math.prod(w[2:]), len(places)
    groups = attrs.get("offset_group", 1)
    offset = t(x[0], groups * taps * n, *places)
    return sample(
        t(*x), t(*w), offset, t(w[0]) if bias else None,
        t(x[0], groups * taps, *places) if mask else None, **attrs,
    )  # fmt: skip


OPS = [
    Op(
        "DeformConv",
        deform_conv,
        [made_of(*case) for case in CASES],
        [
            bad("expected one rank from 3 on", t(1, 4, 5, 6), t(3, 4, 3), t(1, 18, 3, 4)),
            bad("offset has shape [1, 12, 3, 4], expected [1, 18, 3, 4]", t(1, 4, 5, 6),
                t(3, 4, 3, 3), t(1, 12, 3, 4)),
            bad("mask has shape [1, 9, 3, 5], expected [1, 9, 3, 4]", t(1, 4, 5, 6), t(3, 4, 3, 3),
                t(1, 18, 3, 4), None, t(1, 9, 3, 5)),
            bad("B has shape [4], expected [3]", t(1, 4, 5, 6), t(3, 4, 3, 3), t(1, 18, 3, 4),
                t(4)),
            bad("they do not fit 3 groups", t(1, 4, 5, 6), t(3, 4, 3, 3), t(1, 18, 3, 4), group=3),
            bad("kernel_shape is [2, 2], W has shape [3, 4, 3, 3]", t(1, 4, 5, 6), t(3, 4, 3, 3),
                t(1, 18, 3, 4), kernel_shape=[2, 2]),
            bad("strides [0, 1]", t(1, 4, 5, 6), t(3, 4, 3, 3), t(1, 18, 3, 4), strides=[0, 1]),
            bad("dilations [4611686018427387904, 1]", t(1, 4, 5, 6), t(3, 4, 3, 3), t(1, 18, 3, 4),
                dilations=[2**62, 1]),
        ],
    ),
]  # fmt: skip
