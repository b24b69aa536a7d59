"""Every rule at its kinks: values and gradients of the engine's cpu provider against eager's."""

import kinks
import pytest
import torch
from verdict import check


def outputs(result) -> list:
    return [result] if isinstance(result, torch.Tensor) else list(result)


@pytest.mark.parametrize("name", kinks.POINTWISE)
def test_at_one_number(name):
    """Each number alone: eager's vector loops and their ends differ at a nan."""
    function = kinks.POINTWISE[name]
    xs = [kinks.leaf([value]) for value in kinks.SPECIAL] + [kinks.leaf([])]
    check(lambda *xs: [function(x) for x in xs], xs, signs=True)


@pytest.mark.parametrize("name", kinks.BINARY)
def test_at_two_numbers(name):
    function = kinks.BINARY[name]
    check(lambda x, y: outputs(function(x, y)), list(kinks.pairs(kinks.OPERANDS)))


@pytest.mark.parametrize("name", kinks.ROWWISE)
def test_at_rows(name):
    function = kinks.ROWWISE[name]
    check(lambda x: outputs(function(x)), [kinks.leaf(kinks.ROWS)])
