"""ortmodule.optim.AdamW against torch.optim.AdamW: values, state both ways, hooks, errors."""

import copy
import gc
import io
import pickle

import pytest
import torch
from ortmodule.optim import AdamW
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from ortmodule import ORTModule

SHAPES = [(5,), (3, 7), (), (0, 4), (40, 1000), (2, 3, 4, 5)]
OPTIONS = {
    "defaults": {},
    "no decay": {"weight_decay": 0.0, "lr": 1e-2},
    "strong decay": {"weight_decay": 0.3, "lr": 0.05, "eps": 1e-3},
    "amsgrad": {"amsgrad": True, "lr": 1e-2},
    "maximize": {"maximize": True},
    "no momentum": {"betas": (0.0, 0.0), "eps": 1e-4},
    "short memory": {"betas": (0.5, 0.7)},
    "lr tensor": {"lr": torch.tensor(3e-3, dtype=torch.float64)},
}


def parameters(dtype=torch.float32, shapes=SHAPES) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(1)
    made = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes]
    return [nn.Parameter(t.to(dtype)) for t in made]


def twins(first: list[nn.Parameter]) -> list[nn.Parameter]:
    return [nn.Parameter(p.detach().clone(memory_format=torch.preserve_format)) for p in first]


def train(optimizer, params, steps, seed=2):
    """Steps on gradients that are the same for every copy of the parameters, whatever the dtype."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for p in params:
            grad = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            p.grad = torch.empty_like(p, memory_format=torch.preserve_format).copy_(grad)
        optimizer.step()


def assert_same(ours, theirs, dtype=torch.float32):
    near = (
        {"rtol": 2e-5, "atol": 5e-7} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-14}
    )
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, **near)


def state_of(optimizer) -> list[torch.Tensor]:
    states = optimizer.state_dict()["state"].values()
    return [value for state in states for _, value in sorted(state.items())]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_fifty_steps_are_torchs(options, dtype):
    ours = parameters(dtype)
    theirs = twins(ours)
    mine, torchs = AdamW(ours, **options), torch.optim.AdamW(theirs, **options)
    train(mine, ours, 50)
    train(torchs, theirs, 50)
    assert_same(ours, theirs, dtype)
    assert_same(state_of(mine), state_of(torchs), dtype)
    assert [v.dtype for v in state_of(mine)] == [v.dtype for v in state_of(torchs)]


@pytest.mark.parametrize("amsgrad", [False, True])
def test_no_farther_from_double_than_torch(amsgrad):
    ours, wide = parameters(), parameters(torch.float64)
    for p, w in zip(ours, wide, strict=True):
        w.data.copy_(p.data)
    theirs = twins(ours)
    for kind, params in ((AdamW, ours), (torch.optim.AdamW, theirs), (torch.optim.AdamW, wide)):
        train(kind(params, lr=1e-2, amsgrad=amsgrad), params, 50)
    error = [
        max((p - w).abs().max().item() for p, w in zip(x, wide, strict=True) if p.numel())
        for x in (ours, theirs)
    ]
    assert error[0] <= 2 * error[1] + 1e-7, error


def test_threads_change_nothing():
    results = []
    threads = torch.get_num_threads()
    for count in (1, 2):
        torch.set_num_threads(count)
        params = parameters()
        train(AdamW(params), params, 3)
        results.append(params)
    torch.set_num_threads(threads)
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_state_dict_goes_both_ways(amsgrad, fused):
    options = {"lr": 1e-2, "amsgrad": amsgrad}

    def theirs_of(p):
        return torch.optim.AdamW(p, **options, fused=fused)

    reference, there, back = parameters(), parameters(), parameters()
    whole = theirs_of(reference)
    train(whole, reference, 10)
    train(whole, reference, 10, seed=3)
    for first, second, params in (
        (theirs_of, lambda p: AdamW(p, **options), there),
        (lambda p: AdamW(p, **options), theirs_of, back),
    ):
        before = first(params)
        train(before, params, 10)
        after = second(params)
        after.load_state_dict(pickle.loads(pickle.dumps(before.state_dict())))
        train(after, params, 10, seed=3)
        assert_same(params, reference)
        assert_same(state_of(after), state_of(whole))


def test_groups_keep_their_options_and_order():
    ours = parameters()
    theirs = twins(ours)
    groups = [
        [{"params": p[:2], "lr": 1e-2, "weight_decay": 0.0}, {"params": p[2:], "betas": (0.8, 0.9)}]
        for p in (ours, theirs)
    ]
    mine, torchs = AdamW(groups[0], lr=1e-3), torch.optim.AdamW(groups[1], lr=1e-3)
    schedules = [torch.optim.lr_scheduler.ExponentialLR(o, 0.7) for o in (mine, torchs)]
    for seed in range(5):
        train(mine, ours, 1, seed)
        train(torchs, theirs, 1, seed)
        for schedule in schedules:
            schedule.step()
    assert_same(ours, theirs)
    ignored = ("params",)
    for a, b in zip(
        mine.state_dict()["param_groups"], torchs.state_dict()["param_groups"], strict=True
    ):
        assert {k: v for k, v in a.items() if k not in ignored} == {
            k: v for k, v in b.items() if k not in ignored
        }


def layouts() -> list[nn.Parameter]:
    base = torch.randn(6, 4, 5, 5)
    return [
        nn.Parameter(base.to(memory_format=torch.channels_last)),
        nn.Parameter(torch.randn(7, 9).t()),
        nn.Parameter(torch.randn(8, 10)[:, ::2]),
        nn.Parameter(torch.randn(4, 6)),
    ]


def test_parameters_and_gradients_of_any_strides():
    ours = layouts()
    theirs = twins(ours)
    ours[2].data = torch.empty(8, 10)[:, ::2].copy_(ours[2].data)
    mine, torchs = AdamW(ours, amsgrad=True), torch.optim.AdamW(theirs, amsgrad=True)
    kept = ours[2].data
    for _ in range(4):
        for p, q in zip(ours, theirs, strict=True):
            q.grad = torch.randn(p.shape)
            p.grad = q.grad.clone()
        ours[3].grad = theirs[3].grad.t().contiguous().t()  # strides other than the parameter's
        mine.step()
        torchs.step()
    assert_same(ours, theirs)
    assert not ours[2].is_contiguous() and torch.equal(kept, ours[2])
    assert_same(state_of(mine), state_of(torchs))


def test_a_parameter_without_gradient_is_skipped():
    params = parameters()
    optimizer = AdamW(params)
    before = [p.detach().clone() for p in params]
    params[1].grad = torch.ones_like(params[1])
    optimizer.step()
    assert [torch.equal(p, b) for p, b in zip(params, before, strict=True)] == [True, False] + [
        True
    ] * 4
    assert list(optimizer.state_dict()["state"]) == [1]


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate")
def test_a_parameter_listed_twice_in_a_group_takes_two_steps():
    (ours,) = parameters(shapes=[(400, 500)])
    (theirs,) = twins([ours])
    mine, torchs = AdamW([ours, ours]), torch.optim.AdamW([theirs, theirs])
    train(mine, [ours], 5)
    train(torchs, [theirs], 5)
    assert_same([ours], [theirs])
    assert_same(state_of(mine), state_of(torchs))


def test_a_nan_gradient_gives_torchs_nans():
    ours = [nn.Parameter(torch.randn(19))]
    theirs = twins(ours)
    for kind, params in ((AdamW, ours), (torch.optim.AdamW, theirs)):
        optimizer = kind(params, amsgrad=True)
        train(optimizer, params, 2)
        params[0].grad[3], params[0].grad[18] = float("nan"), float("inf")
        optimizer.step()
        train(optimizer, params, 2, seed=5)
    torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-7, equal_nan=True)
    assert ours[0].isnan().any()


def test_closure_runs_with_gradients_on():
    weight = nn.Parameter(torch.tensor([2.0]))
    optimizer = AdamW([weight], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (weight * 3).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 6.0
    assert weight.item() < 2.0


def test_pickle_and_deepcopy_carry_the_state():
    params = parameters()
    optimizer = AdamW(params, lr=1e-2)
    train(optimizer, params, 3)
    file = io.BytesIO()
    torch.save((params, optimizer), file)
    file.seek(0)
    copies = [torch.load(file, weights_only=False), copy.deepcopy((params, optimizer))]
    train(optimizer, params, 3, seed=4)
    for others, other in copies:
        assert type(other) is AdamW
        train(other, others, 3, seed=4)
        assert all(torch.equal(a, b) for a, b in zip(others, params, strict=True))


def test_hooks_fire_as_torchs():
    params = parameters()
    optimizer = AdamW(params)
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    everywhere = register_optimizer_step_post_hook(lambda *_: seen.append("global"))
    train(optimizer, params, 1)
    everywhere.remove()
    assert seen == ["before", "after", "global"]


def test_a_step_between_forward_and_backward_is_noticed():
    """As with torch's own step: the weight that a backward saved has changed."""
    first, second = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3))
    product = (first * second).sum()
    first.grad = torch.ones(3)
    AdamW([first]).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_trains_an_ortmodule():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    eager = copy.deepcopy(net)
    model = ORTModule(net)
    mine = AdamW(model.parameters(), lr=1e-2)
    torchs = torch.optim.AdamW(eager.parameters(), lr=1e-2)
    x, y = torch.randn(32, 8), torch.randint(4, (32,))
    for _ in range(20):
        losses = []
        for module, optimizer in ((model, mine), (eager, torchs)):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert not model.explain().fallbacks


