"""ortmodule.optim.AdamW on bfloat16 and float16, alone and with float32 masters."""

import copy
import pickle

import pytest
import torch
from ortmodule.optim import AdamW
from torch import nn

from ortmodule import ORTModule

HALVES = [torch.bfloat16, torch.float16]
SHAPES = [(5,), (3, 7), (), (0, 4), (40, 1000), (2, 3, 4, 5)]
EPS = {torch.bfloat16: 2**-8, torch.float16: 2**-11}
OPTIONS = {
    "defaults": {"lr": 1e-2},
    "amsgrad": {"amsgrad": True, "lr": 1e-2, "weight_decay": 0.1},
    "maximize": {"maximize": True, "lr": 1e-3},
}


def parameters(dtype) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    return [nn.Parameter(torch.randn(s, generator=generator).to(dtype)) for s in SHAPES]


def grads_of(step: int, dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(s, generator=generator).to(dtype) for s in SHAPES]


def train(optimizer, params, steps, dtype, first=0) -> None:
    """Steps on gradients that `dtype` holds, in the parameters' own dtype."""
    for step in range(first, first + steps):
        for p, grad in zip(params, grads_of(step, dtype), strict=True):
            p.grad = grad.to(p.dtype)
        optimizer.step()


def masters(optimizer) -> list[torch.Tensor]:
    return [state["master"] for state in optimizer.state_dict()["state"].values()]


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_masters_are_torchs_float32_copies(dtype, name):
    """Fifty steps of torch's own on copies in float32; each parameter is its master, rounded."""
    halves = parameters(dtype)
    wide = [nn.Parameter(p.detach().float()) for p in halves]
    ours = AdamW(halves, master_weights=True, **OPTIONS[name])
    theirs = torch.optim.AdamW(wide, **OPTIONS[name])
    train(ours, halves, 50, dtype)
    train(theirs, wide, 50, dtype)
    for half, master, exact in zip(halves, masters(ours), wide, strict=True):
        assert master.dtype == torch.float32
        torch.testing.assert_close(master, exact.detach(), rtol=2e-5, atol=1e-6)
        assert torch.equal(half, master.to(dtype))
    for mine, other in zip(ours.state.values(), theirs.state.values(), strict=True):
        for key in other:
            torch.testing.assert_close(mine[key], other[key], rtol=2e-5, atol=1e-6)


def test_steps_smaller_than_an_ulp_add_up_with_masters_alone():
    ones = [nn.Parameter(torch.ones(3000, dtype=torch.bfloat16)) for _ in range(2)]
    options = {"lr": 1e-4, "weight_decay": 0.0}
    kinds = [AdamW([ones[0]], master_weights=True, **options), AdamW([ones[1]], **options)]
    for _ in range(50):
        for p, optimizer in zip(ones, kinds, strict=True):
            p.grad = torch.ones_like(p)
            optimizer.step()
    assert torch.equal(ones[1], torch.ones_like(ones[1]))
    assert torch.equal(ones[0], torch.full_like(ones[0], 1 - 50e-4))


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_alone_they_step_as_torchs_fused(dtype, name):
    """Rounded once a step: a step's parameters and moments are torch's within an ulp of its."""
    mine = parameters(dtype)
    theirs = copy.deepcopy(mine)
    ours = AdamW(mine, **OPTIONS[name])
    torchs = torch.optim.AdamW(theirs, fused=True, **OPTIONS[name])
    for step in range(50):
        for a, b in zip(mine, theirs, strict=True):
            a.data.copy_(b.data)
        for a, b in zip(ours.state.values(), torchs.state.values(), strict=True):
            for key in b:
                a[key].copy_(b[key])
        for optimizer, params in ((ours, mine), (torchs, theirs)):
            train(optimizer, params, 1, dtype, step)
        near = {"rtol": 2 * EPS[dtype], "atol": 1e-6}
        torch.testing.assert_close(mine, theirs, **near)
        for a, b in zip(ours.state.values(), torchs.state.values(), strict=True):
            for key in b:
                assert a[key].dtype == b[key].dtype
                torch.testing.assert_close(a[key], b[key], **near)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_alone_they_are_no_farther_from_float32_than_torchs(dtype):
    exact = [nn.Parameter(p.detach().double()) for p in parameters(dtype)]
    runs = [(torch.optim.AdamW, exact), (AdamW, parameters(dtype))]
    runs.append((torch.optim.AdamW, parameters(dtype)))
    for kind, params in runs:
        train(kind(params, lr=1e-2), params, 50, dtype)
    error = [
        sum((a.double() - b).abs().sum() for a, b in zip(params, exact, strict=True))
        for _, params in runs[1:]
    ]
    assert error[0] <= error[1], error


@pytest.mark.parametrize("amsgrad", [False, True])
def test_state_dict_carries_masters(amsgrad):
    options = {"lr": 1e-2, "amsgrad": amsgrad, "master_weights": True}
    whole, halves = parameters(torch.bfloat16), parameters(torch.bfloat16)
    reference, before = AdamW(whole, **options), AdamW(halves, **options)
    train(reference, whole, 12, torch.bfloat16)
    train(before, halves, 6, torch.bfloat16)
    after = AdamW(halves, **options)
    after.load_state_dict(pickle.loads(pickle.dumps(before.state_dict())))
    assert all(m.dtype == torch.float32 for m in masters(after))
    copies = copy.deepcopy((halves, before))  # by __getstate__
    for params, optimizer in ((halves, after), copies):
        train(optimizer, params, 6, torch.bfloat16, first=6)
        for a, b in zip(params, whole, strict=True):
            assert torch.equal(a, b)
        for a, b in zip(masters(optimizer), masters(reference), strict=True):
            assert torch.equal(a, b)


