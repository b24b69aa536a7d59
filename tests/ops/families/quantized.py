"""Products with a weight in blocks of few bits."""

import numpy as np

from ortmodule.lowbit.quantized import BLOCK, FORMATS

from ..table import Op, bad, i, sample, t


def quantized_linear(x, codes, scales, format="nf4", rows=0, columns=0, transposed=0):
    w = FORMATS[format].dequantize(codes, scales.float()).reshape(rows, columns).to(x.dtype)
    return x @ (w if transposed else w.T)


def _weight(rows, columns, format="nf4"):
    count = rows * columns
    scales = t(count // BLOCK, low=0.5, high=2.0).astype(np.float32)
    if format == "nf4":
        return i(count // 2, high=256, dtype="uint8"), scales
    return i(count, low=-127, high=128, dtype="int8"), scales / 127


def _sample(x, rows, columns, format="nf4", transposed=0):
    return sample(
        x, *_weight(rows, columns, format),
        format=format, rows=rows, columns=columns, transposed=transposed,
    )  # fmt: skip


OPS = [
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
        ],
        [
            bad("expected [.., 64]", t(3, 63), *_weight(5, 64), rows=5, columns=64),
            bad("expected blocks of 64", t(3, 5), *_weight(2, 64), rows=2, columns=5),
            bad("expected some", t(3, 5), *_weight(2, 64), rows=0, columns=5),
            bad("format is 'nf8'", t(3, 64), *_weight(2, 64), rows=2, columns=64, format="nf8"),
            bad("expected uint8", t(3, 64), *_weight(2, 64, "int8"), rows=2, columns=64),
        ],
    ),
]
