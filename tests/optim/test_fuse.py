"""ortmodule.optim.fuse: torch's optimizers become ours in the middle of a run."""

import copy
import warnings

import ortmodule.optim
import pytest
import torch
from ortmodule.optim import fuse
from torch import nn

from .kinds import FULL, KINDS, assert_close, parameters, state_of, train, twins

TORCHS = ("Adam", "AdamW", "SGD")
CHOICES = [{}, {"foreach": True}, {"fused": True}]
every_kind = pytest.mark.parametrize("kind", TORCHS)


@every_kind
@pytest.mark.parametrize("choice", CHOICES, ids=["plain", "foreach", "fused"])
def test_in_the_middle_of_a_run(kind, choice):
    """State, groups, hooks and a scheduler stay; the run goes on as torch's does."""
    ours, theirs, _ = KINDS[kind]
    first = parameters()
    second = twins(first)
    runs, calls = [], []
    for params in (first, second):
        optimizer = theirs(
            [{"params": params[:2], "lr": 1e-2}, {"params": params[2:]}], **FULL[kind], **choice
        )
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        runs.append((optimizer, schedule, params))
    mine = runs[0][0]
    mine.register_step_post_hook(lambda *_: calls.append(type(mine)))
    for step in range(10):
        if step == 5:
            kept = mine.state[first[0]], mine.param_groups
            assert fuse(mine) is mine
            assert mine.state[first[0]] is kept[0] and mine.param_groups is kept[1]
        for optimizer, schedule, params in runs:
            train(optimizer, params, 1, step)
            schedule.step()
    assert calls == [theirs] * 5 + [ours] * 5
    assert_close(first, second, 1e-6)
    assert_close(state_of(mine), state_of(runs[1][0]), 1e-6)
    assert mine.param_groups[0]["lr"] == runs[1][0].param_groups[0]["lr"] < 1e-2


@every_kind
def test_a_scheduler_still_sees_the_steps(kind):
    params = parameters()
    optimizer = KINDS[kind][1](params)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    fuse(optimizer)
    with pytest.warns(UserWarning, match="Detected call of `lr_scheduler.step"):
        schedule.step()
    params = parameters()
    optimizer = KINDS[kind][1](params)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    fuse(optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(optimizer, params, 1)
        schedule.step()
        torch.optim.lr_scheduler.StepLR(optimizer, 1).step()


@every_kind
def test_the_kernel_is_ours_through_a_schedulers_wrapper(kind, monkeypatch):
    params = parameters()
    optimizer = KINDS[kind][1](params)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    fuse(optimizer)
    launched = []
    monkeypatch.setattr(
        KINDS[kind][0], "launch", lambda self, kernels, rows, group: launched.append(rows)
    )
    train(optimizer, params, 1)
    assert [len(rows) for rows in launched] == [len(params)]


@every_kind
def test_a_grad_scaler_goes_on(kind):
    runs = []
    for fused in (False, True):
        params = parameters()
        optimizer = KINDS[kind][1](params, fused=fused)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        for step in range(4):
            if fused and step == 2:
                fuse(optimizer)
            optimizer.zero_grad()
            loss = sum((p * p).sum() for p in params)
            scaler.scale(loss * float("inf") if step == 1 else loss).backward()
            scaler.step(optimizer)
            scaler.update()
        runs.append(params)
    assert_close(runs[0], runs[1], 1e-6)


@every_kind
def test_what_is_fused_copies_and_saves_as_ours(kind):
    params = parameters()
    optimizer = fuse(KINDS[kind][1](params, **FULL[kind]))
    train(optimizer, params, 2)
    others, other = copy.deepcopy((params, optimizer))
    back = KINDS[kind][1](parameters(), **FULL[kind])
    back.load_state_dict(optimizer.state_dict())
    torch.testing.assert_close(state_of(back), state_of(optimizer), rtol=0, atol=0)
    assert type(other) is KINDS[kind][0]
    train(optimizer, params, 2, 2)
    train(other, others, 2, 2)
    assert all(torch.equal(a, b) for a, b in zip(params, others, strict=True))


@every_kind
def test_ours_stays_as_it_is(kind):
    optimizer = KINDS[kind][0](parameters())
    assert fuse(optimizer) is optimizer and type(optimizer) is getattr(ortmodule.optim, kind)


class Mine(torch.optim.SGD):
    """Somebody's subclass, whose step may do more."""


def test_other_classes_are_refused_by_name():
    expected = "expected torch.optim.AdamW, Adam, SGD, Adafactor or Muon itself"
    for kind, name in ((torch.optim.RMSprop, r"torch.optim.rmsprop.RMSprop"), (Mine, "Mine")):
        optimizer = kind(parameters(), lr=0.1)
        with pytest.raises(TypeError, match=rf"\[fuse\] optimizer is a .*{name}, {expected}"):
            fuse(optimizer)
        assert type(optimizer) is kind
    with pytest.raises(TypeError, match="optimizer is a builtins.str, expected"):
        fuse("adam")


def test_what_ours_could_not_step_is_refused_and_unchanged():
    differentiable = torch.optim.Adam(parameters(), differentiable=True)
    odd = torch.optim.SGD([nn.Parameter(torch.ones(3, dtype=torch.complex64))])
    far = torch.optim.AdamW([nn.Parameter(torch.ones(3, device="meta"))])
    wrapped = torch.optim.AdamW(parameters())
    wrapped.step = lambda: None
    for optimizer, message in (
        (differentiable, "ortmodule.optim.Adam has no differentiable step"),
        (odd, r"\[fuse\] a parameter is torch.complex64 on cpu, expected float32"),
        (far, r"\[fuse\] a parameter is torch.float32 on meta, expected float32"),
        (wrapped, r"\[fuse\] optimizer.step is wrapped by something other than a scheduler"),
    ):
        before, step = type(optimizer), vars(optimizer).get("step")
        with pytest.raises(ValueError, match=message):
            fuse(optimizer)
        assert type(optimizer) is before and vars(optimizer).get("step") is step
