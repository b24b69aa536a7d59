"""Pooling over regions of interest: torchvision's, and the maximum of onnx's text."""

import math

import numpy as np
import torch
import torchvision

from ...table import Op, bad, sample, t

HALF, WHOLE = "half_pixel", "output_half_pixel"


def axis_samples(start, end, scale, size, bins, ratio, half):
    """By bin [(element, weight), ..] of each sample that is on the map."""
    start, end = start * scale - 0.5 * half, end * scale - 0.5 * half
    extent = end - start if half else max(end - start, 1.0)
    bin_size = extent / bins
    count = ratio or math.ceil(bin_size)
    found = []
    for b in range(bins):
        found.append([])
        for k in range(count):
            at = start + b * bin_size + (k + 0.5) * bin_size / count
            if -1 <= at <= size:
                low = min(max(int(max(at, 0)), 0), size - 1)
                part = max(at, 0) - low if low < size - 1 else 0.0
                found[-1].append([(low, 1 - part), (min(low + 1, size - 1), part)])
    return found


def largest(x, rois, indices, height, width, ratio, scale, half):
    results = []
    for roi, image in zip(rois.tolist(), indices.tolist(), strict=True):
        rows = axis_samples(roi[1], roi[3], scale, x.shape[2], height, ratio, half)
        columns = axis_samples(roi[0], roi[2], scale, x.shape[3], width, ratio, half)
        for in_rows in rows:
            for in_columns in columns:
                values = [
                    x[image, :, i, j] * (a * b)
                    for row in in_rows for column in in_columns for i, a in row for j, b in column
                ]  # fmt: skip
                none = torch.zeros(x.shape[1], dtype=x.dtype)
                results.append(torch.stack(values).max(0).values if values else none)
    if not results:
        return torch.zeros(0, x.shape[1], height, width, dtype=x.dtype)
    return torch.stack(results).reshape(len(rois), height, width, -1).movedim(-1, 1)


def roi_align(x, rois, indices, output_height=1, output_width=1, sampling_ratio=0,
              spatial_scale=1.0, mode="avg", coordinate_transformation_mode=HALF):  # fmt: skip
    if 0 in x.shape[2:]:
        raise ValueError("there is nothing to read")
    if indices.numel() and not 0 <= indices.min() <= indices.max() < x.shape[0]:
        raise ValueError("no such image")
    half = coordinate_transformation_mode == HALF
    if mode == "max":
        return largest(x, rois, indices, output_height, output_width, sampling_ratio,
                       spatial_scale, half)  # fmt: skip
    boxes = torch.cat([indices[:, None].to(x.dtype), rois.to(x.dtype)], 1)
    return torchvision.ops.roi_align(
        x, boxes, (output_height, output_width), spatial_scale, sampling_ratio, half
    )


def max_roi_pool(x, rois, pooled_shape, spatial_scale=1.0):
    return torchvision.ops.roi_pool(x, rois.to(x.dtype), pooled_shape, spatial_scale)


def roi_align_grad(dy, rois, indices, x=None, *, dims, **attrs):
    x = torch.zeros(dims, dtype=dy.dtype) if x is None else x
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad(roi_align(x, rois, indices, **attrs), x, dy)[0]


def max_roi_pool_grad(dy, x, rois, **attrs):
    x = x.detach().clone().requires_grad_()
    return torch.autograd.grad(max_roi_pool(x, rois, **attrs), x, dy)[0]


def regions(count, *, first=(), scale=9.0):
    corner = t(count, 2, low=-1.0, high=scale)
    boxes = np.concatenate([corner, corner + t(count, 2, low=-0.5, high=scale)], 1)
    return np.concatenate([*[np.array(f, dtype=float)[:, None] for f in first], boxes], 1)


def exact(array):
    """What a half says too: regions are no numbers that a result is linear in."""
    return (np.round(array * 8) / 8 + 1 / 32).astype("float32").astype("float64")


IMAGES = np.array([1, 0, 1, 1])
X = (2, 3, 8, 9)
WAYS = [
    {"output_height": 2, "output_width": 3},
    {"output_height": 3, "output_width": 2, "sampling_ratio": 2},
    {"output_height": 2, "output_width": 2, "coordinate_transformation_mode": WHOLE},
    {"output_height": 7, "spatial_scale": 0.5, "sampling_ratio": 3},
    {},
]
MAXIMA = [{**way, "mode": "max"} for way in WAYS]
FAR = np.array([[-1e9, -1e9, 1e9, 1e9], [3.0, 4.0, 1.0, 2.0], [2.0, 2.0, 2.0, 2.0],
                [100.0, 100.0, 120.0, 130.0]], "float32")  # fmt: skip

