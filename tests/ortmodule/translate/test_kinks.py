"""Every rule at its kinks: values and gradients of the engine's cpu provider against eager's."""

import kinks
import pytest
import torch
import torch.nn.functional as F
from traced import Traced
from verdict import check, run, widened

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def outputs(result) -> list:
    return [result] if isinstance(result, torch.Tensor) else list(result)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", kinks.POINTWISE)
def test_at_one_number(name, dtype):
    function = kinks.POINTWISE[name]
    xs = [kinks.blocks(name, dtype), kinks.leaf([], dtype)]
    check(lambda *xs: [function(x) for x in xs], xs, signs=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", kinks.BINARY)
def test_at_two_numbers(name, dtype):
    function = kinks.BINARY[name]
    check(lambda x, y: outputs(function(x, y)), list(kinks.pairs(name, dtype)))


@pytest.mark.parametrize("name", kinks.ROWWISE)
def test_at_rows(name):
    function = kinks.ROWWISE[name]
    check(lambda x: outputs(function(x)), [kinks.leaf(kinks.ROWS)])


@pytest.mark.parametrize("shape", [(2, 16, 4), (2, 64, 49), (4, 8, 3136)])
def test_batch_norm_beside_a_large_mean(shape):
    """As near to float64 as eager: nothing that is as large as the mean cancels."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=draw) + 30
    scale, bias = torch.rand(2, shape[1], generator=draw)
    leaves = [tensor.requires_grad_() for tensor in (x, scale, bias)]

    def norm(x, scale, bias):
        return [F.batch_norm(x, None, None, scale, bias, training=True)]

    ours, eager = run(Traced(norm, leaves), leaves), run(norm, leaves)
    exact = run(norm, widened(leaves))
    for mine, theirs, best in zip(ours[1], eager[1], exact[1], strict=True):
        allowed = 1.5 * (theirs - best).norm() + 1e-7 * best.norm()
        assert (mine - best).norm() <= allowed
