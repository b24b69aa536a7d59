"""Each optimizer's values against torch's own or its paper's formula (kinds.py)."""

import pytest
import torch
from ortmodule.optim import LAMB, SGD, Lion
from torch import nn

from .kinds import (
    FULL,
    KINDS,
    assert_close,
    combinations,
    parameters,
    state_of,
    train,
    twins,
)

ROWS = [(kind, name) for kind in KINDS for name in combinations(KINDS[kind][2])]
HALVES = [torch.bfloat16, torch.float16]
ULP = {torch.bfloat16: 2**-7, torch.float16: 2**-10}
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.parametrize("kind, name", ROWS, ids=[f"{k} {n}" for k, n in ROWS])
def test_a_hundred_steps_by_each_option_and_pair(kind, name):
    """float64 to its last digits; float32 within 1e-6 of what float64 makes of the same numbers.

    Lion's steps are of one size, so that float32 rounds them the same way each time: its reference
    is in float32 too.
    """
    ours, theirs, _ = KINDS[kind]
    options = combinations(KINDS[kind][2])[name]
    narrow = parameters()
    exact, wide = twins(narrow, torch.float64), twins(narrow, torch.float64)
    rounded = twins(narrow) if kind == "Lion" else exact
    runs = [(ours, wide), (theirs, exact), (ours, narrow)]
    runs += [(theirs, rounded)] if rounded is not exact else []
    made = [kind_of(params, **options) for kind_of, params in runs]
    for optimizer, (_, params) in zip(made, runs, strict=True):
        train(optimizer, params, 100, held=torch.float32)
    assert_close(wide, exact, 1e-11)
    assert_close(state_of(made[0]), state_of(made[1]), 1e-11)
    assert_close([p.double() for p in narrow], [p.double() for p in rounded], 1e-6)


@every_kind
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_masters_are_float32_copies(kind, dtype):
    """Fifty steps on copies in float32; each parameter is its master, rounded."""
    ours, theirs, _ = KINDS[kind]
    halves = parameters(dtype)
    wide = twins(halves, torch.float32)
    mine = ours(halves, master_weights=True, **FULL[kind])
    other = theirs(wide, **FULL[kind])
    train(mine, halves, 50, held=dtype)
    train(other, wide, 50, held=dtype)
    for p, exact in zip(halves, wide, strict=True):
        master = mine.state[p]["master"]
        assert_close(master, exact.detach(), 2e-6)
        assert torch.equal(p, master.to(dtype))
        for name, value in other.state[exact].items():
            assert_close(mine.state[p][name], value, 2e-6)


@every_kind
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_alone_a_half_is_stepped_wide_and_rounded_once(kind, dtype):
    """A step of the formula in float64 from the same halves, within the last digit."""
    ours, theirs, _ = KINDS[kind]
    halves = parameters(dtype)
    mine = ours(halves, **FULL[kind])
    for step in range(8):
        wide = twins(halves, torch.float64)
        other = theirs(wide, **FULL[kind])
        for p, q in zip(halves, wide, strict=True):
            if mine.state[p]:
                other.state[q] = {
                    k: v.clone() if k == "step" else v.double() for k, v in mine.state[p].items()
                }
        train(mine, halves, 1, step, held=dtype)
        train(other, wide, 1, step, held=dtype)
        for p, q in zip(halves, wide, strict=True):
            assert_close(p.double(), q.detach(), 1e-6, ULP[dtype])
            for name, value in other.state[q].items():
                assert mine.state[p][name].dtype == (torch.float32 if name == "step" else dtype)
                assert_close(mine.state[p][name].double(), value.double(), 1e-6, ULP[dtype])


@every_kind
def test_threads_change_nothing(kind):
    ours, results, threads = KINDS[kind][0], [], torch.get_num_threads()
    for count in (1, 2):
        torch.set_num_threads(count)
        params = parameters(shapes=[(40, 1000), (7,), (123, 456)])
        train(ours(params, **FULL[kind]), params, 3)
        results.append(params)
    torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@every_kind
