"""DistributedDataParallel around a wrapper and inside of a wrapped module, in a world of one."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ortmodule import ORTModule

X = torch.linspace(-1, 1, 15).reshape(5, 3)


@pytest.fixture(autouse=True)
def world(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/world", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Parent(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = DistributedDataParallel(nn.Linear(3, 3)), nn.Linear(3, 1)

    def forward(self, x):
        return self.head(torch.tanh(self.inner(x)))


def steps(make, wrap):
    torch.manual_seed(0)
    module = make()
    model = wrap(module)
    found = []
    for _ in range(3):
        model.zero_grad()
        model(X).pow(2).mean().backward()
        found += [p.grad.clone() for p in module.parameters()]
    return found, model


@pytest.mark.parametrize("make", [Parent, lambda: DistributedDataParallel(nn.Linear(3, 3))])
@pytest.mark.filterwarnings("ignore:DistributedDataParallel has its own")
def test_a_module_that_holds_a_reducer_is_not_captured(make):
    theirs, _ = steps(make, lambda module: module)
    with pytest.warns(UserWarning, match="DistributedDataParallel inside of the module"):
        ours, model = steps(make, ORTModule)
    assert all(map(torch.equal, theirs, ours))
    assert model.explain().captures == 0


def test_around_a_wrapper_the_engine_runs():
    theirs, _ = steps(lambda: nn.Linear(3, 3), DistributedDataParallel)
    ours, model = steps(lambda: nn.Linear(3, 3), lambda m: DistributedDataParallel(ORTModule(m)))
    torch.testing.assert_close(ours, theirs)
    assert model.module.explain().captures == 1
