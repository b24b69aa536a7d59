"""F.pad where sizes change from call to call: eager's result, or its error."""

import pytest
import torch
import torch.nn.functional as F
from captured import Function
from pairs import same_outcomes

SIZES = [8, 6, 8, 3, 2, 1, 0, 9]


@pytest.mark.filterwarnings("ignore:ORTModule runs this module in eager")
@pytest.mark.parametrize("pads", [(3, 2), (-3, 4), (2, -3), (-1, -1)])
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate"])
def test_pads_of_sizes_that_change(mode, pads):
    def step(function, size):
        x = torch.arange(6.0 * size).view(2, 3, size).requires_grad_()
        y = function(x)
        y.backward(torch.arange(1.0, 1 + y.numel()).view(y.shape))
        return [y.detach(), x.grad]

    same_outcomes(Function(lambda x: F.pad(x, pads, mode)), step, SIZES)
