"""What is read of images: torch's grid_sample, fold and unfold, torchvision's operators."""

from ..emit import FLOATING
from ..registry import aten
from .conv import many
from .pool import lifted

_MODES, _PADDING = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")
_MOST_SAMPLES = 1024  # of a region's bin, that RoiAlign takes


def _fits(x, *others):
    return x.dtype in FLOATING and all(y is None or y.dtype == x.dtype for y in others)


@aten("grid_sampler.default", "grid_sampler_2d.default", "grid_sampler_3d.default")
def grid_sampler(t, x, grid, mode, padding, align_corners):
    if not _fits(x, grid):
        return NotImplemented
    words = {"mode": _MODES[mode], "padding_mode": _PADDING[padding]}
    return t.op("GridSample", x, grid, align_corners=int(align_corners), **words)


@aten("torchvision.roi_align.default")
def roi_align(t, x, rois, scale, height, width, samples, aligned):
    numbers = all(isinstance(size, int) and size > 0 for size in (height, width))
    if not numbers or not _fits(x, rois) or samples > _MOST_SAMPLES:
        return NotImplemented
    images = t.cast(t.squeeze(t.slice(rois, 1, 0, 1), [1]), "int64")
    return t.op(
        "RoiAlign",
        x,
        t.slice(rois, 1, 1, 5),
        images,
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
        output_height=height,
        output_width=width,
        sampling_ratio=max(samples, 0),
        spatial_scale=float(scale),
    )


@aten("torchvision.roi_pool.default")
def roi_pool(t, x, rois, scale, height, width):
    numbers = all(isinstance(size, int) and size > 0 for size in (height, width))
    if not numbers or not _fits(x, rois) or t.uses(1):
        return NotImplemented
    shape = [height, width]
    return [t.op("MaxRoiPool", x, rois, pooled_shape=shape, spatial_scale=float(scale)), None]


def _windows(dilation, padding, stride):
    return {
        "dilations": many(dilation, 2),
        "pads": many(padding, 2) * 2,
        "strides": many(stride, 2),
    }


@aten("im2col.default")
def im2col(t, x, kernel, dilation, padding, stride):
    if t.standard:
        return NotImplemented  # onnx has the transpose alone
    block, windows = t.ints(many(kernel, 2)), _windows(dilation, padding, stride)
    return lifted(t, x, 2, lambda v: t.ort("Im2Col", v, block, **windows))


@aten("col2im.default")
def col2im(t, x, size, kernel, dilation, padding, stride):
    block, windows = t.ints(many(kernel, 2)), _windows(dilation, padding, stride)
    image = t.sizes(list(size))
    return lifted(t, x, 1, lambda v: t.op("Col2Im", v, image, block, **windows))


@aten("torchvision.deform_conv2d.default")
def deform_conv2d(t, x, weight, offset, mask, bias, *windows):
    *windows, groups, offset_groups, use_mask = windows
    numbers = all(isinstance(number, int) for number in windows)
    if not numbers or not _fits(x, weight, offset, mask, bias):
        return NotImplemented
    strides, padding, dilations = windows[:2], windows[2:4], windows[4:]
    return t.op(
        "DeformConv",
        x,
        weight,
        offset,
        bias,
        mask if use_mask else None,
        kernel_shape=[t.static(size, "a kernel's size") for size in weight.dims[2:]],
        strides=strides,
        pads=padding * 2,
        dilations=dilations,
        group=groups,
        offset_group=offset_groups,
    )
