"""DistributedDataParallel around a wrapper and inside of a wrapped module, in a world of one."""

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ortmodule import Options, ORTModule
from ortmodule.errors import NotCapturable

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


@pytest.mark.parametrize(
    "make, engines", [(Parent, 2), (lambda: DistributedDataParallel(nn.Linear(3, 3)), 1)]
)
@pytest.mark.filterwarnings("ignore:DistributedDataParallel has its own")
def test_what_lies_between_reducers_is_captured(make, engines):
    theirs, _ = steps(make, lambda module: module)
    with pytest.warns(UserWarning, match="DistributedDataParallel communicates there"):
        ours, model = steps(make, ORTModule)
    torch.testing.assert_close(ours, theirs)
    report = model.explain()
    assert report.captures == engines and not report.fallbacks
    assert "DistributedDataParallel communicates there" in report.not_whole[0].reason


@pytest.mark.filterwarnings("ignore:DistributedDataParallel has its own")
def test_a_whole_capture_can_be_insisted_on():
    model = ORTModule(Parent(), Options(fallback="whole"))
    with pytest.raises(NotCapturable, match="DistributedDataParallel communicates there"):
        model(X)


@pytest.mark.filterwarnings("ignore:DistributedDataParallel has its own")
@pytest.mark.filterwarnings("ignore:ORTModule runs")
def test_copies_and_swaps_of_what_has_seams():
    module = Parent()
    model = ORTModule(module)
    expected = model(X).detach()
    again = copy.deepcopy(module.head)
    torch.testing.assert_close(again(module.inner(X).tanh()), expected)
    module.head = nn.Linear(3, 2)
    assert model(X).shape == (5, 2) and model.explain().captures == 2
    del model
    assert module(X).shape == (5, 2)  # its own again


def test_around_a_wrapper_the_engine_runs():
    theirs, _ = steps(lambda: nn.Linear(3, 3), DistributedDataParallel)
    ours, model = steps(lambda: nn.Linear(3, 3), lambda m: DistributedDataParallel(ORTModule(m)))
    torch.testing.assert_close(ours, theirs)
    assert model.module.explain().captures == 1
