"""Blocks of images as columns and back: by torch's fold and unfold where it has them, else index by
index."""

import itertools

import numpy as np
import torch

from ...table import Op, bad, const, i, sample, t


def places(image, block, strides, dilations, pads):
    """[product(block), L]: the flat place that each position of each block reads, -1 in padding."""
    n = len(block)
    ends = [s + pads[k] + pads[n + k] - dilations[k] * (block[k] - 1) for k, s in enumerate(image)]
    starts = [range(0, max(end, 0), step) for end, step in zip(ends, strides, strict=True)]
    found = []
    for at in itertools.product(*map(range, block)):
        found.append([])
        for start in itertools.product(*starts):
            place = [s + a * d - p for s, a, d, p in zip(start, at, dilations, pads, strict=False)]
            inside = all(0 <= p < size for p, size in zip(place, image, strict=True))
            found[-1].append(int(np.ravel_multi_index(place, image)) if inside else -1)
    return torch.tensor(found, dtype=torch.int64).reshape(len(found), -1)


def complete(n, strides=None, dilations=None, pads=None):
    return strides or [1] * n, dilations or [1] * n, pads or [0] * 2 * n


def im2col(x, block, **attrs):
    block, image = block.tolist(), list(x.shape[2:])
    at = places(image, block, *complete(len(block), **attrs))
    flat = x.flatten(2)
    columns = flat[:, :, at.clamp(min=0)] * (at >= 0).to(x.dtype)
    return columns.reshape(x.shape[0], x.shape[1] * at.shape[0], at.shape[1])


def col2im(x, image, block, **attrs):
    image, block = image.tolist(), block.tolist()
    at = places(image, block, *complete(len(block), **attrs))
    if x.shape[1] % at.shape[0] or x.shape[2] != at.shape[1]:
        raise ValueError("they do not fit")
    columns = x.reshape(x.shape[0], x.shape[1] // at.shape[0], -1)
    columns = columns * (at >= 0).flatten().to(x.dtype)
    y = torch.zeros(*columns.shape[:2], int(np.prod(image)), dtype=x.dtype)
    y = y.index_add(2, at.clamp(min=0).flatten(), columns)
    return y.reshape(*y.shape[:2], *image)


CASES = [
    # channels, image, block, attributes
    (2, [4, 5], [2, 2], {}),
    (3, [5, 6], [3, 2], {"strides": [2, 1], "pads": [1, 0, 1, 1]}),
    (1, [6, 7], [2, 3], {"dilations": [2, 2], "pads": [0, 1, 2, 0]}),
    (2, [9], [3], {"strides": [2]}),
    (2, [3, 4, 5], [2, 1, 3], {"strides": [1, 2, 1], "pads": [1, 0, 1, 0, 1, 1]}),
    (2, [2, 2], [2, 2], {"strides": [3, 3], "pads": [2, 2, 2, 2]}),
]


def columns_of(channels, image, block, attrs):
    at = places(image, block, *complete(len(block), **attrs))
    return t(2, channels * at.shape[0], at.shape[1])


OPS = [
    Op(
        "Col2Im",
        col2im,
        [sample(columns_of(*case), const(case[1]), const(case[2]), **case[3])
         for case in CASES]
        + [sample(i(1, 8, 12, low=-9), const([4, 5]), const([2, 2]), gradient=False)],
        [
            bad("input has shape [8, 12], expected [N, C product(block_shape), L]", t(8, 12),
                const([4, 5]), const([2, 2])),
            bad("input has shape [], expected [N, C product(block_shape), L]", t(), const([4]),
                i(1, low=2, high=3)),
            bad("there are 12 blocks", t(1, 8, 13), const([4, 5]), const([2, 2])),
            bad("whose rows are no multiple of a block of [2, 2]", t(1, 7, 12), const([4, 5]),
                const([2, 2])),
            bad("image_shape is [4, 5, 6], block_shape [2, 2]", t(1, 8, 12), const([4, 5, 6]),
                const([2, 2])),
            bad("must be positive", t(1, 8, 12), const([4, 5]), const([0, 2])),
            bad("strides [0, 1]", t(1, 8, 12), const([4, 5]), const([2, 2]), strides=[0, 1]),
            bad("no block [9, 9] fits", t(1, 81, 0), const([4, 5]), const([9, 9])),
        ],
    ),
    Op(
        "ort::Im2Col",
        im2col,
        [sample(t(2, channels, *image), const(block), **attrs)
         for channels, image, block, attrs in CASES]
        + [sample(i(1, 2, 4, 5, dtype=dtype), const([2, 2]), gradient=False)
           for dtype in ("int8", "int64")],
        [bad("x has shape [2, 3, 4], block_shape is [2, 2]", t(2, 3, 4), const([2, 2]))],
    ),
]  # fmt: skip
