"""Models train on a second device, whose work runs late and in any order that events allow."""

import gc

import far
import pytest
import torch
import zoo

from ortmodule import Options, ORTModule

STEPS = 5
# Batch norm over a few numbers: a larger step turns roundings into other losses.
RATES = {"resnet50": 1e-4}
SCHEDULES = range(20)


def wrapped(name, *providers, **options):
    torch.manual_seed(0)
    module, batch = zoo.MODELS[name](dropout=0.1, batch=2)
    return ORTModule(module.train(), Options("error", providers, **options)), batch


class Trained:
    """A model, and five steps of it from the same start each time."""

    def __init__(self, name, *providers, **options):
        self.rate = RATES.get(name, 0.05)
        self.model, self.batch = wrapped(name, *providers, **options)
        self.start = {k: v.clone() for k, v in self.model.state_dict().items()}

    def losses(self, steps=STEPS):
        self.model.load_state_dict(self.start)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=self.rate)
        torch.manual_seed(1)
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = zoo.loss_of(self.model(**self.batch))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses


@pytest.fixture(autouse=True)
def whole_device():
    far.schedule(0)
    yield
    far.leave_out(far.Mistake.NONE)
    far.limit(0)
    far.unmark(None)


def close(losses, expected):
    return torch.allclose(torch.tensor(losses), torch.tensor(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.models
@pytest.mark.parametrize("name", zoo.MODELS)
def test_losses_under_every_schedule(name):
    expected = Trained(name, "cpu", "aten").losses()
    trained = Trained(name, "far", "cpu", "aten", segment_bytes=0)
    for seed in SCHEDULES:
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
