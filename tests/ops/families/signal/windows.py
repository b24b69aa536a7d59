"""Windows and filter banks."""

import numpy as np
import torch

from ...table import Op, bad, const, sample


def windowed(function):
    def window(size, periodic=1, output_datatype=1):
        kind = {1: torch.float32, 11: torch.float64, 7: torch.int64}[output_datatype]
        if periodic and size == 1:  # by ONNX's formula, where torch has 1
            return function(2, periodic=True, dtype=torch.float64)[:1].to(kind)
        return function(int(size), periodic=bool(periodic), dtype=torch.float64).to(kind)

    return window


def hamming(size, periodic, dtype):
    return torch.hamming_window(size, periodic, 25 / 46, 21 / 46, dtype=dtype)


def mel_weights(bands, length, rate, low, high, output_datatype=1):
    """As onnx's text has it, triangle by triangle."""
    bands, length, rate = int(bands), int(length), int(rate)
    in_mel = lambda hertz: 2595 * np.log10(1 + hertz.item() / 700)  # noqa: E731
    step = (in_mel(high) - in_mel(low)) / (bands + 2)
    edges = [700 * (10 ** ((k * step + in_mel(low)) / 2595) - 1) for k in range(bands + 2)]
    edges = [int((length + 1) * edge // rate) for edge in edges]
    weights = np.zeros((length // 2 + 1, bands))
    for k in range(bands):
        left, center, right = edges[k : k + 3]
        for bin_ in range(left, right):
            up = bin_ < center
            size = center - left if up else right - center
            weights[bin_, k] = (bin_ - left if up else right - bin_) / size
        weights[center, k] = 1
    return torch.from_numpy(weights).to({1: torch.float32, 11: torch.float64}[output_datatype])


def windows(**attrs):
    return [sample(const(10), **attrs), sample(const(7, "int32"), periodic=0, **attrs)]


ALONE = [sample(const(1)), sample(const(1), periodic=0)]


OPS = [
    Op(name, windowed(function), [*windows(), *windows(output_datatype=11), *ALONE],
       [bad("'output_datatype' is 8, expected a dtype of numbers", const(4), output_datatype=8)])
    for name, function in [
        ("HannWindow", torch.hann_window),
        ("HammingWindow", hamming),
        ("BlackmanWindow", torch.blackman_window),
    ]
] + [
    Op(
        "MelWeightMatrix",
        mel_weights,
        [
            sample(const(8), const(16), np.array(8192), np.array(0.0, "f4"),
                   np.array(4096.0, "f4")),
            sample(const(40), const(400), np.array(16000), np.array(20.0), np.array(7600.0),
                   output_datatype=11),
        ],
    ),
]  # fmt: skip
