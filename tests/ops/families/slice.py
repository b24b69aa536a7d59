"""Parts of a tensor."""

import numpy as np
import torch
import torch.nn.functional as F

from ..table import Op, bad, const, i, sample, t

END = 2**63 - 1


def cuts(x, starts, ends, axes=None, steps=None):
    starts, ends = starts.tolist(), ends.tolist()
    axes = range(len(starts)) if axes is None else axes.tolist()
    steps = [1] * len(starts) if steps is None else steps.tolist()
    index = [np.arange(n) for n in x.shape]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        n = x.shape[axis]
        if step < 0 and end < -n:
            end = None
        index[axis] = np.arange(n)[start:end:step]
    return [torch.from_numpy(part.copy()) for part in index]


def slice_(x, starts, ends, axes=None, steps=None):
    for axis, part in enumerate(cuts(x, starts, ends, axes, steps)):
        x = x.index_select(axis, part)
    return x


def slice_grad(dy, starts, axes=None, steps=None, *, dims):
    rank = len(dims)
    axes = list(range(len(starts))) if axes is None else [a % rank for a in axes.tolist()]
    steps = [1] * len(starts) if steps is None else steps.tolist()
    index = [torch.arange(n) for n in dims]
    for axis, start, step in zip(axes, starts.tolist(), steps, strict=True):
        first = start + dims[axis] if start < 0 else start
        index[axis] = first + step * torch.arange(dy.shape[axis])
    dx = torch.zeros(dims, dtype=dy.dtype)
    dx[torch.meshgrid(*index, indexing="ij")] = dy
    return dx