def test_groups_of_mixed_dtypes_in_one_call(kind):
    ours = KINDS[kind][0]
    dtypes = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
    mixed = [parameters(dtype, [(11,)])[0] for dtype in dtypes]
    alone = twins(mixed)
    train(ours(mixed, **FULL[kind]), mixed, 1)
    for p, q in zip(mixed, alone, strict=True):
        q.grad = p.grad
        ours([q], **FULL[kind]).step()
        assert torch.equal(p, q)


@every_kind
def test_a_nan_gradient_gives_nans_where_the_formula_does(kind):
    """Lion's too, where torch.sign of a NaN is 0."""
    ours, theirs, _ = KINDS[kind]
    mine, other = parameters(shapes=[(19,)]), parameters(shapes=[(19,)])
    for kind_of, params in ((ours, mine), (theirs, other)):
        optimizer = kind_of(params, **FULL[kind])
        train(optimizer, params, 2)
        params[0].grad[3], params[0].grad[18] = float("nan"), float("inf")
        optimizer.step()
    assert mine[0].isnan().any()
    if kind == "Lion":
        other[0].data[3] = float("nan")
    torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_the_first_momentum_is_the_gradient_whatever_the_dampening():
    (p,) = parameters(shapes=[(3,)])
    optimizer = SGD([p], momentum=0.9, dampening=1.0)
    p.grad = torch.tensor([1.0, 2.0, 3.0])
    optimizer.step()
    assert torch.equal(optimizer.state[p]["momentum_buffer"], p.grad)
    optimizer.step()
    assert_close(optimizer.state[p]["momentum_buffer"], 0.9 * p.grad, 1e-7)


def test_sgd_without_momentum_has_no_state():
    params = parameters()
    optimizer = SGD(params)
    train(optimizer, params, 1)
    assert state_of(optimizer) == []


def test_lion_stays_where_its_momentum_is_zero():
    p = nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
    p.grad = torch.tensor([0.0, -0.0, 3.0])
    Lion([p], lr=0.25).step()
    assert p.tolist() == [1.0, -2.0, 0.25]


def test_lamb_moves_what_starts_at_zero():
    p = nn.Parameter(torch.zeros(5))
    p.grad = torch.ones(5)
    LAMB([p], lr=0.1, weight_decay=0.0).step()
    assert_close(p.detach(), torch.full((5,), -0.1), 1e-6)


def test_lambs_norms_are_of_the_whole_parameter():
    """Over pieces, blocks and a tail: the step's length is lr times the parameter's."""
    (p,) = parameters(shapes=[(100_003,)])
    before = p.detach().double()
    p.grad = torch.randn(100_003)
    LAMB([p], lr=0.1).step()
    moved = (p.detach().double() - before).norm() / before.norm()
    assert moved.item() == pytest.approx(0.1, rel=1e-5)


def test_a_momentum_that_is_none_is_a_first_step():
    """As old state_dicts of torch's have it."""
    (p,) = parameters(shapes=[(3,)])
    optimizer = SGD([p], momentum=0.9, dampening=1.0)
    optimizer.state[p]["momentum_buffer"] = None
    p.grad = torch.ones(3)
    optimizer.step()
    assert torch.equal(optimizer.state[p]["momentum_buffer"], torch.ones(3))


def test_a_first_master_does_not_make_a_first_momentum():
    """A momentum that was loaded goes on, dampened, where the master is made in this step."""
    (half,) = parameters(torch.bfloat16, [(5,)])
    theirs = torch.optim.SGD([half], momentum=0.5, dampening=0.5)
    train(theirs, [half], 1)
    ours = SGD([half], momentum=0.5, dampening=0.5, master_weights=True)
    ours.load_state_dict(theirs.state_dict())
    expected = (theirs.state[half]["momentum_buffer"].float() + half.grad.float()) / 2
    ours.step()
    assert_close(ours.state[half]["momentum_buffer"], expected, 1e-7)


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "SGD"])
def test_without_decay_an_infinite_parameter_stays(kind):
    ours, theirs, _ = KINDS[kind]
    mine, other = parameters(shapes=[(19,)]), parameters(shapes=[(19,)])
    for kind_of, params in ((ours, mine), (theirs, other)):
        params[0].data[4] = float("inf")
        train(kind_of(params, weight_decay=0.0), params, 2)
    assert mine[0][4].item() == float("inf")
    assert_close(mine, other, 1e-6)
