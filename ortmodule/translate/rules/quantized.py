"""Products with a weight that is kept in few bits (ortmodule/lowbit/quantized.py), and rounding to
few bits in training.
"""

from ..emit import FLOATING, is_value
from ..registry import aten


@aten("ortmodule_lora.linear.default")
def linear(t, x, codes, scales, format, rows, columns, transposed):
    return t.ort(
        "QuantizedLinear", x, codes, scales,
        format=format, rows=rows, columns=columns, transposed=int(transposed),
    )  # fmt: skip


@aten("fake_quantize_per_tensor_affine.default", "fake_quantize_per_tensor_affine.tensor_qparams")
def fake_quantize(t, x, scale, zero_point, quant_min, quant_max):
    """torch takes one number of float32 and one integer, whatever dtype x has."""
    one = [
        t.cast(t.reshape(number, []), dtype) if is_value(number) else t.scalar(number, dtype)
        for number, dtype in ((scale, "float32"), (zero_point, "int32"))
    ]
    return _rounded(t, x, *one, quant_min, quant_max)


@aten("fake_quantize_per_channel_affine.default")
def fake_quantize_channels(t, x, scale, zero_point, axis, quant_min, quant_max):
    if zero_point.dtype not in FLOATING:
        low, high = (t.scalar(bound, zero_point.dtype) for bound in (quant_min, quant_max))
        above = t.op("LessOrEqual", low, zero_point)
        inside = t.op("And", above, t.op("LessOrEqual", zero_point, high))
        t.check(inside, "`zero_point` must be between `quant_min` and `quant_max`.")
    axes = [k for k in range(x.rank) if k != axis % x.rank]
    scale, zero_point = t.unsqueeze(scale, axes), t.unsqueeze(zero_point, axes)
    return _rounded(t, x, scale, zero_point, quant_min, quant_max)


def _rounded(t, x, scale, zero_point, quant_min, quant_max):
    bounds = {"quant_min": float(quant_min), "quant_max": float(quant_max)}
    return t.ort("FakeQuantize", x, scale, zero_point, **bounds)
