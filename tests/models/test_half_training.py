"""Fifty steps in halves: losses as near to float32's as eager's are, and GradScaler's decisions."""

import contextlib
import copy
import functools

import pytest
import torch
import zoo
from torch import nn
from torch.nn import functional

from ortmodule import Options, ORTModule

STRICT = Options(fallback="error")
STEPS = 50
START = {"resnet50": {"zero_init_residual": True}}  # why: test_training.py


def autocast():
    return torch.autocast("cpu", torch.bfloat16)


def train(module, model, batch, around=contextlib.nullcontext):
    """The losses; what `around` enters is around forward alone."""
    optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=1e-4)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        with around():
            loss = zoo.loss_of(model(**batch))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def halved(module, batch):
    half = {k: v.bfloat16() if v.is_floating_point() else v for k, v in batch.items()}
    return copy.deepcopy(module).bfloat16(), half


def started(name):
    """The model and its batch, always the same."""
    torch.manual_seed(0)
    module, batch = zoo.MODELS[name](dropout=0.0, **START.get(name, {}))
    return module.train(), batch


@functools.cache
def in_float32(name):
    """Eager's losses there."""
    module, batch = started(name)
    return train(module, module, batch)


def distance(losses, exact):
    return sum(abs(a - b) for a, b in zip(losses, exact, strict=True)) / len(exact)


def worst(losses, exact):
    return max(abs(a - b) for a, b in zip(losses, exact, strict=True))


# Eager's own steps of ResNet-50 in halves take two minutes.
LONG = {"resnet50": pytest.mark.long}


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.parametrize("pure", [False, True], ids=["autocast", "pure"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=LONG.get(name, ())) for name in zoo.MODELS]
)
def test_losses_are_as_near_to_float32s_as_eagers(name, pure):
    (module, batch), exact = started(name), in_float32(name)
    around = contextlib.nullcontext if pure else autocast
    eager, given = halved(module, batch) if pure else (copy.deepcopy(module), batch)
    mine = copy.deepcopy(eager)
    theirs = train(eager, eager, given, around)
    ours = ORTModule(mine, STRICT)
    losses = train(mine, ours, given, around)
    assert distance(losses, exact) <= 1.5 * distance(theirs, exact) + 1e-3
    # Pure bfloat16 takes eager itself farther: T5 to 1.06, ResNet-50 to 0.17, the LSTM to 0.03.
    assert worst(losses, exact) <= max(2e-2, pure * 1.5 * worst(theirs, exact))
    for (key, a), (_, b) in zip(mine.named_parameters(), eager.named_parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), key
        if b.grad is not None:
            assert a.grad.dtype == b.grad.dtype == a.dtype, key
            assert a.grad.isfinite().all() == b.grad.isfinite().all(), key
    report = ours.explain()
    assert report.captures == 1 and not report.fallbacks and "aten" not in report.providers


def scaled_steps(make, steps=24):
    """By step: the scale, and whether the optimizer was skipped; losses overflow at two steps."""
    torch.manual_seed(0)
    module = make(nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 4)))
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=8)
    x, y = torch.randn(16, 8), torch.randn(16, 4)
    decisions, losses = [], []
    for step in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = functional.mse_loss(module(x), y)
        losses.append(loss.item())
        scaler.scale(loss * 1e30 if step in (5, 20) else loss).backward()
        before = [p.detach().clone() for p in module.parameters()]
        scaler.step(optimizer)
        scaler.update()
        skipped = all(map(torch.equal, before, module.parameters()))
        finite = [p.grad.isfinite().all().item() for p in module.parameters()]
        decisions.append((scaler.get_scale(), skipped, finite))
    return decisions, losses


def test_the_scaler_decides_as_in_eager():
    decisions, losses = scaled_steps(lambda module: ORTModule(module, STRICT))
    expected, eagers = scaled_steps(lambda module: module)
    assert decisions == expected and [s for _, s, _ in expected].count(True) == 2
    torch.testing.assert_close(losses, eagers, rtol=1e-2, atol=1e-3)
