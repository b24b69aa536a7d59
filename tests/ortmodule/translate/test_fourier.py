"""torch's Fourier transforms as DFT and STFT where results are read as pairs, against eager."""

import numpy as np
import onnxruntime
import pytest
import torch
from pairs import options
from torch import nn

from ortmodule import ORTModule

fft = torch.fft
WINDOW = torch.hann_window(12)


class Of(nn.Module):
    """Twice a function: a part that is returned would be a view whose base is a result."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x) * 2


def spoken(x, **given):
    z = torch.stft(x, 12, return_complex=True, window=WINDOW.to(x.dtype), **given)
    return torch.view_as_real(z)


CALLS = {
    "mixed": lambda x: fft.fft(fft.fft(x, dim=-1), dim=-2).real,
    "both parts": lambda x: (lambda z: z.real * z.imag)(fft.fft(x, dim=0)),
    "of a length": lambda x: torch.view_as_real(fft.rfft(x, 11)).square(),
    "cut": lambda x: fft.rfft(x, 5, 1).imag,
    "there and back": lambda x: fft.irfft(fft.rfft(x), x.shape[-1]) * x,
    "even": lambda x: fft.irfft(fft.rfft(x)),
    "inverse": lambda x: fft.ifft(x).imag,
    "of images": lambda x: fft.fft2(x).real + fft.ifft2(x).imag,
    "stft": lambda x: spoken(x[0]),
    "stft of one": lambda x: spoken(x[0, 0], center=False, hop_length=5),
    "stft of no half": lambda x: spoken(x[0], onesided=False),
    "short window": lambda x: torch.view_as_real(
        torch.stft(x[0], 16, 4, 12, WINDOW.to(x.dtype), return_complex=True)
    ),
    "no window": lambda x: torch.stft(x[0], 16, 4, return_complex=True).real,
}
# What torch keeps: scaled otherwise, or read as it is.
KEPT = {
    "ortho": lambda x: fft.fft(x, norm="ortho").real,
    "read": lambda x: (fft.rfft(x) * 2j).real,
    "its size": lambda x: fft.rfft(x).abs(),
}
X = torch.randn(2, 3, 40)


def checked(function, dtype):
    ours, found = ORTModule(Of(function), options(fallback="error")), []
    for module in (Of(function), ours):
        x = X.to(dtype).requires_grad_()
        y = module(x)
        dy = torch.linspace(-1, 1, y.numel()).view(y.shape).to(dtype)
        found.append([y, *torch.autograd.grad(y, x, dy)])
        x.requires_grad_(False).grad = None
    near = 1e-4 if dtype is torch.float32 else 1e-10
    torch.testing.assert_close(found[1], found[0], rtol=near, atol=near)
    return {step.name for step in ours.explain().steps if step.provider == "aten"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients(name, dtype):
    assert not checked(CALLS[name], dtype)


@pytest.mark.parametrize("name", KEPT)
def test_others_stay_torchs(name):
    assert checked(KEPT[name], torch.float32)


def test_export(tmp_path):
    ours = ORTModule(Of(CALLS["mixed"]), options(fallback="error"))
    ours.export_onnx(tmp_path / "net.onnx", (X,))
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx")
    (y,) = session.run(None, {session.get_inputs()[0].name: X.numpy()})
    np.testing.assert_allclose(y, 2 * CALLS["mixed"](X), rtol=1e-4, atol=1e-3)
