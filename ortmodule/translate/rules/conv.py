"""Convolutions."""

from ..registry import aten


def many(value, count):
    """A number for each spatial axis; torch takes one for all of them."""
    value = list(value) if isinstance(value, (list, tuple)) else [value]
    return value * count if len(value) == 1 else value


def _batched(t, x, weight, run):
    """Runs on a batch of one where torch was given no batch axis."""
    if x.rank == weight.rank:
        return run(x)
    return t.squeeze(run(t.unsqueeze(x, [0])), [0])


def conv(t, x, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    space = weight.rank - 2
    attrs = {
        "kernel_shape": [t.static(d, "a kernel's size") for d in weight.dims[2:]],
        "strides": many(stride, space),
        "dilations": many(dilation, space),
        "group": int(groups),
    }
    if isinstance(padding, str):
        attrs["pads"] = _named_padding(padding, attrs["kernel_shape"], attrs["dilations"])
    else:
        attrs["pads"] = many(padding, space) * 2
    return _batched(t, x, weight, lambda v: t.op("Conv", v, weight, bias, **attrs))


def _named_padding(padding, kernel, dilations):
    """torch's "same" puts the odd one at the end; ONNX's auto_pad is not used."""
    if padding == "valid":
        return [0] * (2 * len(kernel))
    total = [d * (k - 1) for k, d in zip(kernel, dilations, strict=False)]
    return [n // 2 for n in total] + [n - n // 2 for n in total]


def conv_transpose(
    t, x, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1
):
    space = weight.rank - 2
    attrs = {
        "kernel_shape": [t.static(d, "a kernel's size") for d in weight.dims[2:]],
        "strides": many(stride, space),
        "pads": many(padding, space) * 2,
        "output_padding": many(output_padding, space),
        "dilations": many(dilation, space),
        "group": int(groups),
    }
    return _batched(t, x, weight, lambda v: t.op("ConvTranspose", v, weight, bias, **attrs))


for _n in (1, 2, 3):
    aten(f"conv{_n}d.default", f"conv{_n}d.padding")(conv)
aten("conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input")(conv_transpose)


@aten("convolution.default")
def convolution(t, x, weight, bias, stride, padding, dilation, transposed, out_padding, groups):
    if transposed:
        return conv_transpose(t, x, weight, bias, stride, padding, out_padding, groups, dilation)
    return conv(t, x, weight, bias, stride, padding, dilation, groups)
