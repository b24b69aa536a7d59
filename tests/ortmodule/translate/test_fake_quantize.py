"""Training with rounding to few bits: torch's fake_quantize, and modules that observe ranges."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from pairs import options
from torch import nn

from ortmodule import ORTModule

X = torch.linspace(-3, 3, 96).reshape(4, 3, 8)
# A tie, what saturates, what is no number.
ODD = torch.tensor([0.05, 0.15, 0.25, -0.05, 1e30, -1e30, torch.inf, -torch.inf, torch.nan, 12.75])
SCALES = torch.tensor([0.1, 0.2, 0.05])


class Rounded(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.function = function

    def forward(self, x, *rest):
        return self.function(x * self.weight, *rest)


def step(module, *args):
    x = args[0].clone().requires_grad_()
    y = module(x, *args[1:])
    y.backward(torch.linspace(1, 2, y.numel(), dtype=y.dtype).reshape(y.shape))
    return y.detach(), x.grad, module.weight.grad


CASES = {
    "number": (lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 15), ()),
    "tensors": (
        lambda x, s, z: torch.fake_quantize_per_tensor_affine(x, s, z, -128, 127),
        (torch.tensor(0.02), torch.tensor(5, dtype=torch.int32)),
    ),
    "channels": (
        lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 1, -8, 7),
        (SCALES, torch.tensor([0, 3, -2], dtype=torch.int32)),
    ),
    "zero points between integers": (
        lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 1, -8, 7),
        (SCALES, torch.tensor([0.5, 2.25, -1.75])),
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", CASES)
def test_as_eager(name, dtype):
    function, rest = CASES[name]
    plain = Rounded(function).to(dtype)
    ours = ORTModule(Rounded(function).to(dtype), options(fallback="error"))
    want, got = (step(module, X.to(dtype), *rest) for module in (plain, ours))
    near = 1e-6 if dtype is torch.float64 else 0  # one scale is multiplied in float32 there
    for mine, theirs in zip(got[:2], want[:2], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=near, atol=0)
    torch.testing.assert_close(got[2], want[2])
    assert not [each for each in ours.explain().steps if each.provider == "aten"]


def test_what_is_odd():
    function = CASES["number"][0]
    want, got = (step(m, ODD) for m in (Rounded(function), ORTModule(Rounded(function))))
    for mine, theirs in zip(got[:2], want[:2], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)


def test_a_zero_point_beyond_the_bounds():
    function, (scales, _) = CASES["channels"]
    zeros = torch.tensor([0, 9, 0], dtype=torch.int32)
    for module in (Rounded(function), ORTModule(Rounded(function))):
        with pytest.raises(RuntimeError, match="`zero_point` must be between `quant_min` and"):
            module(X, scales, zeros)


EXPORTED = {
    "uint8": (lambda x: torch.fake_quantize_per_tensor_affine(x, 0.02, 128, 0, 255), (), True),
    "int8": (
        lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 1, -128, 127),
        CASES["channels"][1], True,
    ),
    "int4": (*CASES["channels"], False),
    "zero points between integers": (*CASES["zero points between integers"], False),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPORTED)
def test_export(name, tmp_path):
    """QuantizeLinear and DequantizeLinear where a dtype has the bounds; as onnxruntime runs it."""
    function, rest, as_pair = EXPORTED[name]
    path = tmp_path / "net.onnx"
    ours = ORTModule(Rounded(function), options(fallback="error"))
    ours.export_onnx(path, (X, *rest))
    ops = [node.op_type for node in onnx.load(path).graph.node]
    assert ("QuantizeLinear" in ops) == ("DequantizeLinear" in ops) == as_pair
    session = onnxruntime.InferenceSession(path)
    names = [port.name for port in session.get_inputs()]
    given = [each.numpy() for each in (X, *rest)]
    y = session.run(None, dict(zip(names, given, strict=True)))[0]
    with torch.no_grad():
        want = function(X, *rest).numpy()
    # x / scale is no tie where x (1 / scale) is one.
    assert np.mean(np.abs(y - want) < 1e-6) > 0.97 and np.abs(y - want).max() < 0.21


@pytest.mark.parametrize("observes", [True, False])
def test_modules_of_training(observes):
    """A network as quantisation-aware training writes it, its observers in and out."""
    from torch.ao import quantization

    def made():
        torch.manual_seed(0)
        qconfig = quantization.get_default_qat_qconfig("fbgemm")
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5))
        net.qconfig = qconfig
        net = quantization.prepare_qat(net.train())
        if not observes:
            net(torch.linspace(-2, 2, 216).reshape(2, 3, 6, 6))
            net.apply(quantization.disable_observer)
        return net

    plain, ours = made(), made()
    wrapped = ORTModule(ours)
    for k in range(3):
        x = torch.linspace(-2, 2 + k, 216).reshape(2, 3, 6, 6)
        for module in (plain, wrapped):
            module(x).square().sum().backward()
    for (name, mine), theirs in zip(ours.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4, msg=name)
    for (name, mine), theirs in zip(ours.named_buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, msg=name)
