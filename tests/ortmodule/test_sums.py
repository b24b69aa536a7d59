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
