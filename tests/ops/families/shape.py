"""Constants, views and movement of data."""

import numpy as np
import torch

from ..table import Op, b, bad, const, i, sample, t


def constant(value):
    return torch.from_numpy(value.copy())


def constant_of_shape(shape, value=None):
    value = np.zeros(1, "float32") if value is None else value
    return torch.from_numpy(value.copy()).reshape(()).expand(tuple(shape.tolist())).clone()


def shape(x, start=0, end=None):
    return torch.tensor(list(x.shape)[start:end], dtype=torch.int64)


def range_(start, limit, delta):
    values = np.arange(start.item(), limit.item(), delta.item())
    return torch.from_numpy(values).to(start.dtype)


def reshape(x, to, allowzero=0):
    sizes = to.tolist()
    if not allowzero:
        sizes = [x.shape[k] if n == 0 else n for k, n in enumerate(sizes)]
    return x.reshape(sizes)


def squeeze(x, axes=None):
    return x.squeeze() if axes is None else x.squeeze(tuple(axes.tolist()))


def unsqueeze(x, axes):
    rank = x.dim() + len(axes)
    for axis in sorted(a % rank for a in axes.tolist()):
        x = x.unsqueeze(axis)
    return x


def flatten(x, axis=1):
    axis = axis + x.dim() if axis < 0 else axis
    rows = int(np.prod(x.shape[:axis], dtype=int))
    return x.reshape(rows, int(np.prod(x.shape[axis:], dtype=int)))


def expand(x, to):
    return x.expand(torch.broadcast_shapes(x.shape, tuple(to.tolist()))).clone()


