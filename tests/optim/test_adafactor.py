"""ortmodule.optim.Adafactor against torch's, from which an empty matrix is left out: torch's step
divides by its size."""

import copy
import pickle

import pytest
import torch
from ortmodule.optim import Adafactor, fuse
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

SHAPES = [(5,), (3, 7), (), (33,), (2, 3, 4, 5), (40, 333), (1, 9), (9, 1), (300, 401)]
EPS = {"eps": (torch.finfo(torch.float32).eps, 1e-3)}
OPTIONS = {
    "lr": {"lr": torch.tensor(3e-3, dtype=torch.float64)},
    "beta2_decay": {"beta2_decay": -0.5},
    "eps": {"eps": (1e-3, 1e-2)},
    "d": {"d": 1.5},
    "weight_decay": {"weight_decay": 0.1},
    "maximize": {"maximize": True},
}
CASES = combinations(OPTIONS) | {
    "all": {"lr": 5e-3, "beta2_decay": -0.6, "d": 2.0, "weight_decay": 0.1, "maximize": True},
}
HALVES = [torch.bfloat16, torch.float16]
Torchs = torch.optim.Adafactor
halves = pytest.mark.parametrize("dtype", HALVES, ids=str)


def states(optimizer) -> list[dict]:
    state = optimizer.state_dict()["state"]
    return [{k: v.double() for k, v in state[key].items()} for key in sorted(state)]


def wide(params) -> list:
    return [p.detach().double() for p in params]


@pytest.mark.parametrize("name", CASES)
def test_a_hundred_steps(name):
    """float64 to its last digits; float32 within 1e-6 of what float64 makes of the same numbers."""
    options = EPS | CASES[name]
    narrow = parameters(shapes=SHAPES)
    exact, double = twins(narrow, torch.float64), twins(narrow, torch.float64)
    runs = [(Adafactor, narrow), (Adafactor, double), (Torchs, exact)]
    made = [kind(params, **options) for kind, params in runs]
    for optimizer, (_, params) in zip(made, runs, strict=True):
        train(optimizer, params, 100, held=torch.float32)
    assert_close(wide(double), wide(exact), 1e-12)
    assert_close(states(made[1]), states(made[2]), 1e-12)
    assert_close(wide(narrow), wide(exact), 1e-6)
    assert_close(states(made[0]), states(made[2]), 1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("foreach", [False, True])
def test_state_goes_both_ways_within_a_run(dtype, foreach):
    first = parameters(dtype, SHAPES)
    second = twins(first)
    whole = Torchs(second, foreach=foreach)
    train(whole, second, 60)
    optimizer = Adafactor(first)
    for begin, following in ((0, Torchs), (20, Adafactor), (40, None)):
        train(optimizer, first, 20, begin)
        if following is not None:
            state = pickle.loads(pickle.dumps(optimizer.state_dict()))
            optimizer = following(first)
            optimizer.load_state_dict(state)
    assert_close(wide(first), wide(second), 2e-6)
    assert_close(states(optimizer), states(whole), 1e-6)
    kinds = [{k: (v.dtype, v.shape) for k, v in s.items()} for s in states(optimizer)]
    assert kinds == [{k: (v.dtype, v.shape) for k, v in s.items()} for s in states(whole)]


@halves
def test_masters_are_float32_copies(dtype):
    small = parameters(dtype, SHAPES)
    exact = twins(small, torch.float64)
    mine = Adafactor(small, master_weights=True, weight_decay=0.1)
    other = Torchs(exact, weight_decay=0.1, **EPS)
    train(mine, small, 50, held=dtype)
    train(other, exact, 50, held=dtype)
    for p, q in zip(small, exact, strict=True):
        master = mine.state[p]["master"]
        assert_close(master.double(), q.detach(), 2e-6)
        assert torch.equal(p, master.to(dtype))
        for name, value in other.state[q].items():
            assert mine.state[p][name].dtype == torch.float32
            assert_close(mine.state[p][name].double(), value.double(), 2e-6)


@halves
def test_alone_a_half_is_stepped_wide_and_rounded_once(dtype):
    small = parameters(dtype, SHAPES)
    eps = torch.finfo(dtype).eps
    mine = Adafactor(small)
    for step in range(6):
        exact = twins(small, torch.float64)
        other = Torchs(exact, eps=(eps, 1e-3))
        for p, q in zip(small, exact, strict=True):
            if mine.state[p]:
                other.state[q] = {
                    k: v.clone() if k == "step" else v.double() for k, v in mine.state[p].items()
                }
        train(mine, small, 1, step, held=dtype)
        train(other, exact, 1, step, held=dtype)
        for p, q in zip(small, exact, strict=True):
            assert_close(p.double(), q.detach(), 1e-6, eps)
            for name, value in other.state[q].items():
                assert_close(mine.state[p][name].double(), value.double(), 1e-6, eps)


def test_threads_change_nothing():
    results, threads = [], torch.get_num_threads()
    for count in (1, 2):
        torch.set_num_threads(count)
        params = parameters(shapes=[(400, 1000), (7,), (3, 123, 456), (200_000,)])
        train(Adafactor(params), params, 3)
        results.append(params)
    torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_any_strides(dtype):
    base = torch.randn(6, 4, 5, 5).to(dtype)
    odd = [nn.Parameter(base.to(memory_format=torch.channels_last)), nn.Parameter(base[0, 0].t())]
    odd.append(nn.Parameter(torch.empty(8, 10).to(dtype)[:, ::2].copy_(torch.randn(8, 5))))
    plain = [nn.Parameter(p.detach().clone(memory_format=torch.contiguous_format)) for p in odd]
    for params in (odd, plain):
        train(Adafactor(params, master_weights=True, zero_grad=True), params, 4)
        assert not any(p.grad.any() for p in params)
    assert all(torch.equal(a, b) for a, b in zip(odd, plain, strict=True))


def test_what_is_around_a_step():
    """Clipping, means and zeroing, under a scaler that leaves one step out."""
    first = parameters(shapes=SHAPES)
    second = twins(first)
    mine = Adafactor(first, max_norm=2.0, zero_grad=True, ema_decay=0.5)
    other = Torchs(second)
    means = steps_under_scalers(mine, first, other, second)
    assert_close(wide(first), wide(second), 2e-6)
    assert_close([mine.state[p]["ema"].double() for p in first], means, 2e-6)
    assert not any(p.grad.any() for p in first)


def test_schedules_hooks_copies_and_one_without_gradient():
    params = parameters(shapes=SHAPES)
    optimizer = Adafactor([{"params": params[:2], "lr": 0.1}, {"params": params[2:]}])
    schedule, seen = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5), []
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    train(optimizer, params[1:], 3)
    schedule.step()
    assert seen == ["after"] * 3 and optimizer.param_groups[0]["lr"] == 0.05
    others, other = copy.deepcopy((params, optimizer))
    assert params[0] not in optimizer.state and type(other) is Adafactor
    train(optimizer, params, 3, 3)
    train(other, others, 3, 3)
    assert all(torch.equal(a, b) for a, b in zip(params, others, strict=True))