def test_a_state_of_torchs_is_widened():
    halves = parameters(torch.bfloat16)
    theirs = torch.optim.AdamW(halves)
    train(theirs, halves, 2, torch.bfloat16)
    ours = AdamW(halves, master_weights=True)
    ours.load_state_dict(theirs.state_dict())
    state = ours.state[halves[0]]
    assert state["exp_avg"].dtype == torch.float32 and "master" not in state
    before = [p.detach().float() for p in halves]
    torch.testing.assert_close(state["exp_avg"], theirs.state[halves[0]]["exp_avg"].float())
    train(ours, halves, 1, torch.bfloat16, first=2)
    for master, old in zip(masters(ours), before, strict=True):
        assert master.dtype == torch.float32
        torch.testing.assert_close(master, old, rtol=1e-2, atol=2e-3)


def test_a_parameter_that_was_written_is_taken_up():
    (half,) = params = [nn.Parameter(torch.randn(2000).bfloat16())]
    ours = AdamW(params, lr=1e-3, weight_decay=0.0, master_weights=True)
    for _ in range(3):
        half.grad = torch.ones_like(half)
        ours.step()
    kept = ours.state[half]["master"][1500].clone()
    half.data[:1000] = 5.0
    half.grad = torch.zeros_like(half)
    ours.step()
    master = ours.state[half]["master"]
    assert (master[:1000] - 5).abs().max() < 5e-3 and (master[1500] - kept).abs() < 5e-3
    assert torch.equal(half, master.bfloat16())


def test_any_strides():
    base = torch.randn(6, 4, 5, 5).bfloat16()
    odd = [nn.Parameter(base.to(memory_format=torch.channels_last)), nn.Parameter(base[0, 0].t())]
    odd.append(nn.Parameter(torch.empty(8, 10).bfloat16()[:, ::2].copy_(torch.randn(8, 5))))
    plain = [nn.Parameter(p.detach().clone(memory_format=torch.contiguous_format)) for p in odd]
    runs = [(AdamW(p, lr=0.1, master_weights=True), p) for p in (odd, plain)]
    for _ in range(3):
        grads = [torch.randn(p.shape).bfloat16() for p in plain]
        for optimizer, params in runs:
            for p, grad in zip(params, grads, strict=True):
                p.grad = grad.clone()
            optimizer.step()
    for a, b in zip(odd, plain, strict=True):
        assert torch.equal(a, b)


def test_nans_and_infinities_reach_parameter_and_master():
    half = nn.Parameter(torch.randn(19).half())
    ours = AdamW([half], master_weights=True)
    half.grad = torch.randn(19).half()
    half.grad[3], half.grad[18] = float("nan"), float("inf")
    ours.step()
    assert half.isnan().sum() == 2 and ours.state[half]["master"].isnan().sum() == 2


def test_wider_parameters_have_no_master():
    params = [nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4).bfloat16())]
    params.append(nn.Parameter(torch.randn(4).double()))
    theirs = copy.deepcopy([params[0], params[2]])
    ours, torchs = AdamW(params, master_weights=True), torch.optim.AdamW(theirs)
    for _ in range(5):
        for p in params:
            p.grad = torch.arange(4.0).to(p.dtype)
        for p in theirs:
            p.grad = torch.arange(4.0).to(p.dtype)
        ours.step()
        torchs.step()
    assert ["master" in ours.state[p] for p in params] == [False, True, False]
    torch.testing.assert_close([params[0], params[2]], theirs, rtol=1e-6, atol=1e-7)


HOSTILE = {
    "shape": ("master", torch.zeros(7), r"\[AdamW\] master has shape \[7\], expected \[4\]"),
    "dtype": ("master", torch.zeros(4).double(), "master has dtype Double, expected Float"),
    "half": ("master", torch.zeros(4).bfloat16(), "master has dtype BFloat16, expected Float"),
    "device": ("master", torch.zeros(4, device="meta"), "master is on meta, expected cpu"),
    "moment": ("exp_avg", torch.zeros(4).bfloat16(), "exp_avg has dtype BFloat16, expected Float"),
    "moment's shape": ("exp_avg_sq", torch.zeros(2, 2), "exp_avg_sq has shape"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_state_that_does_not_fit(kind):
    name, value, message = HOSTILE[kind]
    params = [nn.Parameter(torch.ones(4).bfloat16()) for _ in range(2)]
    ours = AdamW(params, lr=0.5, master_weights=True)
    for p in params:
        p.grad = torch.ones_like(p)
    ours.step()
    kept = [p.detach().clone() for p in params]
    ours.state[params[1]][name] = value
    with pytest.raises(RuntimeError, match=message):
        ours.step()
    for p, before in zip(params, kept, strict=True):
        assert torch.equal(p, before), "all checks come before the first write"


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_trains_a_half_module(dtype):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(dtype)
    exact = copy.deepcopy(net).float()
    model = ORTModule(net)
    mine = AdamW(model.parameters(), lr=1e-2, master_weights=True)
    torchs = torch.optim.AdamW(exact.parameters(), lr=1e-2)
    x, y = torch.randn(32, 8).to(dtype), torch.randint(4, (32,))
    for _ in range(30):
        losses = []
        for module, optimizer, given in ((model, mine, x), (exact, torchs, x.float())):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(given).float(), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], abs=2e-2)
    assert not model.explain().fallbacks