def by_axis(x, pads, axes):
    """torch's list of pads, last axis first."""
    pads, both = pads.tolist(), [(0, 0)] * x.dim()
    axes = range(x.dim()) if axes is None else axes.tolist()
    for k, axis in enumerate(axes):
        both[axis] = (pads[k], pads[len(pads) // 2 + k])
    return both


def pad(x, pads, value=None, axes=None, mode="constant"):
    both = by_axis(x, pads, axes)
    if mode == "constant":
        flat = [n for pair in reversed(both) for n in pair]
        return F.pad(x, flat, value=0 if value is None else value.item())
    for axis, (before, after) in enumerate(both):
        left = np.arange(max(-before, 0), x.shape[axis] - max(-after, 0))
        at = np.pad(left, (max(before, 0), max(after, 0)), mode=mode)
        x = x.index_select(axis, torch.from_numpy(at))
    return x


def pad_grad(dy, pads, axes=None, *, dims, mode="reflect"):
    x = torch.zeros(dims, dtype=dy.dtype, requires_grad=True)
    return torch.autograd.grad(pad(x, pads, None, axes, mode), x, dy)[0]


def trilu(x, k=None, upper=1):
    k = 0 if k is None else int(k)
    return torch.triu(x, k) if upper else torch.tril(x, k)


def depth_to_space(x, blocksize, mode="DCR"):
    n, c, h, w = x.shape
    b = blocksize
    if mode == "CRD":
        return torch.nn.functional.pixel_shuffle(x, b)
    y = x.reshape(n, b, b, c // b**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return y.reshape(n, c // b**2, h * b, w * b)


def space_to_depth(x, blocksize, mode="DCR"):
    n, c, h, w = x.shape
    b = blocksize
    axes = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    y = x.reshape(n, c, h // b, b, w // b, b).permute(*axes)
    return y.reshape(n, c * b * b, h // b, w // b)


def eye_like(x, dtype=None, k=0):
    y = torch.from_numpy(np.eye(*x.shape, k))
    return y.to({None: x.dtype, 1: torch.float32, 7: torch.int64}[dtype])


OPS = [
    Op(
        "DepthToSpace",
        depth_to_space,
        [sample(t(2, 8, 3, 5), blocksize=2, mode=mode) for mode in ("DCR", "CRD")],
        [bad("which blocks of 2 do not divide", t(2, 7, 3, 5), blocksize=2)],
    ),
    Op(
        "SpaceToDepth",
        space_to_depth,
        [
            sample(t(2, 3, 4, 6), blocksize=2),
            sample(i(1, 2, 3, 3), blocksize=3),
            sample(t(2, 3, 4, 6), blocksize=2, mode="CRD"),
        ],
        [bad("which blocks of 2 do not divide", t(2, 7, 3, 5), blocksize=2)],
    ),
    Op(
        "EyeLike",
        eye_like,
        [
            sample(np.zeros((3, 5), "float32"), k=1),
            sample(i(5, 3), k=-2, dtype=1),
            sample(np.zeros((2, 2), "float32"), dtype=7),
        ],
        [
            bad("x has shape [3], expected 2 axes", t(3)),
            bad("which is no dtype", t(2, 2), dtype=99),
        ],
    ),
    Op(
        "Slice",
        slice_,
        [
            sample(t(5, 7), const([1, 2]), const([4, 6])),
            sample(t(5, 7), const([1]), const([END]), const([-1])),
            sample(t(5, 7), const([-3]), const([-1]), const([0])),
            sample(t(5, 7), const([0, 1]), const([9, 7]), const([0, 1]), const([2, 3])),
            sample(t(5, 7), const([-1]), const([-9]), const([1]), const([-1]), symbolic=False),
            sample(t(5, 7), const([5, 1]), const([0, 4]), None, const([-2, 1]), symbolic=False),
            sample(t(5), const([3]), const([2]), symbolic=False),
            sample(i(5), const([1]), const([3])),
        ],
        [
            bad(
                "axis 2 does not exist, the input has rank 2",
                t(5, 7),
                const([0]),
                const([1]),
                const([2]),
            ),
            bad("has a zero", t(5), const([0]), const([3]), const([0]), const([0])),
            bad("starts and ends have 1 and 2 elements", t(5), const([0]), const([1, 2])),
        ],
    ),
    Op(
        "ort::SliceGrad",
        slice_grad,
        [
            sample(t(3, 4), const([1, 2]), dims=[5, 7]),
            sample(t(5, 3), const([1]), const([-1]), const([2]), dims=[5, 7]),
            sample(t(7), const([-1]), const([0]), const([-1]), dims=[7]),
        ],
        [bad("do not fit axis 0", t(3), const([5]), dims=[7])],
        no_gradient="only in a backward",
    ),
    Op(
        "Pad",
        pad,
        [
            sample(t(3, 5), const([1, 2, 0, 3])),
            sample(t(3, 5), const([2, 1]), const(1.5, "float64"), const([1])),
            sample(t(3, 5), const([-1, 0, 0, -2])),
            sample(t(3, 5), const([2, 1, 1, 3]), mode="reflect"),
            sample(t(3, 5), const([2, 1, 1, 6]), mode="edge"),
            sample(t(3, 5), const([2, 1, 1, 6]), mode="wrap"),
            sample(t(3, 5), const([-1, 3, 4, -2]), mode="wrap"),
            sample(t(4, 5), const([-2, 9, 3, -3]), mode="wrap"),
            sample(t(4, 5), const([-1, 2, 2, -1]), mode="reflect"),
            sample(t(4, 5), const([-1, 2, 2, -1]), mode="edge"),
            sample(t(3, 5), const([2, 4]), None, const([-1]), mode="reflect"),
            sample(i(3), const([1, 1]), const(7)),
            sample(t(0, 2), const([1, 0, 1, 0])),
        ],
        [bad("leave axis 0 of [3] with size -1", t(3), const([-4, 0]))],
    ),
    Op(
        "ort::PadGrad",
        pad_grad,
        [
            sample(t(6, 9), const([2, 1, 1, 3]), dims=[3, 5]),
            sample(t(6, 9), const([2, 1, 1, 3]), dims=[3, 5], mode="edge"),
            sample(t(6, 9), const([2, 1, 1, 3]), dims=[3, 5], mode="wrap"),
            sample(t(3, 8), const([2, 1]), const([1]), dims=[3, 5]),
        ],
        [bad("sizes of dy 5 and 6 differ", t(5), const([2, 1]), dims=[3])],
        no_gradient="only in a backward",
    ),
    Op(
        "Trilu",
        trilu,
        [
            sample(t(3, 5)),
            sample(t(5, 3), upper=0),
            sample(t(2, 3, 5), const(1)),
            sample(t(2, 3, 5), const(-2), upper=0),
            sample(t(3, 3), const(9)),
            sample(i(3, 3), const(-1)),
        ],
        [bad("the input has shape [3], expected at least 2 axes", t(3))],
    ),
]