BESIDE = np.array([[-60.0, -40.0, 70.0, 3.0], [3.0, 4.0, 1.0, 2.0], [2.0, 2.0, 2.0, 2.0],
                   [100.0, 100.0, 120.0, 130.0]])  # fmt: skip


def align(*inputs, **attrs):
    return sample(*inputs, symbolic="dims" not in attrs, **attrs)


def boxes():
    return exact(regions(4))


POOLED = [{"pooled_shape": [2, 3]}, {"pooled_shape": [3, 3], "spatial_scale": 0.5}]


def pool_boxes():
    return exact(regions(4, first=([0, 1, 1, 0],)))


def shape_of(way):
    return (4, 3, way.get("output_height", 1), way.get("output_width", 1))


OPS = [
    Op(
        "RoiAlign",
        roi_align,
        [align(t(*X), boxes(), IMAGES, **way) for way in WAYS + MAXIMA]
        + [align(t(*X), FAR.astype("float64"), IMAGES, output_height=2, sampling_ratio=2)]
        + [align(t(1, 1, 1, 1), boxes(), IMAGES * 0, output_height=2, output_width=2)]
        # More channels than a vector has, and bins without samples.
        + [align(t(2, 21, 8, 9), BESIDE, IMAGES, **MAXIMA[1])],
        [
            bad("X has shape [2, 3, 8], expected [N, C, H, W]", t(2, 3, 8), boxes(), IMAGES),
            bad("rois has shape [4, 5], expected [R, 4]", t(*X), t(4, 5), IMAGES),
            bad("batch_indices has shape [3], expected [4]", t(*X), t(4, 4), IMAGES[:3]),
            bad("attribute 'mode' is 'sum'", t(*X), t(4, 4), IMAGES, mode="sum"),
            bad("output_height is 0", t(*X), t(4, 4), IMAGES, output_height=0),
            bad("sampling_ratio is -1", t(*X), t(4, 4), IMAGES, sampling_ratio=-1),
            bad("attribute 'coordinate_transformation_mode' is 'asymmetric'", t(*X), t(4, 4),
                IMAGES, coordinate_transformation_mode="asymmetric"),
            bad("region 1 is of image 2, which is not in 0 to 1", t(*X), t(4, 4),
                np.array([0, 2, 1, 1])),
            bad("region 3 is of image -1, which is not in 0 to 1", t(*X), t(4, 4),
                np.array([0, 0, 1, -1])),
        ],
        wrt=(0,),
    ),
    Op(
        "ort::RoiAlignGrad",
        roi_align_grad,
        [align(t(*shape_of(way)), boxes(), IMAGES, dims=list(X), **way) for way in WAYS]
        + [align(t(*shape_of(way)), boxes(), IMAGES, t(*X), dims=list(X), **way)
           for way in MAXIMA]
        + [align(t(4, 21, 3, 2), BESIDE, IMAGES, t(2, 21, 8, 9), dims=[2, 21, 8, 9],
                 **MAXIMA[1])],
        [bad("X is there for mode max alone", t(4, 3, 1, 1), t(4, 4), IMAGES, t(*X), dims=X)],
        wrt=(0,),
        no_gradient="only in a backward",
    ),
    Op(
        "MaxRoiPool",
        max_roi_pool,
        [sample(t(*X), pool_boxes(), **way) for way in POOLED],
        [
            bad("rois has shape [4, 4], expected [R, 5]", t(*X), t(4, 4), pooled_shape=[2, 2]),
            bad("pooled_shape has 1 numbers, expected 2", t(*X), t(4, 5), pooled_shape=[2]),
            bad("which is not in 0 to 1", t(*X), np.full((1, 5), 2.0), pooled_shape=[2, 2]),
        ],
        wrt=(0,),
    ),
    Op(
        "ort::MaxRoiPoolGrad",
        max_roi_pool_grad,
        [sample(t(4, 3, *way["pooled_shape"]), t(*X), pool_boxes(), **way) for way in POOLED],
        wrt=(0,),
        no_gradient="only in a backward",
    ),
]  # fmt: skip
