"""Row-wise work over rows of a few elements, which a tile takes all at once, against torch: each
reduction, and what a number a row and a number a column meet in one program."""

import pytest
import torch
from torch import nn

from ortmodule import Options, ORTModule

DTYPES = [torch.float32, torch.float64]
TOLERANCES = {torch.float32: 2e-4, torch.float64: 1e-9}
COLUMNS = [1, 2, 3, 7, 8, 15, 16, 17, 24, 31, 32, 33, 50]


class Rows(nn.Module):
    """A norm, a softmax, extremes, and three operands that vary over all, rows and columns."""

    def __init__(self, columns, dtype):
        super().__init__()
        self.scale, self.shift = (nn.Parameter(torch.randn(columns, dtype=dtype)) for _ in "ab")

    def forward(self, x, of_row):
        centred = x - x.mean(-1, keepdim=True)
        norm = centred / (centred.square().mean(-1, keepdim=True) + 1e-3).sqrt()
        y = norm * self.scale + self.shift
        soft = (y * 2.0 + of_row).softmax(-1)
        top, low = y.amax(-1, keepdim=True), y.amin(-1, keepdim=True)
        return torch.where(x > of_row, soft * top, y - low), y.logsumexp(-1)


def run(model, inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    outs = model(*inputs)
    sum((out * out.detach().cos()).sum() for out in outs).backward()
    grads = [x.grad for x in inputs] + [p.grad for p in model.parameters()]
    model.zero_grad()
    return [out.detach() for out in outs] + grads


@pytest.mark.parametrize("dtype", DTYPES)
def test_narrow_rows_are_as_torchs(dtype):
    for columns in COLUMNS:
        torch.manual_seed(columns)
        net = Rows(columns, dtype)
        ours, near = ORTModule(net, Options(fallback="error")), TOLERANCES[dtype]
        for rows in (1, 5, 37, 700):
            inputs = torch.randn(rows, columns, dtype=dtype), torch.randn(rows, 1, dtype=dtype)
            for got, want in zip(run(ours, inputs), run(net, inputs), strict=True):
                torch.testing.assert_close(got, want, rtol=near, atol=near)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [3, 16, 20])
def test_nans_and_infinities_of_narrow_rows(columns, dtype):
    class Extremes(nn.Module):
        def forward(self, x):
            return x.amax(-1), x.amin(-1), x.sum(-1), x - x.amax(-1, keepdim=True)

    x = torch.randn(64, columns, dtype=dtype)
    for k, special in enumerate((float("nan"), float("inf"), -float("inf"), 0.0, -0.0)):
        x[k::9, k % columns] = special
    x[5] = -float("inf")
    x[6] = -0.0
    got, want = ORTModule(Extremes(), Options(fallback="error"))(x), Extremes()(x)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, equal_nan=True, rtol=1e-5, atol=1e-6)


def test_dropout_over_narrow_rows_draws_the_mask_of_long_ones():
    """An element's number is drawn from its place in the whole, whatever a tile holds."""

    class Centred(nn.Module):
        def forward(self, x):
            return nn.functional.dropout(x - x.mean(-1, keepdim=True), 0.5)

    values, dropped = torch.linspace(-1, 1, 2400).square(), []
    for sizes in ((400, 6), (2, 1200), (1, 2400)):
        torch.manual_seed(3)
        found = ORTModule(Centred(), Options(fallback="error"))(values.view(sizes))
        dropped.append(found.flatten() == 0)
    assert dropped[0].any() and not dropped[0].all()
    assert all(torch.equal(dropped[0], other) for other in dropped[1:])