def test_memory_stays_flat():
    params = [nn.Parameter(torch.randn(9, 9).t()[:, ::2])]
    optimizer = AdamW(params)
    train(optimizer, params, 2)
    gc.collect()
    before = len([o for o in gc.get_objects() if isinstance(o, torch.Tensor)])
    train(optimizer, params, 20)
    gc.collect()
    assert len([o for o in gc.get_objects() if isinstance(o, torch.Tensor)]) <= before


@pytest.mark.parametrize("name", ["capturable", "differentiable"])
def test_what_it_cannot_do_is_refused(name):
    message = f"ortmodule.optim.AdamW has no {name} step; use torch.optim.AdamW"
    with pytest.raises(ValueError, match=message):
        AdamW(parameters(), **{name: True})
    loaded = AdamW(parameters())
    loaded.param_groups[0][name] = True  # as a state_dict of torch's may have it
    with pytest.raises(ValueError, match=message):
        loaded.step()


def test_wrong_options_are_torchs_errors():
    with pytest.raises(ValueError, match="Invalid learning rate: -1"):
        AdamW(parameters(), lr=-1.0)
    with pytest.raises(ValueError, match="Invalid beta parameter at index 1"):
        AdamW(parameters(), betas=(0.9, 1.0))


def test_a_sparse_gradient_is_torchs_error():
    table = nn.Embedding(5, 3, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(
        RuntimeError, match="Adam does not support sparse gradients, please consider"
    ):
        AdamW(table.parameters()).step()


def test_dtypes_and_shapes_that_do_not_fit():
    odd = nn.Parameter(torch.ones(3, dtype=torch.complex64))
    odd.grad = torch.ones_like(odd)
    with pytest.raises(RuntimeError, match="param has dtype ComplexFloat, expected float32"):
        AdamW([odd]).step()
    first, second = parameters(shapes=[(3,), (4,)])
    optimizer = AdamW([first, second])
    train(optimizer, [first, second], 1)
    kept = first.detach().clone()
    optimizer.state[second]["exp_avg"] = torch.zeros(7)
    with pytest.raises(RuntimeError, match=r"\[AdamW\] exp_avg has shape \[7\], expected \[4\]"):
        optimizer.step()
    optimizer.state[second]["exp_avg"] = torch.zeros(4, dtype=torch.float64)
    with pytest.raises(RuntimeError, match=r"exp_avg has dtype Double, expected Float \(its param"):
        optimizer.step()
    optimizer.state[second]["exp_avg"] = torch.zeros(4, device="meta")
    with pytest.raises(RuntimeError, match=r"\[AdamW\] exp_avg is on meta, expected cpu"):
        optimizer.step()
    optimizer.state[second]["exp_avg"] = torch.zeros(4)
    optimizer.state[second]["step"] = torch.zeros((), dtype=torch.int64)
    with pytest.raises(RuntimeError, match=r"\[AdamW\] step has dtype Long, expected float32 or"):
        optimizer.step()
    assert torch.equal(first, kept), "all checks come before the first write"
