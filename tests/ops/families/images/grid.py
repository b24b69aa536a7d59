"""Where images are sampled, and windows in their middle."""

import torch.nn.functional as F

from ...table import Op, bad, const, i, sample, t


def affine_grid(theta, size, align_corners=0):
    return F.affine_grid(theta, size.tolist(), align_corners=bool(align_corners))


def center_crop_pad(x, shape, axes=None):
    for axis, size in zip(axes or range(x.dim()), shape.tolist(), strict=True):
        missing = size - x.shape[axis]
        if missing < 0:
            x = x.narrow(axis, -missing // 2, size)
        else:
            ends = [missing // 2, missing - missing // 2]
            x = F.pad(x.movedim(axis, -1), ends).movedim(-1, axis)
    return x


OPS = [
    Op(
        "AffineGrid",
        affine_grid,
        [
            sample(t(2, 2, 3), const([2, 3, 4, 5])),
            sample(t(2, 2, 3), const([2, 3, 4, 1]), align_corners=1),
            sample(t(1, 3, 4), const([1, 1, 2, 3, 4])),
            sample(t(1, 3, 4), const([1, 1, 2, 3, 4]), align_corners=1),
        ],
        [bad("theta has shape [2, 2, 2] and size 4 numbers", t(2, 2, 2), const([2, 3, 4, 5]))],
    ),
    Op(
        "CenterCropPad",
        center_crop_pad,
        [
            sample(t(7, 8), const([4, 11])),
            sample(t(3, 7, 8), const([10, 3]), axes=[-2, -1]),
            sample(t(3, 6), const([6, 3], "int32")),
            sample(i(5, 4), const([2, 9])),
        ],
        [
            bad("shape has 2 numbers for 3 axes", t(3, 6, 2), const([6, 3])),
            bad("axis 2 does not exist, x has rank 2", t(3, 6), const([6]), axes=[2]),
        ],
    ),
]
