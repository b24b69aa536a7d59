"""Which devices are taken, and the generators of a call's device."""

import copy

import pytest
import torch

from ortmodule import ORTModule, devices
from ortmodule.errors import NotCapturable


def test_a_device_without_a_provider_is_refused():
    assert devices.is_provided(torch.device("cpu"))
    assert not devices.is_provided(torch.device("meta"))
    assert devices.provided() >= {"cpu"}


def test_a_call_computes_where_its_tensors_lie():
    host, other = torch.ones(()), torch.ones(2, device="meta")
    assert devices.of([host]) == devices.of([]) == devices.HOST
    assert devices.of([host, other]) == other.device


def test_generators_are_put_back():
    before = devices.random_states(devices.HOST)
    first = torch.rand(3)
    devices.set_random_states(devices.HOST, before)
    assert torch.equal(torch.rand(3), first)


class Elsewhere(torch.nn.Module):
    """Gives step(h), maybe after a cut."""

    def __init__(self, step, cut):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.step, self.cut = step, cut

    def forward(self, x):
        h = self.linear(x)
        if self.cut:
            print(end="")
        return self.step(h.relu() + h.sin() * h.cos() - h.exp())


ELSEWHERE = {
    "moved": lambda h: h.to("meta"),
    "moved and used": lambda h: (h, h.to("meta").relu() * 2),
    "made": lambda h: (h, torch.ones(3, device="meta")),
    "made like": lambda h: (h * 2, torch.empty_like(h, device="meta")),
    "asked for its size": lambda h: h * torch.zeros(2, 3, device="meta").shape[1],
}


@pytest.mark.filterwarnings("ignore:ORTModule runs")
@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
@pytest.mark.parametrize("step", ELSEWHERE.values(), ids=ELSEWHERE.keys())
def test_what_forward_moves_to_another_device_is_there(step, cut):
    eager = Elsewhere(step, cut)
    model, x = ORTModule(copy.deepcopy(eager)), torch.randn(2, 4)
    for _ in range(3):
        expected, given = eager(x), model(x)
        for a, b in zip(_listed(expected), _listed(given), strict=True):
            assert (a.device, a.shape, a.requires_grad) == (b.device, b.shape, b.requires_grad)
            if a.device == devices.HOST:
                torch.testing.assert_close(a, b)
    assert "forward has a tensor on meta, expected cpu" in str(model.explain())


def _listed(result):
    return result if isinstance(result, tuple) else (result,)


def test_kernels_of_a_gpu_run_for_those_who_ask():
    """Others get eager and the option's name."""
    gpu = torch.device("cuda", 0)
    devices.check_asked(devices.HOST, ("cpu", "aten"))
    devices.check_asked(gpu, ("cuda", "aten", "cpu"))
    with pytest.raises(NotCapturable, match=r"cuda:0, where a module runs in eager .*providers="):
        devices.check_asked(gpu, ("cpu", "aten"))
