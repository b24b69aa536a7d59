"""ortmodule.optim.Muon against torch's, by their distances from a computation in float64."""

import copy
import pickle

import pytest
import torch
from ortmodule.optim import Muon, fuse
from torch import nn

from .kinds import (
    assert_close,
    combinations,
    parameters,
    state_of,
    steps_under_scalers,
    train,
    twins,
)

SHAPES = [(5, 3), (4, 9), (40, 33), (64, 64), (1, 7), (7, 1), (0, 4)]
OPTIONS = {
    "momentum": {"momentum": 0.5, "nesterov": False},
    "weight_decay": {"weight_decay": 0.0},
    "like AdamW": {"adjust_lr_fn": "match_rms_adamw"},
    "iteration": {"ns_coefficients": (3.0, -3.2, 1.2), "ns_steps": 3, "eps": 1e-3},
    "lr": {"lr": torch.tensor(3e-3, dtype=torch.float64)},
}
CASES = combinations(OPTIONS)
HALVES = [torch.bfloat16, torch.float16]
Torchs = torch.optim.Muon


class Formula(torch.optim.Optimizer):
    """Jordan et al., 2024, in the dtype of the parameters."""

    def __init__(self, params, **options):
        super().__init__(params, Torchs([torch.zeros(1, 1)]).defaults | options)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.numel():
                    self.update(p, group)

    def update(self, p, group):
        mean = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
        mean.lerp_(p.grad, 1 - group["momentum"])
        x = p.grad.lerp(mean, group["momentum"]) if group["nesterov"] else mean
        x = x / x.norm().clamp(min=group["eps"])
        a, b, c = group["ns_coefficients"]
        for _ in range(group["ns_steps"]):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        rows, columns = p.shape
        alike = group["adjust_lr_fn"] == "match_rms_adamw"
        size = 0.2 * max(rows, columns) ** 0.5 if alike else max(1, rows / columns) ** 0.5
        p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(x, alpha=float(group["lr"]) * size)


def distance(params, exact) -> float:
    pairs = zip(params, exact, strict=True)
    return sum((p.double() - q).square().sum().item() for p, q in pairs) ** 0.5


@pytest.mark.parametrize("name", CASES)
def test_a_hundred_steps_no_farther_from_float64_than_torchs(name):
    """In float64 to its last digits."""
    options = CASES[name]
    mine = parameters(shapes=SHAPES)
    theirs, exact, double = twins(mine), twins(mine, torch.float64), twins(mine, torch.float64)
    runs = [(Muon, mine), (Torchs, theirs), (Formula, exact), (Muon, double)]
    made = [kind(params, **options) for kind, params in runs]
    for optimizer, (_, params) in zip(made, runs, strict=True):
        train(optimizer, params, 100, held=torch.float32)
    assert distance(mine, exact) <= distance(theirs, exact)
    assert_close([p.detach() for p in double], [p.detach() for p in exact], 1e-9)
    for p, q in zip(mine, exact, strict=True):
        if p.numel():
            ours = made[0].state[p]["momentum_buffer"].double()
            assert_close(ours, made[2].state[q]["momentum_buffer"], 1e-6)


