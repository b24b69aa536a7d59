"""Pooling and its gradients."""

import numpy as np
import torch
import torch.nn.functional as F

from ..table import Op, bad, const, i, sample, t


def axis_windows(size, k, s, dilation, before, after, ceil_mode, auto_pad):
    """Input positions of each window along one axis; -1 is padding, -2 beyond it."""
    reach = dilation * (k - 1) + 1
    if auto_pad.startswith("SAME"):
        count = -(-size // s)
        total = max(0, (count - 1) * s + reach - size)
        before = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        after = total - before
    else:
        span = size + before + after - reach
        count = (-(-span // s) if ceil_mode else span // s) + 1
        if ceil_mode and (count - 1) * s >= size + before:
            count -= 1
    rows = [[o * s + j * dilation - before for j in range(k)] for o in range(count)]
    return [[a if 0 <= a < size else -1 if a < size + after else -2 for a in row] for row in rows]


def windows(x, kernel_shape, strides=None, dilations=None, pads=None, ceil_mode=0, auto_pad=""):
    n = len(kernel_shape)
    strides, dilations = strides or [1] * n, dilations or [1] * n
    pads = pads or [0] * 2 * n
    each = zip(x.shape[2:], kernel_shape, strides, dilations, pads[:n], pads[n:], strict=True)
    return [axis_windows(*one, ceil_mode, auto_pad) for one in each]


def flat_places(columns, strides):
    """Flat positions of a window in its plane; -1 and -2 where any axis is outside."""
    grid = np.stack(np.meshgrid(*columns, indexing="ij"), -1).reshape(-1, len(columns))
    return [int(at @ strides) if at.min() >= 0 else int(at.min()) for at in grid]


def pooled(x, axes, f):
    """f(elements of a window, its places, all places) for each window."""
    flat = x.reshape(*x.shape[:2], -1)
    strides = np.cumprod([1, *reversed(x.shape[3:])])[::-1]
    results = []
    for choice in np.ndindex(*[len(axis) for axis in axes]):
        columns = [axis[o] for axis, o in zip(axes, choice, strict=True)]
        places = flat_places(columns, strides)
        inside = [p for p in places if p >= 0]
        results.append(f(flat[..., inside], inside, places))
    shape = (*x.shape[:2], *[len(axis) for axis in axes])
    return [torch.stack(r, -1).reshape(shape) for r in zip(*results, strict=True)]


def max_pool(x, storage_order=0, **attrs):
    space = x.shape[2:]
    size = int(np.prod(space))
    along = torch.arange(size)
    if storage_order:
        along = torch.arange(size).reshape(*reversed(space)).permute(*reversed(range(len(space))))
        along = along.flatten()
    planes = torch.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2]) * int(np.prod(x.shape[2:]))

    def largest(values, inside, places):
        value, at = values.max(-1)
        return value, planes + along[torch.tensor(inside)[at]]

    return tuple(pooled(x, windows(x, **attrs), largest))


def average_pool(x, count_include_pad=0, **attrs):
    def mean(values, inside, places):
        count = sum(p > -2 for p in places) if count_include_pad else len(inside)
        return (values.sum(-1) / max(count, 1),)  # of padding alone it is 0

    return pooled(x, windows(x, **attrs), mean)[0]


def max_pool_grad(dy, indices, *, dims):
    return (
        torch.zeros(int(np.prod(dims)), dtype=dy.dtype)
        .index_add(0, indices.reshape(-1), dy.reshape(-1))
        .reshape(dims)
    )


def average_pool_grad(dy, *, dims, **attrs):
    x = torch.zeros(dims, dtype=dy.dtype, requires_grad=True)
    return torch.autograd.grad(average_pool(x, **attrs), x, dy)[0]


CASES = [
    ((2, 3, 9), {"kernel_shape": [3]}),
    ((2, 3, 8, 7), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
    ((2, 3, 8, 7), {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    (
        (1, 2, 5, 5),
        {"kernel_shape": [3, 3], "strides": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1},
    ),
    ((1, 2, 9), {"kernel_shape": [3], "dilations": [2]}),
    ((1, 2, 4, 5, 3), {"kernel_shape": [2, 2, 2]}),
    ((1, 2, 7, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((1, 2, 7, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ((1, 2, 7, 8), {"kernel_shape": [3, 2], "dilations": [2, 3], "auto_pad": "SAME_UPPER"}),
    (
        (1, 2, 7, 9),
        {"kernel_shape": [3, 2], "strides": [2, 2], "dilations": [2, 2], "auto_pad": "SAME_LOWER"},
    ),
]
COLUMNS = [(shape, {**attrs, "storage_order": 1}) for shape, attrs in CASES[1:3] + CASES[5:6]]
PADDED = [(shape, {**attrs, "count_include_pad": 1}) for shape, attrs in CASES]
ERRORS = [
    bad("x has shape [3, 5], expected [N, C, D1..]", t(3, 5), kernel_shape=[3]),
    bad("do not fit 1 spatial axes", t(1, 3, 5), kernel_shape=[3, 3]),
    bad("must be positive", t(1, 3, 5), kernel_shape=[0]),
    bad("attribute 'kernel_shape' is required", t(1, 3, 5)),
]


def average_backward(shape, attrs):
    out = average_pool(torch.zeros(shape, dtype=torch.float64), **attrs).shape
    return sample(t(*out), dims=list(shape), symbolic=False, **attrs)


def windows_of(x, kernel, strides, dilations, pads, ceil_mode):
    """Each window's elements on the last axis, zeros beyond x."""
    n = len(kernel)
    for k in range(n):
        axis = 2 + k
        before, after = pads[k], pads[n + k]
        reach = dilations[k] * (kernel[k] - 1) + 1
        size = x.shape[axis]
        count = (size + before + after - reach) // strides[k] + 1
        if ceil_mode:
            count = -(-(size + before + after - reach) // strides[k]) + 1
            count -= (count - 1) * strides[k] >= size + before
        more = max((count - 1) * strides[k] + reach - size - before, 0)
        x = F.pad(x.movedim(axis, -1), (before, max(more, after))).movedim(-1, axis)
        at = torch.arange(count)[:, None] * strides[k] + torch.arange(kernel[k]) * dilations[k]
        x = x.movedim(axis, 0)[at].movedim(1, -1).movedim(0, axis)
    return x.flatten(2 + n)


def lp_pool(
    x, kernel_shape, p=2, strides=None, dilations=None, pads=None, ceil_mode=0, auto_pad="NOTSET"
):
    n = len(kernel_shape)
    assert auto_pad in ("NOTSET", "VALID")
    ones = [1] * n
    found = windows_of(
        x, kernel_shape, strides or ones, dilations or ones, pads or [0] * 2 * n, ceil_mode
    )
    return torch.linalg.vector_norm(found, p, -1)


def global_lp_pool(x, p=2):
    return torch.linalg.vector_norm(x, p, tuple(range(2, x.dim())), keepdim=True)


def max_unpool(x, indices, shape=None, kernel_shape=(), strides=None, pads=None):
    n = len(kernel_shape)
    strides, pads = strides or [1] * n, pads or [0] * 2 * n
    whole = list(x.shape[:2]) + [
        (x.shape[2 + k] - 1) * strides[k] - pads[k] - pads[n + k] + kernel_shape[k]
        for k in range(n)
    ]
    whole = whole if shape is None else shape.tolist()
    y = torch.zeros(int(np.prod(whole)), dtype=x.dtype)
    return y.index_put((indices.flatten(),), x.flatten()).reshape(whole)


BYTES = [
    sample(i(2, 5, 7, 8, low=-100, high=100, dtype="int8"), kernel_shape=[3, 2], strides=[2, 2],
           pads=[1, 0, 1, 1]),
    sample(i(2, 5, 7, 8, high=256, dtype="uint8"), kernel_shape=[3, 3], strides=[2, 2],
           ceil_mode=1),
    sample(i(2, 3, 9, high=256, dtype="uint8"), kernel_shape=[2], dilations=[3]),
    sample(i(1, 3, 4, 5, 6, low=-100, dtype="int8"), kernel_shape=[2, 2, 2]),
    sample(i(1, 3, 5, 5, low=-100, dtype="int8"), kernel_shape=[2, 2], auto_pad="SAME_LOWER"),
]  # fmt: skip
PLACES = np.array([[[[5, 7], [13, 15]]]])


OPS = [
    Op(
        "MaxPool",
        max_pool,
        [sample(t(*shape), **attrs) for shape, attrs in CASES + COLUMNS] + BYTES,
        ERRORS,
        through=(0,),
    ),
    Op(
        "ort::MaxPoolGrad",
        max_pool_grad,
        [sample(t(1, 2, 3), i(1, 2, 3, high=6) + [[[0], [6]]], dims=[1, 2, 6])],
        [
            bad(
                "index 12 is out of range for size 12",
                t(1, 1, 1),
                np.full((1, 1, 1), 12),
                dims=[1, 1, 12],
            )
        ],
        no_gradient="only in a backward",
    ),
    Op(
        "AveragePool",
        average_pool,
        [sample(t(*shape), **attrs) for shape, attrs in CASES + PADDED],
        ERRORS,
    ),
    Op(
        "ort::AveragePoolGrad",
        average_pool_grad,
        [average_backward(shape, attrs) for shape, attrs in CASES + PADDED],
        no_gradient="only in a backward",
    ),
    Op(
        "GlobalAveragePool",
        lambda x: x.mean(tuple(range(2, x.dim())), keepdim=True),
        [sample(t(2, 3, 5)), sample(t(2, 3, 4, 5))],
    ),
    Op(
        "GlobalMaxPool",
        lambda x: x.amax(tuple(range(2, x.dim())), keepdim=True),
        [sample(t(2, 3, 5)), sample(t(2, 3, 4, 5))],
    ),
    Op(
        "LpPool",
        lp_pool,
        [
            sample(t(2, 3, 8), kernel_shape=[3]),
            sample(t(2, 3, 7, 8), kernel_shape=[3, 2], strides=[2, 2], p=3),
            sample(t(1, 2, 6, 7), kernel_shape=[2, 3], pads=[1, 0, 1, 2], p=1),
            sample(t(1, 2, 6, 7), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
            sample(
                t(1, 2, 8, 7), kernel_shape=[2, 2], dilations=[2, 3], strides=[3, 2], ceil_mode=1
            ),
            sample(t(1, 1, 4, 4, 5), kernel_shape=[2, 2, 2]),
            sample(t(2, 3, 7), kernel_shape=[3], strides=[3], ceil_mode=1, auto_pad="VALID"),
        ],
        [
            bad("p is 0, expected a positive number", t(2, 3, 8), kernel_shape=[3], p=0),
            bad("do not fit 1 spatial axes", t(2, 3, 8), kernel_shape=[3, 3]),
        ],
    ),
    Op("GlobalLpPool", global_lp_pool, [sample(t(2, 3, 5)), sample(t(2, 3, 4, 5), p=3)]),
    Op(
        "MaxUnpool",
        max_unpool,
        [
            sample(t(1, 1, 2, 2), PLACES, kernel_shape=[2, 2], strides=[2, 2]),
            sample(
                t(1, 1, 2, 2), PLACES + 9, const([1, 1, 5, 5]), kernel_shape=[2, 2], strides=[2, 2]
            ),
        ],
        [
            bad("do not fit 2 spatial axes", t(1, 1, 2, 2), PLACES, kernel_shape=[2]),
            bad(
                "output_shape has 3 numbers, X has 4",
                t(1, 1, 2, 2),
                PLACES,
                const([1, 5, 5]),
                kernel_shape=[2, 2],
            ),
        ],
    ),
]
