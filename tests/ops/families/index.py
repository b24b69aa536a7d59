"""Reading and writing by index tensors."""

import numpy as np
import torch

from ..table import Op, bad, const, i, sample, t


def gather(x, indices, axis=0):
    axis %= x.dim()
    n = x.shape[axis]
    flat = x.index_select(axis, indices.long().reshape(-1) % max(n, 1))
    return flat.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


def embedding(weight, indices, padding_idx=-1):
    padding = None if padding_idx < 0 else padding_idx
    return torch.nn.functional.embedding(indices.long(), weight, padding)


def gather_grad(dy, indices, *, dims, axis=0, padding_idx=-1):
    x = torch.zeros(dims, dtype=dy.dtype, requires_grad=True)
    dx = torch.autograd.grad(gather(x, indices, axis), x, dy)[0]
    if padding_idx >= 0:
        dx.index_fill_(axis, torch.tensor([padding_idx]), 0)
    return dx


def wrapped(indices, x, axis):
    return indices.long() % x.shape[axis]


def gather_elements(x, indices, axis=0):
    return torch.gather(x, axis, wrapped(indices, x, axis))


NAMES = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def scatter_elements(x, indices, updates, axis=0, reduction="none"):
    at = wrapped(indices, x, axis)
    if reduction == "none":
        return x.scatter(axis, at, updates)
    if reduction == "add":
        return x.scatter_add(axis, at, updates)
    return x.scatter_reduce(axis, at, updates, NAMES[reduction])


def nd_index(indices, x):
    return tuple(indices[..., k] % x.shape[k] for k in range(indices.shape[-1]))


def gather_nd(x, indices, batch_dims=0):
    if batch_dims:
        return torch.stack(
            [gather_nd(a, k, batch_dims - 1) for a, k in zip(x, indices, strict=True)]
        )
    return x[nd_index(indices, x)]


def scatter_nd(x, indices, updates, reduction="none"):
    if reduction in ("none", "add"):
        return x.index_put(nd_index(indices, x), updates, accumulate=reduction == "add")
    flat = torch.arange(x.numel()).reshape(x.shape)[nd_index(indices, x)].reshape(-1)
    named = {"mul": "prod", "max": "amax", "min": "amin"}[reduction]
    return x.reshape(-1).scatter_reduce(0, flat, updates.reshape(-1), named).reshape(x.shape)


def one_hot(indices, depth, values, axis=-1):
    axis %= indices.dim() + 1
    depth, indices = int(depth), indices.long().unsqueeze(axis)
    classes = torch.arange(depth).reshape(-1, *[1] * (indices.dim() - 1 - axis))
    return torch.where((indices == classes) | (indices + depth == classes), values[1], values[0])


def distinct(*shape, high, dtype="int64"):
    """No index twice along the first axis."""
    columns = int(np.prod(shape[1:], dtype=int))
    picks = [np.random.default_rng(k).permutation(high)[: shape[0]] for k in range(columns)]
    return np.stack(picks, 1).reshape(shape).astype(dtype)


# At a place: one factor that is zero, two, x itself, none; x and updates that are equal, or not.
PLACES = np.array([0, 0, 1, 1, 2, 2, 3, 3])
ZEROS = np.array([2.0, 3.0, 0.0, 4.0, 0.5])
ZEROS_THERE = np.array([0.0, 3.0, 0.0, 0.0, 2.0, 0.0, 1.5, -2.0])
TIES = np.array([2.0, 1.0, 3.0, 0.0, 0.5])
TIES_THERE = np.array([2.0, 2.0, 1.0, 4.0, 3.0, 1.0, 0.0, -0.0])

RANGE = "index 5 is out of range for size 5"


def reverse_sequence(x, lengths, batch_axis=1, time_axis=0):
    x = x.movedim(time_axis, 0).clone()
    rows = [
        torch.cat([x[: int(n), k].flip(0), x[int(n) :, k]]) for k, n in enumerate(lengths.tolist())
    ]
    return torch.stack(rows, 1).movedim(0, time_axis)


