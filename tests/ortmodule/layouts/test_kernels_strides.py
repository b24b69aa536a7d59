"""Results lie in memory as torch's kernels put them, also where a trace would say otherwise."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ortmodule import ORTModule

OPS = {
    "batch_norm": lambda net, x: net.norm(x),
    "batch_norm_then_relu": lambda net, x: net.norm(x).relu() * 2,
    "batch_norm_in_eval": lambda net, x: F.batch_norm(x, net.norm.running_mean, net.ones),
    "batch_norm_of_the_batch": lambda net, x: F.batch_norm(x, None, None, training=True),
    "logsigmoid": lambda net, x: F.logsigmoid(x) + 1,
    "rrelu": lambda net, x: F.rrelu(x),
    "softmax": lambda net, x: x.softmax(1),
}
LAYOUTS = {
    "matrix": lambda: torch.randn(4, 2).t(),
    "sequences": lambda: torch.randn(2, 3, 4).transpose(1, 2),
    "channels_last": lambda: torch.randn(2, 4, 3, 3).to(memory_format=torch.channels_last),
    "spread": lambda: torch.randn(2, 3, 4, 3).transpose(1, 2).transpose(0, 3),
    "volumes": lambda: torch.randn(2, 2, 3, 2, 4).movedim(-1, 1),
    "gaps": lambda: torch.randn(2, 4, 6)[..., ::2].transpose(1, 2).transpose(1, 2),
    "contiguous": lambda: torch.randn(2, 4, 3),
}


class Net(nn.Module):
    def __init__(self, op):
        super().__init__()
        self.norm, self.op = nn.BatchNorm1d(4), op
        self.norm._check_input_dim = lambda x: None
        self.register_buffer("ones", torch.ones(4))

    def forward(self, x):
        return self.op(self, x)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_strides_of_results(op, layout):
    net = Net(op)
    model = ORTModule(net)
    x = layout().requires_grad_()
    assert x.shape[1] == 4
    given, found = net(x), model(x)
    assert found.stride() == given.stride()
    assert model.explain().captures == 1
    grads = [torch.autograd.grad(y.sum(), x)[0] for y in (given, found)]
    assert grads[0].stride() == grads[1].stride() or not grads[0].is_contiguous()
