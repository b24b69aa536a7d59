"""Results lie in memory as eager's do, also axes of one element: a caller's view relies on it."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ortmodule import ORTModule


class Attending(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.options = options

    def forward(self, *heads):
        result = F.scaled_dot_product_attention(*heads, **self.options)
        return result, result.transpose(1, 2)


OPTIONS = [{}, {"is_causal": True}, {"dropout_p": 0.1}, {"scale": 0.3}, {"enable_gqa": True}]


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_attention(options, transposed, narrow):
    few = 2 if "enable_gqa" in options else 4
    heads = [torch.randn(2, n, 5, w) for n, w in [(4, 8), (few, 8), (few, 6 if narrow else 8)]]
    if transposed:
        heads = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in heads]
    module = Attending(options)
    expected = [y.stride() for y in module(*heads)]
    assert [y.stride() for y in ORTModule(module)(*heads)] == expected


VIEWS = {
    "movedim": lambda y: y.view(-1, 2, 2).movedim(0, -1),
    "transpose": lambda y: y.view(-1, 2, 2).transpose(0, 1),
    "permute": lambda y: y.view(2, -1, 2).permute(2, 1, 0),
    "rot90": lambda y: y.view(-1, 2, 2).rot90(1, (1, 2)),
    "unsqueeze": lambda y: y.unsqueeze(0).transpose(0, 2),
}


@pytest.mark.parametrize("view", VIEWS)
def test_axes_of_one_element(view):
    class Viewing(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x):
            return VIEWS[view](self.linear(x))

    module = Viewing()
    model = ORTModule(module)
    for batch in (5, 1, 2, 1):
        x = torch.randn(batch, 4)
        assert model(x).stride() == module(x).stride()
