"""Reductions, arg-extrema, running sums and products, top-k."""

import numpy as np
import torch

from ..table import Op, bad, const, i, sample, special, t


def axes_of(x, axes, noop):
    if axes is not None and axes.numel():
        return tuple(axes.tolist())
    return () if noop else tuple(range(x.dim()))


def reduction(f, of_nothing=torch.clone):
    """of_nothing: what is left when no axis is reduced, as ONNX has it."""

    def reference(x, axes=None, keepdims=1, noop_with_empty_axes=0):
        over = axes_of(x, axes, noop_with_empty_axes)
        return f(x, over, bool(keepdims)).to(x.dtype) if over else of_nothing(x)

    return reference


def by_axis(f):
    """f over one axis at a time, the last one first."""

    def over_all(x, axes, keep):
        for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
            x = f(x, axis, keep)
        return x

    return over_all


def samples(*extra, **how):
    return [
        sample(t(3, 5, **how)),
        sample(t(2, 3, 5, **how), const([1])),
        sample(t(2, 3, 5, **how), const([-1, 0]), keepdims=0),
        sample(t(2, 3, 5, **how), const([2])),
        sample(t(7, **how), const([0]), keepdims=0),
        sample(t(3, 1, **how), const([1]), keepdims=0),
        sample(t(3, 5, **how), None, noop_with_empty_axes=1),
        sample(t(3, 5, **how), const([]), keepdims=0),
        *extra,
    ]


AXES = [bad("axis 2 does not exist, the input has rank 2", t(3, 5), const([2]))]
WHOLE = [sample(i(3, 4), const([1])), sample(i(3, 4, dtype="int32"), const([0]), keepdims=0)]
EMPTY = sample(t(3, 0), const([1]))
TIES = sample(np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]), const([1]), smooth=False)
ZEROS = sample(
    np.array([[0.0, 2.0, 3.0], [0.0, 0.0, 2.0], [1.0, 2.0, 3.0]]), const([1]), smooth=False
)


def arg(f, last_of):
    def reference(x, axis=0, keepdims=1, select_last_index=0):
        if not select_last_index:
            return f(x, axis, keepdim=bool(keepdims))
        flipped = f(x.flip(axis), axis, keepdim=bool(keepdims))
        return x.shape[axis] - 1 - flipped

    return reference


def running(f, start):
    def reference(x, axis, exclusive=0, reverse=0):
        axis = int(axis)
        x = x.flip(axis) if reverse else x
        if exclusive:
            first = torch.full_like(x.narrow(axis, 0, 1), start)
            x = torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
        y = f(x, axis).to(x.dtype)
        return y.flip(axis) if reverse else y

    return reference


def top_k(x, k, axis=-1, largest=1, sorted=1):
    """Of equal elements the first comes first, which torch.topk does not promise."""
    found = torch.sort(x, dim=axis, descending=bool(largest), stable=True)
    return tuple(part.narrow(axis, 0, int(k)) for part in found)


RUNNING = [
    sample(t(7), const(0)),
    sample(t(3, 5), const(1)),
    sample(t(3, 5), const(-2), exclusive=1),
    sample(t(3, 5), const(1), reverse=1),
    sample(t(3, 5), const(1), reverse=1, exclusive=1),
    sample(i(3, 4), const(0)),
]
NO_AXIS = [bad("axis 2 does not exist, the input has rank 2", t(3, 5), const(2))]
ZEROS_ON_THE_WAY = np.array(
    [[2.0, 0.0, 3.0, 4.0], [0.0, 2.0, 0.0, 3.0], [1.0, 2.0, 3.0, 0.0], [-0.0, 0.0, 1.0, 2.0]]
)

REPEATED = np.array([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0]])

OPS = [
    Op("ReduceSum", reduction(torch.sum), samples(*WHOLE, EMPTY), AXES),
    Op("ReduceMean", reduction(torch.mean), samples(), AXES),
    Op("ReduceMax", reduction(torch.amax), samples(*WHOLE, TIES), AXES),
    Op("ReduceMin", reduction(torch.amin), samples(*WHOLE, TIES), AXES),
    Op(
        "ReduceProd",
        reduction(by_axis(torch.prod)),
        samples(*WHOLE, ZEROS, EMPTY),
        AXES,
    ),
    Op(
        "ort::MinMax",
        lambda x: (x.amin(), x.amax()),
        [
            sample(t(3, 5)),
            sample(t(70, 1000)),
            sample(t()),
            sample(special(), gradient=False),
            sample(i(40, dtype="int32")),
        ],
    ),
    Op("ReduceL1", reduction(lambda x, a, keep: x.abs().sum(a, keep), torch.abs), samples(), AXES),
    Op(
        "ReduceL2",
        reduction(lambda x, a, keep: torch.linalg.vector_norm(x, 2, a, keep), torch.abs),
        samples(sample(np.zeros((2, 3)), const([1]), smooth=False)),
        AXES,
    ),
    Op(
        "ReduceSumSquare",
        reduction(lambda x, a, keep: (x * x).sum(a, keep), torch.square),
        samples(),
    ),
    Op(
        "ReduceLogSum",
        reduction(lambda x, axes, keep: x.sum(axes, keep).log()),
        samples(low=0.1, high=2.0)[:6],
    ),
    Op(
        "ReduceLogSumExp",
        reduction(torch.logsumexp),
        [*samples()[:6], sample(t(3, 5) * 1e3, const([1]))],
    ),
    Op("ort::SafeSqrt", torch.sqrt, [sample(t(3, 5, low=0.1, high=2.0))]),
    *[
        Op(
            name,
            arg(f, name),
            [
                sample(t(3, 5)),
                sample(t(2, 3, 5), axis=1, keepdims=0),
                sample(REPEATED, axis=-1),
                sample(REPEATED, axis=-1, select_last_index=1),
                sample(special(), axis=0),
                sample(i(4, 3), axis=1),
            ],
            [bad("axis 2 does not exist, the input has rank 2", t(3, 5), axis=2)],
        )
        for name, f in (("ArgMax", torch.argmax), ("ArgMin", torch.argmin))
    ],
    Op("CumSum", running(torch.cumsum, 0), RUNNING, NO_AXIS),
    Op(
        "CumProd",
        running(torch.cumprod, 1),
        [
            *RUNNING,
            sample(ZEROS_ON_THE_WAY, const(1)),
            sample(ZEROS_ON_THE_WAY, const(1), exclusive=1),
            sample(ZEROS_ON_THE_WAY, const(1), reverse=1),
            sample(ZEROS_ON_THE_WAY, const(0), reverse=1, exclusive=1),
        ],
        NO_AXIS,
    ),
    Op(
        "TopK",
        top_k,
        [
            sample(t(3, 7), const([3])),
            sample(t(3, 7), const([7]), largest=0),
            sample(t(5, 3), const([2]), axis=0),
            sample(i(9, low=-99, high=99), const([4]), axis=-1),
        ],
        [bad("k is 8, axis 1 of [3, 7] has size 7", t(3, 7), const([8]))],
        through=(0,),
    ),
]
