"""Quantised tensors, and products with a weight in blocks of few bits.

What has 4 bits or float8 is in onnx's own cases.
"""

import numpy as np
import torch
import torch.nn.functional as F

from ortmodule.lowbit.quantized import BLOCK, FORMATS

from ..table import Op, bad, i, sample, t

RANGES = {torch.uint8: (0, 255), torch.int8: (-128, 127), torch.int16: (-(2**15), 2**15 - 1)}


def along(scale, x, axis=1, block_size=0):
    if scale.numel() == 1:
        return scale.reshape(())
    if scale.dim() == 1 and not block_size:
        return scale.reshape([-1 if k == axis % x.dim() else 1 for k in range(x.dim())])
    repeated = scale.repeat_interleave(block_size, axis)
    return repeated.narrow(axis, 0, x.shape[axis])


def saturated(x, zero, kind):
    low, high = RANGES[kind]
    return torch.clamp(torch.round(x) + zero, low, high).to(kind)


def quantize(x, scale, zero=None, output_dtype=0, **place):
    kind = {0: torch.uint8, 3: torch.int8, 5: torch.int16}[output_dtype]
    kind = kind if zero is None else zero.dtype
    zero = 0 if zero is None else along(zero, x, **place).double()
    scale = along(scale, x, **place)
    return saturated((x / scale).float(), zero, kind)


def dequantize(x, scale, zero=None, output_dtype=0, **place):
    zero = 0 if zero is None else along(zero, x, **place).double()
    y = (x.double() - zero) * along(scale, x, **place)
    return y.half() if output_dtype == 10 else y.to(scale.dtype)


def dynamic(x):
    high, low = max(x.max().item(), 0.0), min(x.min().item(), 0.0)
    scale = torch.tensor((high - low) / 255 or 1.0)
    zero = torch.clamp(torch.round(-low / scale), 0, 255)
    return saturated(x / scale, zero, torch.uint8), scale.float(), zero.to(torch.uint8)


def rows(each):
    return each[:, None] if each is not None and each.dim() == 1 and each.numel() > 1 else each


def product(a, b, a_zero=None, b_zero=None):
    left = a.long() - (0 if a_zero is None else rows(a_zero).long())
    right = b.long() - (0 if b_zero is None else b_zero.long())
    return (left @ right).int()


def convolution(x, w, x_zero=None, w_zero=None, strides=1, pads=(0, 0, 0, 0), group=1):
    if w_zero is not None and w_zero.numel() > 1:
        w_zero = w_zero.reshape(-1, 1, 1, 1)
    left = x.double() - (0 if x_zero is None else x_zero.double())
    right = w.double() - (0 if w_zero is None else w_zero.double())
    left = F.pad(left, (pads[1], pads[3], pads[0], pads[2]))
    return F.conv2d(left, right, stride=strides, groups=group).int()


def linear_product(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero):
    sums = product(a, b, a_zero, b_zero).double()
    return saturated(sums * rows(a_scale) * b_scale / y_scale, y_zero.double(), y_zero.dtype)


def linear_convolution(x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias=None, **attrs):
    sums = convolution(x, w, x_zero, w_zero, **attrs).double()
    if bias is not None:
        sums = sums + bias.reshape(-1, 1, 1)
    factor = x_scale * w_scale.reshape(-1, 1, 1) / y_scale
    return saturated(sums * factor, y_zero.double(), y_zero.dtype)


def f(*values):
    return np.array(values[0] if len(values) == 1 else values, "float32")


def of(dtype, *shape):
    low, high = (-128, 128) if dtype == "int8" else (0, 256)
    return i(*shape, low=low, high=high, dtype=dtype)


def fake(x, scale, zero, quant_min, quant_max, reciprocal=1):
    """The gradient passes where nothing saturates."""
    scaled = x.detach() * (1 / scale) if reciprocal else x.detach() / scale
    whole = not zero.is_floating_point()
    q = torch.round(scaled) + zero if whole else torch.round(scaled + zero)
    inside = (q >= quant_min) & (q <= quant_max)
    y = (q.clamp(quant_min, quant_max) - zero) * scale
    return torch.where(inside, x - x.detach(), 0.0) + y


X = t(3, 4, 5).astype("float32") * 3
ENDS = np.array([-1e30, -300, -0.5, 0.5, 1.5, 2.5, 300, 1e30], "float32")


