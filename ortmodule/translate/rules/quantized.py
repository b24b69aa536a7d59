"""Products with a weight that is kept in few bits (ortmodule/lowbit/quantized.py)."""

from ..registry import aten


@aten("ortmodule_lora.linear.default")
def linear(t, x, codes, scales, format, rows, columns, transposed):
    return t.ort(
        "QuantizedLinear", x, codes, scales,
        format=format, rows=rows, columns=columns, transposed=int(transposed),
    )  # fmt: skip
