"""Sums of many terms keep their digits."""

import pytest
import torch
from captured import Function

from ortmodule import Options, ORTModule

SUMS = {
    "of rows": lambda x: x.sum(0),
    "of a program's rows": lambda x: (x * x).sum(0),
    "mean of rows": lambda x: x.mean(0),
    "of columns": lambda x: x.sum(1),
    "of all": lambda x: x.sum(),
}


@pytest.mark.parametrize("name", SUMS)
def test_float32_sums_of_a_hundred_thousand_terms(name):
    """Term after term they would be wrong in the fifth digit."""
    x = torch.rand(*((16, 100000) if name == "of columns" else (100000, 16)))
    ours = ORTModule(Function(SUMS[name]), Options(fallback="error"))(x)
    torch.testing.assert_close(ours.double(), SUMS[name](x.double()), rtol=2e-6, atol=0)


def _mean_of_squares(x):
    return (x * x).mean()


AS_EAGER = {
    "rows of ten": (lambda x: x.sum(0), (350, 10)),
    "a thousand rows": (lambda x: x.sum(0), (1000, 64)),
    "a hundred thousand": (lambda x: x.sum(0), (100000, 3)),
    "var": (lambda x: x.var(1), (64, 1000)),
    "var of all": (lambda x: x.var(), (1000,)),
    "squares": (_mean_of_squares, (1000,)),
    "layer norm": (lambda x: torch.nn.functional.layer_norm(x, (768,)), (8, 768)),
    "mse": (lambda x: torch.nn.functional.mse_loss(x, x.flip(0)), (35, 100)),
    "softmax": (lambda x: x.softmax(-1), (8, 1000)),
}


@pytest.mark.parametrize("shift", [0.0, 100.0])
@pytest.mark.parametrize("name", AS_EAGER)
def test_a_sum_is_as_near_as_eagers(name, shift):
    """At most twice eager's distance from float64, and a unit of the result."""
    function, shape = AS_EAGER[name]
    model = ORTModule(Function(function), Options(fallback="error"))
    for _ in range(10):
        x = torch.randn(shape) * 3 + shift
        exact, theirs, ours = function(x.double()), function(x), model(x)
        error = (theirs.double() - exact).abs().max()
        bound = 2 * error + exact.abs().max() * torch.finfo(torch.float32).eps
        assert (ours.double() - exact).abs().max() <= bound


@pytest.mark.parametrize("to", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_gradients_of_running_sums_of_another_dtype_are_not_rounded(name, to):
    """Added up in the dtype of x, where sums of halves would overflow."""
    module, found = Function(lambda x: getattr(torch, name)(x, 1, dtype=to)), []
    for function in (module, ORTModule(module)):
        draw = torch.Generator().manual_seed(0)
        x = (0.97 + torch.rand(6, 300, generator=draw) / 20).requires_grad_()
        y = function(x)
        y.backward(torch.rand(y.shape, generator=draw).to(to) * 1000)
        found.append((y.detach(), x.grad))
    (theirs, wanted), (ours, gradient) = found
    torch.testing.assert_close(ours, theirs)
    rtol = 1e-6 if name == "cumsum" else torch.finfo(to).eps  # eager's reads its rounded product
    torch.testing.assert_close(gradient, wanted, rtol=rtol, atol=0)