# bitsandbytes' numbers of four bits: 1, 0.5 and 1.5 times powers of two, over 12.
FLOATS4 = [0, 1 / 192, 8 / 12, 12 / 12, 4 / 12, 6 / 12, 2 / 12, 3 / 12]


def _numbers(codes, format):
    """Of each code, before zero point and scale."""
    bits = int(format[4:]) if format.startswith("uint") else 4
    shifts = range(0, 8, bits) if format != "fp4" else (4, 0)
    found = torch.stack([codes >> shift & (1 << bits) - 1 for shift in shifts], -1).reshape(-1)
    if format == "fp4":
        return torch.tensor(FLOATS4 + [-x for x in FLOATS4])[found.long()]
    return found.float()


def quantized_weight(codes, scales, zeros=None, format="nf4", block=BLOCK):
    if format == "nf4":
        return FORMATS[format].dequantize(codes, scales.float())
    blocks = (codes.float() if format == "int8" else _numbers(codes, format)).reshape(-1, block)
    if format.startswith("uint"):
        middle = torch.full_like(scales, 2 ** (int(format[4:]) - 1))
        blocks = blocks - (middle if zeros is None else zeros.float())[:, None]
    return blocks * scales[:, None]


def quantized_linear(
    x, codes, scales, zeros=None, format="nf4", rows=0, columns=0, block=BLOCK, transposed=0
):
    w = quantized_weight(codes, scales, zeros, format, block).reshape(rows, columns).to(x.dtype)
    return x @ (w if transposed else w.T)


