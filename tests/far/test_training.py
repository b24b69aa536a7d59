"""Models train on a second device, whose work runs late and in any order that events allow."""

import functools
import gc

import far
import pytest
import torch
from trained import MODELS, Trained

SCHEDULES, FEW = range(20), {"resnet50": 4, "resnet14": 4}  # of these each takes seconds
LONG = {"resnet50": pytest.mark.long}
NAMES = [pytest.param(name, marks=LONG.get(name, ())) for name in MODELS]


@pytest.fixture(autouse=True)
def whole_device():
    far.schedule(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the models are tiny
    yield
    torch.set_num_threads(threads)
    far.leave_out(far.Mistake.NONE)
    far.limit(0)
    far.layouts(0)
    far.unmark(None)


@functools.cache
def on_the_host(name):
    """The losses there, for both tests."""
    return Trained(name, "cpu", "aten").losses()


def close(losses, expected):
    return torch.allclose(torch.tensor(losses), torch.tensor(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.models
@pytest.mark.parametrize("name", NAMES)
def test_losses_under_every_schedule(name):
    expected = on_the_host(name)
    trained = Trained(name, "far", "cpu", "aten", segment_bytes=0)
    for seed in SCHEDULES[: FEW.get(name)]:
        far.schedule(seed)
        losses = trained.losses()
        assert close(losses, expected), (seed, losses, expected)
    report = trained.model.explain()
    steps = [s for s in report.steps if s.provider != "plan"]
    assert sum(s.provider == "far" for s in steps) >= 0.4 * len(steps), report.providers
    copies = {s.name for s in report.steps if s.provider == "plan"}
    assert {"copy cpu -> private_use:0", "copy private_use:0 -> cpu"} <= copies
    assert not report.fallbacks and not report.reruns
    del trained
    gc.collect()
    assert far.live() == 0


@pytest.mark.models
@pytest.mark.parametrize("name", NAMES)
def test_losses_where_values_lie_in_orders_of_the_device(name):
    """Some kernels take and give them so, some ask for another order than a value comes in."""
    expected = on_the_host(name)[:2]
    far.layouts(60)
    trained = Trained(name, "far", "cpu", "aten", segment_bytes=0)
    for seed in (0, 7):
        far.schedule(seed)
        losses = trained.losses(2)
        assert close(losses, expected), (seed, losses, expected)
    names = [step.name for step in trained.model.explain().steps]
    ways = {name for name in names if name.startswith("reorder ")}
    assert {"reorder backwards -> plain", "reorder turned -> plain"} <= ways
    assert sum(name in ways for name in names) >= 8