def test_fuse_takes_torchs():
    first = parameters(shapes=SHAPES)
    second = twins(first)
    mine, other = Torchs(first), Torchs(second)
    for step in range(10):
        if step == 5:
            assert type(fuse(mine)) is Adafactor
        train(mine, first, 1, step)
        train(other, second, 1, step)
    assert_close(wide(first), wide(second), 2e-6)
    assert_close(states(mine), states(other), 1e-6)


def test_a_nan_spreads_as_in_torchs():
    mine, other = parameters(shapes=[(4, 19)]), parameters(shapes=[(4, 19)])
    for kind, params in ((Adafactor, mine), (Torchs, other)):
        optimizer = kind(params)
        train(optimizer, params, 2)
        params[0].grad[1, 3] = float("nan")
        optimizer.step()
    assert torch.equal(mine[0].isnan(), other[0].isnan()) and mine[0].isnan().any()


def test_an_empty_matrix_is_counted_and_left():
    p = nn.Parameter(torch.ones(0, 4))
    q = nn.Parameter(torch.ones(3, 0))
    optimizer = Adafactor([p, q])
    train(optimizer, [p, q], 2)
    assert optimizer.state[p]["step"] == optimizer.state[q]["step"] == 2


def test_errors():
    with pytest.raises(ValueError, match="Clipping threshold d should be >= 1 but is: 0.5"):
        Adafactor(parameters(), d=0.5)
    table = nn.Embedding(5, 3, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="Adafactor does not support sparse gradients"):
        Adafactor(table.parameters()).step()
    params = parameters(shapes=[(4,), (4, 5)])
    optimizer = Adafactor(params)
    train(optimizer, params, 1)
    kept = wide(params)
    wrong = {
        r"\[Adafactor\] row_var has shape \[4, 5\], expected \[4, 1\]": torch.zeros(4, 5),
        "row_var has dtype Double, expected Float": torch.zeros(4, 1).double(),
    }
    for message, value in wrong.items():
        optimizer.state[params[1]]["row_var"] = value
        with pytest.raises(RuntimeError, match=message):
            optimizer.step()
    assert_close(wide(params), kept, 0.0)
    assert state_of(optimizer)