def _weight(rows, columns, format="nf4", block=BLOCK, zeros=None):
    """Codes, scales and, of dtype `zeros`, zero points."""
    count = rows * columns
    scales = t(count // block, low=0.5, high=2.0).astype(np.float32)
    if format == "int8":
        return i(count, low=-127, high=128, dtype="int8"), scales / 127
    bits = int(format[4:]) if format.startswith("uint") else 4
    codes = i(count * bits // 8, high=256, dtype="uint8")
    if format.startswith("uint"):
        scales /= np.float32(2 ** (bits - 1))
    points = i(count // block, high=2**bits, dtype=zeros or "uint8")
    return (codes, scales, points) if zeros else (codes, scales)


def _sample(x, rows, columns, format="nf4", transposed=0, block=BLOCK, zeros=None):
    return sample(
        x, *_weight(rows, columns, format, block, zeros),
        format=format, rows=rows, columns=columns, block=block, transposed=transposed,
    )  # fmt: skip


OPS = [
    Op(
        "ort::FakeQuantize",
        fake,
        [
            sample(t(3, 4), f(0.1), np.array(3, "int32"),
                   quant_min=-4.0, quant_max=11.0, smooth=False),
            sample(t(3, 4), f(0.1, 0.2, 0.3, 0.4), of("int8", 4) // 16,
                   quant_min=-8.0, quant_max=7.0, smooth=False),
            sample(t(3, 4), f(0.1, 0.2, 0.3, 0.4), f(0.5, 2.25, -1.75, 0.0),
                   quant_min=-8.0, quant_max=7.0, smooth=False),
            sample(t(3, 4), f(0.1), np.array(0, "int8"), quant_min=-8.0, quant_max=7.0,
                   reciprocal=0, smooth=False),
            sample(t(2, 3, 4), f(0.1, 0.2, 0.3).reshape(3, 1), of("int8", 3, 1) // 16,
                   quant_min=-8.0, quant_max=7.0, smooth=False),
        ],
        [
            bad("scale has shape [3], expected [4]", t(4), f(1, 2, 3), np.array(0, "int8"),
                quant_min=0.0, quant_max=1.0),
        ],
    ),
    Op(
        "QuantizeLinear",
        quantize,
        [
            sample(X, f(0.02), np.array(128, "uint8")),
            sample(X, f(0.02)),
            sample(X, f(0.05), output_dtype=3),
            sample(X, f(0.001), np.array(-7, "int16")),
            sample(X, f(0.1, 0.2, 0.3, 0.4), of("int8", 4)),
            sample(X, f(0.1, 0.2, 0.3), of("int8", 3), axis=-3),
            sample(X, np.abs(X[:, :, :3]) + 0.1, of("uint8", 3, 4, 3), axis=2, block_size=2),
            sample(ENDS, f(1.0), np.array(1, "int8")),
            sample(ENDS, f(1.0, 0.1, 2.0), of("uint8", 3), axis=0, block_size=3),
            sample(i(3, 5, low=-50, high=50, dtype="int32"), f(0.5), np.array(3, "int8")),
        ],
        [
            bad("scales have shape [3], expected [4] for axis 1 of x", X, f(1, 2, 3)),
            bad("axis 3 does not exist, x has rank 3", X, f(1, 2, 3, 4), axis=3),
            bad("x has shape [3, 4, 5] and block_size is 0", X, X),
            bad("output_dtype is int8, y_zero_point is uint8", X, f(1.0), np.array(1, "uint8"),
                output_dtype=3),
            bad("output_dtype is float32, which is not of few bits", X, f(1.0), output_dtype=1),
        ],
    ),
    Op(
        "DequantizeLinear",
        dequantize,
        [
            sample(of("uint8", 3, 4, 5), f(0.02), np.array(128, "uint8")),
            sample(of("int8", 3, 4, 5), f(0.1, 0.2, 0.3, 0.4), of("int8", 4)),
            sample(of("int8", 3, 4, 5), f(0.1, 0.2, 0.3), axis=0),
            sample(of("uint8", 3, 4, 5), np.abs(X[:, :2]), of("uint8", 3, 2, 5), block_size=3),
            sample(i(3, 5, low=-5000, high=5000, dtype="int32"), f(0.5)),
            sample(of("int8", 4), f(0.5), output_dtype=10),
            sample(of("int8", 4), np.array([0.5], "float32"), np.array([3], "int8")),
            sample(of("int8", 5), f(0.5, 0.1), of("int8", 2), axis=-1, block_size=3),
        ],
        [bad("scales have shape [3], expected [4] for axis 1", of("int8", 3, 4), f(1, 2, 3))],
    ),
    Op(
        "DynamicQuantizeLinear",
        dynamic,
        [sample(X), sample(np.abs(X) + 1), sample(-np.abs(X)), sample(np.zeros((2, 3), "float32"))],
    ),
    Op(
        "MatMulInteger",
        product,
        [
            sample(of("uint8", 3, 5), of("uint8", 5, 4)),
            sample(of("uint8", 2, 3, 5), of("int8", 5, 4), np.array(12, "uint8"),
                   np.array(-3, "int8")),
            sample(of("int8", 3, 700), of("int8", 700, 4), of("int8", 3), of("int8", 4)),
            sample(np.full((1, 9000), 255, "uint8"), np.full((9000, 1), 255, "uint8")),
            sample(of("uint8", 5, 5), of("int8", 5), of("uint8", 5)),
            sample(of("int8", 5), of("uint8", 5, 4), np.array(-7, "int8"), of("uint8", 4)),
        ],
    ),
    Op(
        "ConvInteger",
        convolution,
        [
            sample(of("uint8", 1, 2, 5, 5), of("uint8", 3, 2, 3, 3), np.array(9, "uint8")),
            sample(of("uint8", 2, 4, 6, 6), of("int8", 4, 2, 3, 3), np.array(9, "uint8"),
                   of("int8", 4), strides=[2, 2], pads=[1, 1, 0, 1], group=2),
            sample(of("uint8", 1, 40, 4, 4), of("uint8", 2, 40, 3, 3)),
        ],
    ),
    Op(
        "ort::IntegerMatMul",
        lambda a, b: (a.long() @ b.long()).int(),
        [
            sample(of("uint8", 3, 5), of("int8", 5, 4)),
            sample(of("int8", 2, 3, 70), of("int8", 70, 65)),
            sample(of("uint8", 2, 1, 3, 9), of("int8", 5, 9, 4)),
            sample(of("uint8", 9), of("int8", 9, 4)),
            sample(of("int8", 2, 3, 9), of("int8", 9)),
            sample(np.full((3, 9000), 255, "uint8"), np.full((9000, 2), -128, "int8")),
            sample(np.full((3, 64), -128, "int8"), np.full((64, 2), -128, "int8")),
            sample(of("uint8", 0, 5), of("int8", 5, 4)),
            sample(of("uint8", 3, 0), of("int8", 0, 4)),
        ],
        [bad("inner sizes 5 and 4 differ", of("uint8", 3, 5), of("int8", 4, 4))],
    ),
    Op(
        "ort::IntegerConv",
        convolution,
        [
            sample(of("uint8", 1, 2, 5, 5), of("int8", 3, 2, 3, 3)),
            sample(of("int8", 2, 4, 6, 6), of("int8", 4, 2, 3, 3),
                   strides=[2, 2], pads=[1, 1, 0, 1], group=2),
            sample(of("uint8", 1, 48, 9, 9), of("int8", 20, 48, 2, 2), strides=[2, 2]),
            sample(np.full((1, 64, 4, 4), 255, "uint8"), np.full((2, 64, 3, 3), -128, "int8")),
            sample(of("uint8", 2, 6, 7, 7), of("int8", 6, 1, 3, 3), group=6, pads=[1, 1, 1, 1]),
            sample(of("uint8", 0, 2, 5, 5), of("int8", 3, 2, 3, 3)),
        ],
        [bad("expects 3", of("uint8", 1, 2, 5, 5), of("int8", 3, 3, 3, 3))],
    ),
    Op(
        "QLinearMatMul",
        linear_product,
        [
            sample(of("uint8", 3, 5), f(0.1), np.array(100, "uint8"), of("int8", 5, 4), f(0.2),
                   np.array(3, "int8"), f(0.7), np.array(120, "uint8")),
            sample(of("int8", 3, 5), f(0.1, 0.2, 0.3), of("int8", 3), of("int8", 5, 4),
                   f(0.1, 0.2, 0.3, 0.4), of("int8", 4), f(3.0), np.array(-5, "int8")),
        ],
    ),
    Op(
        "QLinearConv",
        linear_convolution,
        [
            sample(of("uint8", 1, 2, 5, 5), f(0.1), np.array(100, "uint8"), of("uint8", 3, 2, 3, 3),
                   f(0.2), np.array(9, "uint8"), f(30.0), np.array(120, "uint8")),
            sample(of("uint8", 1, 2, 5, 5), f(0.1), np.array(100, "uint8"), of("int8", 3, 2, 3, 3),
                   f(0.1, 0.2, 0.3), np.array([0, 0, 0], "int8"), f(30.0), np.array(120, "uint8"),
                   i(3, low=-999, high=999, dtype="int32"), pads=[1, 1, 1, 1], strides=[2, 2]),
        ],
    ),
    Op(
        "ort::QuantizedLinear",
        quantized_linear,
        [
            _sample(t(3, 64), 5, 64),
            _sample(t(2, 3, 96), 10, 96),
            _sample(t(3, 5), 5, 64, transposed=1),
            _sample(t(2, 3, 32), 6, 32, "int8"),
            _sample(t(4, 6), 6, 32, "int8", transposed=1),
            _sample(t(7), 64, 7),
            _sample(t(0, 64), 5, 64),
            _sample(t(2, 700), 448, 700),
            _sample(t(2, 448), 448, 700, transposed=1),
            _sample(t(2, 700), 448, 700, "int8"),
            *(
                _sample(t(*rows, k), n, k, format, 0, block, zeros)
                for format in ("fp4", "uint2", "uint4", "uint8")
                for rows, n, k, block in [((1,), 5, 96, 32), ((3,), 4, 80, 16), ((2,), 16, 33, 48)]
                for zeros in ((None, "uint8", "float32") if format != "fp4" else (None,))
            ),
            *(
                _sample(t(3, n), n, k, format, 1, block, "uint8")
                for format in ("uint2", "uint4", "uint8")
                for n, k, block in [(7, 160, 32), (32, 21, 16)]
            ),
            _sample(t(1, 256), 3, 256, "int8", 0, 128),
            _sample(t(256), 70, 256),
        ],
        [
            bad("expected [.., 64]", t(3, 63), *_weight(5, 64), rows=5, columns=64),
            bad("expected blocks of 64", t(3, 5), *_weight(2, 64), rows=2, columns=5),
            bad("expected some", t(3, 5), *_weight(2, 64), rows=0, columns=5),
            bad("format is 'nf8'", t(3, 64), *_weight(2, 64), rows=2, columns=64, format="nf8"),
            bad("expected uint8", t(3, 64), *_weight(2, 64, "int8"), rows=2, columns=64),
            bad("block is 24", t(3, 48), *_weight(2, 48, "uint4", 24), rows=2, columns=48,
                format="uint4", block=24),
            bad("format nf4 has no zero points", t(3, 64), *_weight(2, 64),
                i(2, high=16, dtype="uint8"), rows=2, columns=64),
        ],
    ),
]  # fmt: skip
