"""Fourier transforms: torch's, of complex numbers as pairs."""

import numpy as np
import torch

from ...table import Op, bad, const, sample, t


def complex_of(x):
    wide = x.double() if x.dtype in (torch.float16, torch.bfloat16) else x
    return torch.view_as_complex(wide.contiguous()) if x.shape[-1] == 2 else wide[..., 0]


def dft(x, length=None, axis=None, inverse=0, onesided=0):
    axis = -2 if axis is None else int(axis)
    axis = axis if axis < 0 else axis - x.dim()
    assert axis < -1 and x.shape[-1] in (1, 2)
    length = None if length is None else int(length)
    z = complex_of(x)
    if onesided and inverse:
        y = torch.fft.irfft(z, length, axis + 1).unsqueeze(-1)
    else:
        forward = torch.fft.rfft if onesided else torch.fft.fft
        y = (torch.fft.ifft if inverse else forward)(z, length, axis + 1)
        y = torch.view_as_real(y.resolve_conj())
    return y.to(x.dtype)


def stft(signal, step, window=None, length=None, onesided=1):
    length = int(length) if length is not None else len(window if window is not None else signal[0])
    z = complex_of(signal if signal.dim() == 3 else signal[..., None])
    if window is None:  # as torch has it unless it is told otherwise
        window = torch.ones(length, dtype=torch.float64)
    y = torch.stft(z, length, int(step), window=window.to(z.real.dtype), center=False,
                   onesided=bool(onesided), return_complex=True)  # fmt: skip
    return torch.view_as_real(y.mT.resolve_conj()).to(signal.dtype)


# Small factors, a prime that is none, and what is long enough for one signal at a time.
LENGTHS = (1, 2, 3, 4, 5, 8, 12, 14, 17, 36, 62, 120, 128, 131, 150, 180, 182)


def of_length(n):
    return [
        sample(t(2, n, 2)),
        sample(t(3, n, 1), onesided=1),
        sample(t(2, n // 2 + 1, 2), const(n), inverse=1, onesided=1),
    ]


OPS = [
    Op(
        "DFT",
        dft,
        [s for n in LENGTHS for s in of_length(n)]
        + [
            sample(t(3, 20, 1)),
            sample(t(3, 20, 2), inverse=1),
            sample(t(3, 20, 1), inverse=1),
            sample(t(5, 6, 7, 2), None, const(1)),
            sample(t(5, 6, 7, 1), None, const(-4), onesided=1),
            sample(t(2, 5, 3, 2), const(12, "int32"), const(1), inverse=1),
            sample(t(2, 5, 3, 2), const(4), const(1), inverse=1),
            sample(t(2, 5, 3, 1), const(4), const(1), onesided=1),
            sample(t(2, 5, 3, 1), const(9), const(1), onesided=1),
            sample(t(2, 5, 3, 2), const(7), const(1), inverse=1, onesided=1),
            sample(t(2, 5, 3, 2), const(13), const(1), inverse=1, onesided=1),
            sample(t(2, 5, 2), inverse=1, onesided=1),
            sample(t(40, 18, 1), onesided=1),
            sample(t(9, 2)),
        ],
        [
            bad("expected [.., N, 1] or [.., N, 2]", t(4)),
            bad("expected a last axis of 1 or 2", t(4, 3)),
            bad("onesided is 1 and inverse 0, input has shape [4, 2]", t(4, 2), onesided=1),
            bad("onesided is 1 and inverse 1, input has shape [4, 1]", t(4, 1), onesided=1,
                inverse=1),
            bad("axis 2 is the one of real and imaginary parts", t(2, 4, 2), None, const(2)),
            bad("axis 3 does not exist", t(2, 4, 2), None, const(3)),
            bad("the length is 0, expected a positive one", t(2, 4, 2), const(0)),
            bad("dft_length has 2 numbers, expected one", t(2, 4, 2), const([4, 4])),
            bad("axis has 2 numbers, expected one", t(2, 4, 2), None, const([0, 1])),
        ],
        refused=[
            bad("axis is not known, which its gradient needs", t(2, 4, 2), None, np.array(1)),
            bad("dft_length is not known, which its gradient needs", t(2, 4, 1), np.array(4),
                onesided=1),
        ],
    ),
    Op(
        "STFT",
        stft,
        [
            sample(t(2, 40, 1), const(8), t(16)),
            sample(t(2, 41, 1), const(5), t(16), const(16)),
            sample(t(2, 40, 1), const(7), None, const(12)),
            sample(t(1, 20, 1), const(3)),
            sample(t(2, 40, 2), const(8), t(16), onesided=0),
            sample(t(2, 40, 1), const(8), t(17), onesided=0),
            sample(t(2, 40), const(8), t(16)),
        ],
        [
            bad("signal has shape [4], expected [B, L]", t(4), const(1), t(2)),
            bad("window has 3 numbers, a frame 2", t(1, 4, 1), const(1), t(3), const(2)),
            bad("frame_step is 0", t(1, 4, 1), const(0), t(3)),
            bad("a frame has 5 numbers, the signal 4", t(1, 4, 1), const(1), t(5)),
        ],
    ),
]  # fmt: skip