OPS = [
    Op(
        "ReverseSequence",
        reverse_sequence,
        [
            sample(t(5, 3, 2), np.array([5, 0, 2])),
            sample(t(3, 5), np.array([1, 4, 3]), batch_axis=0, time_axis=1),
        ],
        [
            bad("sequence length 6 is not in 0 to 5", t(5, 1), np.array([6])),
            bad("expected 0 and 1", t(5, 1), np.array([6]), batch_axis=2),
        ],
    ),
    Op(
        "Gather",
        gather,
        [
            sample(t(5, 3), i(4, high=5)),
            sample(t(5, 3), i(2, 4, low=-5, high=5, dtype="int32")),
            sample(t(2, 5, 3), i(high=5), axis=1),
            sample(t(2, 3, 5), i(4, 1, high=5), axis=-1),
            sample(t(5, 3), i(0, high=5)),
            sample(i(5), i(2, 2, high=5)),
        ],
        [
            bad(RANGE, t(5, 3), np.array([0, 5])),
            bad("index -6 is out of range for size 5", t(5, 3), np.array([0, -6])),
            bad("axis 2 does not exist", t(5, 3), i(2), axis=2),
        ],
        wrt=(0,),
    ),
    Op(
        "ort::Embedding",
        embedding,
        [
            sample(t(9, 4), i(2, 3, high=9)),
            sample(t(9, 4), np.array([[1, 3], [3, 0]]), padding_idx=3, smooth=False),
            sample(t(9, 4), i(3, high=9, dtype="int32")),
        ],
        [
            bad("weight has shape [5], expected [V, D]", t(5), i(2)),
            bad("index 9 is out of range for size 9", t(9, 4), np.array([9])),
        ],
    ),
    Op(
        "ort::GatherGrad",
        gather_grad,
        [
            sample(t(4, 3), i(4, high=5), dims=[5, 3]),
            sample(t(2, 4, 3), i(4, low=-5, high=5), dims=[2, 5, 3], axis=1),
            sample(t(4, 3), np.array([1, 2, 1, 0]), dims=[5, 3], padding_idx=1),
            sample(t(4, 3), np.array([1, -1, 1, 0]), dims=[5, 3]),
        ],
        [bad(RANGE, t(1, 3), np.array([5]), dims=[5, 3])],
        no_gradient="only in a backward",
    ),
    Op(
        "GatherElements",
        gather_elements,
        [
            sample(t(5, 3), i(4, 3, high=5)),
            sample(t(2, 5), i(2, 7, low=-5, high=5), axis=1),
            sample(t(2, 5, 3), i(2, 5, 1, high=3, dtype="int32"), axis=-1),
        ],
        [bad(RANGE, t(5, 3), np.full((1, 3), 5)), bad("expected one rank", t(5, 3), i(2))],
    ),
    Op(
        "ScatterElements",
        scatter_elements,
        [
            sample(t(5, 3), distinct(4, 3, high=5), t(4, 3)),
            sample(t(5, 3), i(4, 3, low=-5, high=5), t(4, 3), reduction="add"),
            sample(t(2, 5), i(2, 7, high=5), t(2, 7), axis=1, reduction="add"),
            sample(t(2, 5), i(2, 7, high=5), t(2, 7), axis=-1, reduction="mul"),
            sample(t(2, 5), i(2, 7, high=5), t(2, 7), axis=1, reduction="max"),
            sample(t(2, 5), i(2, 7, high=5), t(2, 7), axis=1, reduction="min"),
            sample(ZEROS, PLACES, ZEROS_THERE, reduction="mul", smooth=False),
            sample(TIES, PLACES, TIES_THERE, reduction="max", smooth=False),
            sample(TIES, PLACES, TIES_THERE, reduction="min", smooth=False),
            sample(i(5), distinct(3, high=5), i(3)),
        ],
        [
            bad(RANGE, t(5), np.array([5]), t(1)),
            bad("updates has shape [3], expected [2]", t(5), i(2), t(3)),
        ],
    ),
    Op(
        "GatherND",
        gather_nd,
        [
            sample(t(3, 5), i(4, 2, high=3), symbolic=False),
            sample(t(3, 5, 2), i(4, 1, low=-3, high=3)),
            sample(t(3, 5, 2), i(2, 4, 2, high=3), symbolic=False),
            sample(t(3, 5, 2), i(3, 4, 1, high=5), batch_dims=1),
            sample(t(3, 4, 5, 2), i(3, 4, 2, high=2), batch_dims=2, symbolic=False),
            sample(t(3, 5), i(3, 1, low=-5, high=5), batch_dims=1),
        ],
        [
            bad("index 3 is out of range for size 3", t(3, 5), np.array([[3, 0]])),
            bad("indices have shape [4, 3]: 3 axes, x has rank 2", t(3, 5), i(4, 3)),
        ],
        wrt=(0,),
    ),
    Op(
        "ScatterND",
        scatter_nd,
        [
            sample(t(5, 3), distinct(3, 1, high=5), t(3, 3)),
            sample(t(5, 3), i(4, 2, high=3), t(4), reduction="add", symbolic=False),
            sample(t(5, 3), np.array([[0, 1], [2, -1]]), t(2), symbolic=False),
            sample(t(5, 3), i(4, 1, high=3), t(4, 3), reduction="mul"),
            sample(t(5, 3), i(4, 1, high=3), t(4, 3), reduction="max"),
            sample(t(5, 3), i(4, 2, high=3), t(4), reduction="min", symbolic=False),
            sample(ZEROS, PLACES[:, None], ZEROS_THERE, reduction="mul", smooth=False),
            sample(TIES, PLACES[:, None], TIES_THERE, reduction="max", smooth=False),
            sample(i(5), distinct(3, 1, high=5), i(3)),
        ],
        [bad("index 5 is out of range for size 5", t(5, 3), np.array([[5]]), t(1, 3))],
    ),
    Op(
        "OneHot",
        one_hot,
        [
            sample(i(3, 4, high=5), const(5), t(2)),
            sample(np.array([0, 7, -1, -9]), const(5), i(2)),
            sample(i(3, 4, high=5, dtype="int32"), const([5]), t(2), axis=0),
            sample(i(3, 4, high=5), const(5), t(2), axis=1),
        ],
    ),
]
