"""What a device replays is what it would have queued: the same bits, and the same errors.

Run by test_replay.py in a process of its own, as torch knows one device of another name from then
on. Each case runs on `far` and on `cuda` over its double, both with torch's tensors.
"""

import cuda_double
import far
import pytest
import torch
from far_torch import DEVICE
from torch import nn
from trained import build

from ortmodule import Options, ORTModule

cuda_double.use(cuda_double.PRIVATE_USE)
SCHEDULES = range(20)
ONE = torch.ones(()).to(DEVICE)


@pytest.fixture(params=["far", "cuda"])
def provider(request):
    far.schedule(0)
    far.share(100)
    yield request.param
    far.share(60)


def on_device(module, provider, *off):
    module = module.to(DEVICE)
    return ORTModule(module, Options("error", (provider, "aten", "cpu"), off=off))


def outcome(model, batches, start):
    """Bits of some steps of every kind: after a changed batch, with a graph retained, with two
    forwards in flight and with gradients that are kept."""
    model.load_state_dict(start)
    torch.manual_seed(1)
    kept, losses = [], []

    def backward(loss, **options):
        loss.backward(ONE, **options)
        losses.append(loss.detach())

    def step(keep=False):
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad * 0.05)
                parameter.grad = None
        kept.extend(gradient.clone() for gradient in gradients)
        if keep:
            kept.extend(gradients)

    def loss_of(batch):
        return model(**{key: value.clone() for key, value in batch.items()})

    feed = {key: value.clone() for key, value in batches[0].items()}
    for k in range(5):  # another batch in the same memory
        for key, value in batches[k % 2].items():
            feed[key].copy_(value)
        backward(model(**feed))
        step()
    for _ in range(2):
        loss = loss_of(batches[0])
        backward(loss, retain_graph=True)
        backward(loss)
        step()
    for _ in range(2):
        one, other = loss_of(batches[0]), loss_of(batches[1])
        backward(other)
        backward(one)
        step(keep=True)
    with torch.no_grad():
        losses.extend(loss_of(batch) for batch in batches)
    return [value.cpu() for value in [*losses, *kept]]


class Trained(nn.Module):
    """A model of the zoo whose result is its loss."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, **batch):
        result = self.module(**batch)
        return result.loss if hasattr(result, "loss") else result.square().mean()


def made(name):
    module, batch = build(name, dropout=0.1)
    other = {
        key: value.flip(0).contiguous() if value.is_floating_point() else value.clone()
        for key, value in batch.items()
    }
    return Trained(module), [{k: v.to(DEVICE) for k, v in b.items()} for b in (batch, other)]


@pytest.mark.models
@pytest.mark.parametrize("name", ["mlp", "bert", "gpt2"])
def test_bits_are_those_of_fresh_runs_under_every_schedule(name, provider):
    module, batches = made(name)
    plain = on_device(module, provider, "recordings")
    start = {key: value.clone() for key, value in plain.state_dict().items()}
    before = far.replays()
    expected = outcome(plain, batches, start)
    assert far.replays() == before
    model = on_device(module, provider)
    for seed in SCHEDULES:
        far.schedule(seed)
        found = outcome(model, batches, start)
        assert all(map(torch.equal, found, expected)), seed
    assert far.replays() - before > 10, far.replays() - before
    report = model.explain()
    assert not report.fallbacks and report.replays > 0 and not plain.explain().replays
    assert f"  {report.replays} rows of steps were replayed by the device" in str(report)


def in_steps(x):
    """Several that no provider makes one."""
    for _ in range(3):
        x = torch.softmax((x @ x.transpose(0, 1)).transpose(0, 1), -1)
    return x


class Masked(nn.Module):
    """One of its steps draws a mask."""

    def forward(self, x):
        return nn.functional.dropout(in_steps(x), 0.5) @ x


def test_each_replay_draws_another_mask(provider):
    model, x = on_device(Masked().train(), provider), torch.randn(32, 32).to(DEVICE)
    plain = on_device(Masked().train(), provider, "recordings")
    before = far.replays()
    masks = []
    for use in (model, plain):
        torch.manual_seed(4)
        masks.append([use(x).cpu() for _ in range(5)])
    assert far.replays() > before
    assert all(map(torch.equal, *masks))
    assert not any(torch.equal(a, b) for a, b in zip(masks[0], masks[0][1:], strict=False))


class Rows(nn.Module):
    """An index that is out of range, in a row of steps that is replayed."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Parameter(torch.randn(8, 4))

    def forward(self, index):
        return in_steps(self.rows[index]).square().sum()


def test_a_replay_tells_of_what_it_found(provider):
    model = on_device(Rows(), provider)
    index = torch.tensor([1, 2, 3]).to(DEVICE)

    def step():
        for parameter in model.parameters():
            parameter.grad = None
        loss = model(index)
        loss.backward(ONE)
        far.live()  # what was queued runs, and nobody was told to wait for it
        return loss.detach().cpu()

    expected = [step() for _ in range(4)][-1]
    before = far.replays()
    assert torch.equal(step(), expected) and far.replays() > before
    index.copy_(torch.tensor([1, 9, 3]))
    replays = far.replays()
    with pytest.raises(RuntimeError, match=r"index is out of range.*; node %"):
        step()
        step()
    assert far.replays() > replays
    index.copy_(torch.tensor([1, 2, 3]))
    assert torch.equal(step(), expected)
