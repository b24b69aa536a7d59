"""Resize and its gradient: a matrix for each axis, by ONNX's text. Where positions are to be
torch's, torch is asked."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from ...table import Op, bad, const, sample, t

ROUND = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_prefer_floor": lambda x: math.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: math.floor(x + 0.5),
}


def position(mode, o, size, target, scale, roi):
    """Where element o of the result lies on an axis of x; `scale` * size may be no integer."""
    length, half = scale * size, (o + 0.5) / scale - 0.5
    if mode == "align_corners":
        return o * (size - 1) / (length - 1) if length != 1 else 0
    if mode == "tf_crop_and_resize":
        start, end = roi
        if target == 1:
            return 0.5 * (start + end) * (size - 1)
        return (start + o * (end - start) / (target - 1)) * (size - 1)
    if mode == "half_pixel_symmetric":
        return size / 2 * (1 - target / length) + half
    if mode == "pytorch_half_pixel" and target == 1:
        return 0
    return o / scale if mode == "asymmetric" else half


def hat(x):
    return max(0.0, 1 - abs(x))


def keys(x, a):
    x = abs(x)
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0.0


def row(at, size, scale, mode="nearest", nearest_mode="round_prefer_floor", antialias=0,
        cubic_coeff_a=-0.75, exclude_outside=0, **_):  # fmt: skip
    """What a result at this position takes of each element of x."""
    taken = np.zeros(size)
    if mode == "nearest":
        taken[min(max(ROUND[nearest_mode](at), 0), size - 1)] = 1
        return taken
    narrow = min(scale, 1.0) if antialias else 1.0
    reach = math.ceil(2 / narrow)
    near = range(math.floor(at) - reach, math.floor(at) + reach + 2)
    far = [(i - at) * narrow for i in near]
    weights = [hat(x) if mode == "linear" else keys(x, cubic_coeff_a) for x in far]
    for i, weight in zip(near, weights, strict=True):
        if not exclude_outside or 0 <= i < size:
            taken[min(max(i, 0), size - 1)] += weight
    return taken / taken.sum()


def axis_map(size, target, scale, roi, attrs):
    """[target, size], and which results are no element of x."""
    mode = attrs.get("coordinate_transformation_mode", "half_pixel")
    places = [position(mode, o, size, target, scale, roi) for o in range(target)]
    outside = [mode.startswith("tf") and not 0 <= at <= size - 1 for at in places]
    rows = [row(at, size, scale, **attrs) * (not gone)
            for at, gone in zip(places, outside, strict=True)]  # fmt: skip
    return torch.tensor(np.array(rows).reshape(target, size)), torch.tensor(outside).bool()


def targets(x, axes, scales, sizes, policy):
    """(size, scale) of each axis."""
    if scales is not None:
        return [(int(np.float32(x.shape[a]) * np.float32(s)), float(s))
                for a, s in zip(axes, scales, strict=True)]  # fmt: skip
    ratios = [int(n) / x.shape[a] for a, n in zip(axes, sizes, strict=True)]
    if policy == "stretch":
        return [(int(n), ratio) for n, ratio in zip(sizes, ratios, strict=True)]
    common = min(ratios) if policy == "not_larger" else max(ratios)
    return [(math.floor(common * x.shape[a] + 0.5), common) for a in axes]


def as_torch(x, sizes, torch_scales, mode, coordinate_transformation_mode, antialias=0, **attrs):
    space = x.dim() - 2
    kind = {"linear": ["", "linear", "bilinear", "trilinear"][space], "cubic": "bicubic"}.get(mode)
    if kind is None:
        kind = "nearest" if coordinate_transformation_mode == "asymmetric" else "nearest-exact"
    if tuple(x.shape[:2]) != tuple(int(n) for n in sizes[:2]):
        raise ValueError("torch resizes no images and channels")
    given = (
        {"size": [int(n) for n in sizes[2:]]}
        if not any(torch_scales)
        else {"scale_factor": torch_scales[2:], "recompute_scale_factor": False}
    )
    if mode != "nearest":
        given["align_corners"] = coordinate_transformation_mode == "align_corners"
    y = F.interpolate(x, mode=kind, antialias=bool(antialias), **given)
    if tuple(y.shape) != tuple(int(n) for n in sizes):
        raise ValueError("the factor gives other sizes")
    return y


def resize(x, roi=None, scales=None, sizes=None, axes=None, torch_scales=None,
           keep_aspect_ratio_policy="stretch", extrapolation_value=0.0, **attrs):  # fmt: skip
    if torch_scales is not None:
        return as_torch(x, sizes, torch_scales, **attrs)
    axes = range(x.dim()) if axes is None else [a % x.dim() for a in axes]
    outside = torch.zeros((), dtype=torch.bool)
    each = targets(x, axes, scales, sizes, keep_aspect_ratio_policy)
    ends = [None] * len(each) if roi is None else roi.reshape(2, -1).T.tolist()
    for axis, (size, scale), ends_of_axis in zip(axes, each, ends, strict=True):
        weights, beyond = axis_map(x.shape[axis], size, scale, ends_of_axis, attrs)
        x = torch.tensordot(x, weights.to(x.dtype), ([axis], [1])).movedim(-1, axis)
        outside = outside | beyond.reshape([-1 if a == axis else 1 for a in range(x.dim())])
    return x.masked_fill(outside, extrapolation_value)


def resize_grad(dy, roi=None, scales=None, sizes=None, *, dims, **attrs):
    x = torch.zeros(dims, dtype=dy.dtype, requires_grad=True)
    attrs["extrapolation_value"] = 0.0
    return torch.autograd.grad(resize(x, roi, scales, sizes, **attrs), x, dy, create_graph=True)[0]


def scales(*numbers):
    return const(numbers, "float32")


HALF, CORNERS = "half_pixel", "align_corners"
NAME = "coordinate_transformation_mode"


def at(mode, coordinates, **attrs):
    return {"mode": mode, NAME: coordinates, **attrs}


CASES = [
    # x, roi, scales, sizes, attributes
    ((1, 2, 3, 4), None, scales(1, 1, 2, 2), None,
     at("nearest", "asymmetric", nearest_mode="floor")),
    ((2, 3, 5), None, scales(1, 1, 2.6), None, {}),
    ((2, 3, 5), None, scales(1, 1, 0.6), None, at("nearest", HALF, nearest_mode="ceil")),
    ((1, 2, 5, 4), None, None, const([1, 2, 8, 3]),
     at("nearest", HALF, nearest_mode="round_prefer_ceil")),
    ((1, 2, 3, 2, 3), None, scales(1, 1, 2, 1, 3), None, at("nearest", "asymmetric")),
    ((3, 4), None, scales(2, 1.5), None, at("nearest", CORNERS)),
    ((2, 3, 7), None, scales(1, 1, 2), None, at("linear", HALF)),
    ((1, 2, 4, 5), None, scales(1, 1, 2, 2), None, at("linear", HALF)),
    ((1, 2, 6, 5), None, scales(1, 1, 0.5, 0.7), None, at("linear", "half_pixel_symmetric")),
    ((1, 2, 4, 5), None, None, const([1, 2, 7, 1]), at("linear", "pytorch_half_pixel")),
    ((1, 2, 4, 5), None, None, const([1, 2, 7, 9]), at("linear", CORNERS)),
    ((1, 1, 3, 2, 4), None, scales(1, 1, 2, 1.5, 0.5), None, at("linear", "asymmetric")),
    ((2, 3, 4), None, scales(2, 1, 2), None, at("linear", HALF)),
    ((1, 2, 5, 6), None, scales(1, 1, 1.8, 0.6), None, at("cubic", HALF)),
    ((1, 2, 5, 6), None, scales(1, 1, 0.8, 2), None,
     at("cubic", HALF, cubic_coeff_a=-0.5, exclude_outside=1)),
    ((1, 2, 5, 4), None, None, const([1, 2, 9, 9]), at("cubic", CORNERS)),
    ((1, 2, 9, 10), None, scales(1, 1, 0.4, 0.7), None, at("linear", HALF, antialias=1)),
    ((1, 2, 9, 10), None, None, const([1, 2, 4, 13]),
     at("cubic", HALF, antialias=1, exclude_outside=1)),
    ((1, 1, 5, 6), const([0, 0, 0.2, 0.1, 1, 1, 1.2, 0.8], "float32"), None, const([1, 1, 4, 5]),
     at("linear", "tf_crop_and_resize", extrapolation_value=2.0)),
    ((2, 5), const([0, 0.1, 1, 0.9], "float32"), scales(1, 1.5), None,
     at("linear", "tf_crop_and_resize")),
    ((2, 5, 6), const([0.37, 0.93, 0.92, 0.12], "float32"), None, const([4, 5]),
     at("nearest", "tf_crop_and_resize", extrapolation_value=1.0, axes=[1, -1])),
    ((2, 3, 4, 4), None, scales(2, 0.5), None, at("linear", HALF, axes=[3, 2])),
    ((1, 2, 4, 6), None, None, const([8, 9]),
     at("linear", HALF, axes=[2, 3], keep_aspect_ratio_policy="not_larger")),
    ((1, 2, 4, 6), None, None, const([5, 3]),
     at("nearest", HALF, axes=[-2, -1], keep_aspect_ratio_policy="not_smaller")),
    ((1, 2, 4, 5), None, None, const([1, 2, 7, 12]),
     at("linear", HALF, torch_scales=[0.0, 0.0, 1.9, 2.5])),
    ((1, 2, 4, 5), None, None, const([1, 2, 1, 4]), at("cubic", HALF, torch_scales=[0.0] * 4)),
    ((1, 2, 9, 8), None, None, const([1, 2, 4, 11]),
     at("linear", HALF, antialias=1, torch_scales=[0.0] * 4)),
    ((2, 2, 5), None, None, const([2, 2, 13]), at("nearest", "asymmetric", torch_scales=[0.0] * 3)),
    ((2, 2, 5), None, None, const([2, 2, 13]), at("nearest", HALF, torch_scales=[0.0] * 3)),
]  # fmt: skip


def backward(shape, roi, scales, sizes, attrs):
    given = [item and torch.tensor(item.array) for item in (roi, scales, sizes)]
    dy = resize(torch.zeros(shape, dtype=torch.float64), *given, **attrs)
    return sample(t(*dy.shape), roi, scales, sizes, dims=list(shape), symbolic=False, **attrs)


X = (1, 2, 4, 5)
OPS = [
    Op(
        "Resize",
        resize,
        [sample(t(*shape), *lists, **attrs) for shape, *lists, attrs in CASES],
        [
            bad("it has none of scales and sizes, expected one", t(*X)),
            bad("it has both of scales and sizes, expected one", t(*X), None, scales(1, 1, 2, 2),
                const(X)),
            bad("scales has shape [3], expected [4]", t(*X), None, scales(1, 1, 2)),
            bad("sizes has shape [3], expected [2]", t(*X), None, None, const([1, 1, 2]),
                axes=[2, 3]),
            bad("axes [3, -1] name an axis twice", t(*X), None, scales(2, 2), axes=[3, -1]),
            bad("scale -2 of axis 3 is out of range", t(*X), None, scales(1, 1, 2, -2)),
            bad("sizes [1, 2, -3, 4] has a negative size", t(*X), None, None, const([1, 2, -3, 4])),
            bad("attribute 'mode' is 'area', expected one of nearest, linear, cubic", t(*X), None,
                scales(1, 1, 2, 2), mode="area"),
            bad("tf_crop_and_resize has no roi", t(*X), None, scales(1, 1, 2, 2),
                coordinate_transformation_mode="tf_crop_and_resize"),
            bad("axis 2 of x has size 0, that of y 3", t(1, 2, 0), None, None, const([1, 2, 3])),
        ],
    ),
    Op(
        "ort::ResizeGrad",
        resize_grad,
        [backward(*case) for case in CASES],
        [bad("dy has shape [4], dims are [1, 2]", t(4), None, None, const([4]), dims=[1, 2])],
    ),
]  # fmt: skip
