"""F.pad where sizes change from call to call: eager's result, or its error."""

import pytest
import torch
import torch.nn.functional as F
from captured import Function

from ortmodule import ORTModule

SIZES = [8, 6, 8, 3, 2, 1, 0, 9]


@pytest.mark.filterwarnings("ignore:ORTModule runs this module in eager")
@pytest.mark.parametrize("pads", [(3, 2), (-3, 4), (2, -3), (-1, -1)])
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate"])
def test_pads_of_sizes_that_change(mode, pads):
    module, found = Function(lambda x: F.pad(x, pads, mode)), []
    for function in (module, ORTModule(module)):
        rows = []
        for size in SIZES:
            x = torch.arange(6.0 * size).view(2, 3, size).requires_grad_()
            try:
                y = function(x)
                y.backward(torch.arange(1.0, 1 + y.numel()).view(y.shape))
                rows.append([y.detach(), x.grad])
            except RuntimeError as error:
                rows.append(str(error))
        found.append(rows)
    for ours, theirs in zip(*reversed(found), strict=True):
        if isinstance(theirs, str):
            assert ours == theirs
        else:
            torch.testing.assert_close(ours, theirs)