def test_state_goes_both_ways_within_a_run():
    first = parameters(shapes=SHAPES)
    second = twins(first)
    whole = Torchs(second)
    train(whole, second, 60)
    optimizer = Muon(first)
    for begin, following in ((0, Torchs), (20, Muon), (40, None)):
        train(optimizer, first, 20, begin)
        if following is not None:
            state = pickle.loads(pickle.dumps(optimizer.state_dict()))
            optimizer = following(first)
            optimizer.load_state_dict(state)
    assert_close(first, second, 2e-3)
    assert_close(state_of(optimizer), state_of(whole), 1e-6)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_masters_are_float32_copies(dtype):
    halves = parameters(dtype, SHAPES)
    theirs, exact = twins(halves, torch.float32), twins(halves, torch.float64)
    mine = Muon(halves, master_weights=True)
    train(mine, halves, 50, held=dtype)
    train(Torchs(theirs), theirs, 50, held=dtype)
    train(Formula(exact), exact, 50, held=dtype)
    masters = [mine.state[p]["master"] for p in halves]
    assert distance(masters, exact) <= 1.1 * distance(theirs, exact)
    assert all(torch.equal(p, m.to(dtype)) for p, m in zip(halves, masters, strict=True))
    assert all(mine.state[p]["momentum_buffer"].dtype == torch.float32 for p in halves)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_half_alone_is_rounded_once(dtype):
    halves = parameters(dtype, SHAPES)
    exact = twins(halves, torch.float64)
    train(Muon(halves, lr=0.01), halves, 1)
    train(Formula(exact, lr=0.01), exact, 1, held=dtype)
    for p, q in zip(halves, exact, strict=True):
        assert_close(p.double(), q.detach(), 5e-4, torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_any_strides(dtype):
    """By columns, with gaps, and a gradient in another order than its parameter."""
    base = torch.randn(6, 4).to(dtype)
    odd = [nn.Parameter(base.t()), nn.Parameter(torch.randn(7, 3).to(dtype))]
    odd.append(nn.Parameter(torch.empty(8, 10).to(dtype)[:, ::2].copy_(torch.randn(8, 5))))
    plain = [nn.Parameter(p.detach().clone(memory_format=torch.contiguous_format)) for p in odd]
    for params in (odd, plain):
        optimizer = Muon(params, lr=0.01, master_weights=True)
        train(optimizer, params, 3)
        if params is odd:
            params[1].grad = params[1].grad.t().contiguous().t()
        optimizer.step()
    near = 1e-9 if dtype == torch.float64 else 0.02
    assert_close([p.detach() for p in odd], [p.detach() for p in plain], near)


def test_what_is_around_a_step():
    """Clipping, means and zeroing, under a scaler that leaves one step out."""
    first = parameters(torch.float64, [(5, 3), (4, 9)])
    second = twins(first)
    mine = Muon(first, max_norm=2.0, zero_grad=True, ema_decay=0.5)
    other = Formula(second)
    means = steps_under_scalers(mine, first, other, second)
    assert_close(first, second, 1e-9)
    assert_close([mine.state[p]["ema"] for p in first], means, 1e-9)
    assert not any(p.grad.any() for p in first)


def test_schedules_hooks_copies_and_one_without_gradient():
    params = parameters(shapes=SHAPES[:3])
    optimizer = Muon([{"params": params[:1], "lr": 0.1}, {"params": params[1:]}])
    seen = []
    optimizer.register_step_post_hook(lambda *_: seen.append(1))
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    before = params[0].detach().clone()
    params[1].grad = torch.ones_like(params[1])
    optimizer.step()
    schedule.step()
    assert torch.equal(params[0], before) and list(optimizer.state) == [params[1]]
    assert optimizer.param_groups[0]["lr"] == 0.05 and seen == [1]
    others, other = copy.deepcopy((params, optimizer))
    train(optimizer, params, 2)
    train(other, others, 2)
    assert type(other) is Muon and all(map(torch.equal, params, others))


def test_fuse_takes_torchs():
    params = parameters(torch.float64, SHAPES[:4])
    exact = twins(params)
    optimizer = Torchs(params)
    assert type(fuse(optimizer)) is Muon
    train(optimizer, params, 10)
    train(Formula(exact), exact, 10)
    assert_close(params, exact, 1e-9)
    with pytest.raises(ValueError, match="Number of steps must be less than 100"):
        fuse(Torchs(params, ns_steps=100))


def test_errors():
    with pytest.raises(ValueError, match="Muon only supports 2D parameters"):
        Muon(parameters(shapes=[(3,)]))
    with pytest.raises(ValueError, match="Coefficients must be a tuple of exactly 3 values"):
        Muon(parameters(shapes=SHAPES), ns_coefficients=(1.0, 2.0))
    optimizer = Muon(parameters(shapes=SHAPES[:1]))
    optimizer.add_param_group({"params": parameters(shapes=[(3,)])})
    with pytest.raises(
        ValueError, match=r"whereas we found a parameter with size: torch.Size\(\[3"
    ):
        optimizer.step()
    p = nn.Parameter(torch.ones(5, 3))
    p.grad = torch.ones(5, 3).to_sparse()
    with pytest.raises(RuntimeError, match="Muon does not support sparse gradients"):
        Muon([p]).step()
