"""explain(): nodes by dtype and the casts between them."""

import torch
from pairs import options
from torch import nn

from ortmodule import ORTModule

X = torch.randn(6, 8)


def explained(module, x, dtype=None):
    ours = ORTModule(module, options(fallback="error"))
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        ours(x).float().square().sum().backward()
    return ours.explain()


def test_a_module_of_one_dtype_has_no_casts():
    module = nn.Sequential(nn.Linear(8, 4), nn.Tanh())
    report = explained(module, X)
    assert set(report.dtypes) == {"float32"} and not report.casts
    assert "casts" not in str(report) and "nodes by dtype: float32" in str(report)
    assert set(explained(module.double(), X.double()).dtypes) == {"float64"}


def test_the_casts_of_autocast_are_counted():
    """Forward casts weight, bias and input, and the norm's input; backward casts them back."""
    report = explained(nn.Sequential(nn.Linear(8, 4), nn.LayerNorm(4)), X, torch.bfloat16)
    assert report.casts["float32 to bfloat16"] >= 3 and report.casts["bfloat16 to float32"] >= 1
    assert report.dtypes.keys() == {"float32", "bfloat16"}
    text = str(report)
    assert f"float32 to bfloat16 {report.casts['float32 to bfloat16']}" in text
    assert f"bfloat16 {report.dtypes['bfloat16']}" in text
    assert f"casts {sum(report.casts.values())}, fallbacks none" in report.line()