def split(x, sizes=None, axis=0, num_outputs=None):
    if sizes is None:
        return torch.split(x, -(-x.shape[axis] // num_outputs), axis)
    return torch.split(x, sizes.tolist(), axis)


OPS = [
    Op(
        "Constant",
        constant,
        [
            sample(value=np.array([1.5, np.inf], "float32")),
            sample(value=np.array(3)),
            sample(value=np.zeros((0, 2), "float64")),
            sample(value=np.array([True, False])),
        ],
        [bad("attribute 'value' is missing or no tensor", value=1)],
    ),
    Op(
        "ort::Sizes",
        lambda dims, scalar=0: torch.tensor(dims[0] if scalar else dims, dtype=torch.int64),
        [sample(dims=[2, 3]), sample(dims=[5], scalar=1), sample(dims=[])],
    ),
    Op(
        "Shape",
        shape,
        [
            sample(t(2, 3, 5)),
            sample(t(2, 3, 5), start=1),
            sample(t(2, 3, 5), start=-2, end=-1),
            sample(b(4)),
            sample(t()),
        ],
    ),
    Op(
        "Size",
        lambda x: torch.tensor(x.numel()),
        [sample(t(2, 3, 5)), sample(t(0, 2)), sample(t())],
    ),
    Op(
        "ConstantOfShape",
        constant_of_shape,
        [
            sample(const([2, 3])),
            sample(const([2, 0]), value=np.array([7])),
            sample(const([]), value=np.array([True])),
        ],
    ),
    Op(
        "Range",
        range_,
        [
            sample(const(0), const(5), const(1)),
            sample(const(7), const(-2), const(-3)),
            sample(const(3), const(3), const(1)),
            sample(const(5), const(3), const(1)),
            sample(const(1, "int32"), const(9, "int32"), const(3, "int32")),
        ],
    ),
    Op(
        "Reshape",
        reshape,
        [
            sample(t(2, 3, 5), const([6, 5])),
            sample(t(2, 3, 5), const([-1, 3])),
            sample(t(2, 3, 5), const([0, -1])),
            sample(t(2, 3, 5), const([0, 0, 5, 1])),
            sample(t(0, 3), const([3, 0]), allowzero=1),
            sample(t(1, 1), const([])),
            sample(b(4), const([2, 2])),
        ],
        [
            bad("shape [4, 5] has 20 elements, the input [2, 3] has 6", t(2, 3), const([4, 5])),
            bad("has more than one -1", t(2, 3), const([-1, -1])),
            bad("does not divide the 6 elements", t(2, 3), const([-1, 4])),
            bad("copies axis 2, which the input has not", t(2, 3), const([2, 3, 0])),
            bad("has a negative size", t(2, 3), const([-2, -3])),
        ],
    ),
    Op(
        "Squeeze",
        squeeze,
        [
            sample(t(2, 1, 3, 1)),
            sample(t(2, 1, 3, 1), const([1])),
            sample(t(2, 1, 3, 1), const([-1, 1])),
            sample(t(1)),
        ],
        [
            bad("axis 0 of [2, 1] has size 2, expected 1", t(2, 1), const([0])),
            bad("axes [1, 1] name an axis twice", t(2, 1), const([1, -1])),
        ],
    ),
    Op(
        "Unsqueeze",
        unsqueeze,
        [sample(t(2, 3), const([1])), sample(t(2, 3), const([-1, 0])), sample(t(), const([0]))],
        [bad("axis 4 does not exist", t(2, 3), const([4]))],
    ),
    Op(
        "Flatten",
        flatten,
        [
            sample(t(2, 3, 5)),
            sample(t(2, 3, 5), axis=0),
            sample(t(2, 3, 5), axis=3),
            sample(t(2, 3, 5), axis=-1),
        ],
        [bad("axis 4 does not exist, the input has rank 3", t(2, 3, 5), axis=4)],
    ),
    Op("ort::StopGradient", torch.clone, [sample(t(2, 3)), sample(i(4))]),
    Op(
        "Transpose",
        lambda x, perm=None: x.permute(perm or tuple(reversed(range(x.dim())))),
        [
            sample(t(3, 5)),
            sample(t(2, 3, 5), perm=[1, 2, 0]),
            sample(t(2, 3, 5), perm=[0, 2, 1]),
            sample(t(7)),
            sample(b(2, 3), perm=[1, 0]),
            sample(t(0, 3)),
        ],
        [bad("perm [0, 0] is no permutation of the 2 axes", t(2, 3), perm=[0, 0])],
    ),
    Op(
        "Expand",
        expand,
        [
            sample(t(3, 1), const([2, 3, 5])),
            sample(t(3, 5), const([1, 1])),
            sample(t(), const([4])),
            sample(t(1, 3), const([0, 3])),
            sample(i(1), const([3])),
        ],
        [bad("shapes [3] and [4] do not broadcast", t(3), const([4]))],
    ),
    Op(
        "Concat",
        lambda *xs, axis: torch.cat(xs, axis),
        [
            sample(t(2, 3), t(2, 5), axis=1),
            sample(t(2, 3), axis=0),
            sample(t(2, 3), t(4, 3), t(1, 3), axis=-2),
            sample(i(3), i(2), axis=0),
            sample(t(0, 3), t(2, 3), axis=0),
        ],
        [
            bad("inputs have shapes [2, 3] and [2], expected one rank", t(2, 3), t(2), axis=0),
            bad("which differ in axis 1", t(2, 3), t(2, 4), axis=0),
        ],
    ),
    Op(
        "Split",
        split,
        [
            sample(t(6, 3), num_outputs=3),
            sample(t(7, 3), num_outputs=3),
            sample(t(2, 7), const([1, 4, 2]), axis=1),
            sample(t(2, 7), const([7, 0]), axis=-1),
            sample(i(6), const([2, 4])),
        ],
        [bad("split [1, 2] has 2 sizes, the node has 1 outputs", t(3), const([1, 2]))],
    ),
    Op(
        "Tile",
        lambda x, repeats: x.repeat(repeats.tolist()),
        [
            sample(t(2, 3), const([2, 3])),
            sample(t(3), const([1])),
            sample(t(2, 3), const([0, 1])),
            sample(i(2, 1), const([1, 4])),
        ],
        [bad("repeats [2] has 1 sizes, the input has rank 2", t(2, 3), const([2]))],
    ),
]
