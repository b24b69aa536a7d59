"""What torch.optim holds around a step, for each: state, groups, hooks, layouts, errors."""

import copy
import io
import pickle
import warnings

import pytest
import torch
from ortmodule.optim import LAMB, SGD, Adam, Lion
from torch import nn

from ortmodule import ORTModule

from .kinds import FULL, KINDS, assert_close, parameters, state_of, train, twins

every_kind = pytest.mark.parametrize("kind", KINDS)
TORCHS = ("Adam", "AdamW", "SGD")


def both(kind: str, **options):
    """Ours and what it must equal, each over parameters of its own."""
    ours, theirs, _ = KINDS[kind]
    first = parameters()
    second = twins(first)
    options = FULL[kind] | options
    return (ours(first, **options), first), (theirs(second, **options), second)


def options_of(optimizer) -> list[dict]:
    groups = optimizer.state_dict()["param_groups"]
    return [{k: v for k, v in group.items() if k != "params"} for group in groups]


@every_kind
@pytest.mark.parametrize("fused", [False, True])
def test_state_dict_goes_both_ways_within_a_run(kind, fused):
    ours, theirs, _ = KINDS[kind]
    options = FULL[kind]
    more = {"fused": fused} if kind in TORCHS else {}
    whole, there, back = parameters(), parameters(), parameters()
    reference = theirs(whole, **options, **more)
    train(reference, whole, 20)
    for first, second, params in (
        (theirs(there, **options, **more), ours(there, **options), there),
        (ours(back, **options), theirs(back, **options, **more), back),
    ):
        train(first, params, 10)
        second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
        train(second, params, 10, 10)
        assert_close(params, whole, 1e-6, 1e-5)
        assert_close(state_of(second), state_of(reference), 1e-6, 1e-5)
        assert options_of(second) == options_of(first)


@every_kind
def test_state_has_torchs_names_and_types(kind):
    (mine, first), (other, second) = both(kind)
    train(mine, first, 2)
    train(other, second, 2)
    for a, b in zip(state_of(mine), state_of(other), strict=True):
        assert {k: (v.dtype, v.shape) for k, v in a.items()} == {
            k: (v.dtype, v.shape) for k, v in b.items()
        }


@every_kind
def test_groups_and_schedules(kind):
    ours, theirs, _ = KINDS[kind]
    first = parameters()
    second = twins(first)
    runs = []
    for kind_of, params in ((ours, first), (theirs, second)):
        groups = [{"params": params[:2], "lr": 1e-2, "weight_decay": 0.0}, {"params": params[2:]}]
        optimizer = kind_of(groups, **FULL[kind])
        schedules = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)]
        schedules.append(torch.optim.lr_scheduler.LinearLR(optimizer, 0.5, total_iters=3))
        for step in range(5):
            train(optimizer, params, 1, step)
            for schedule in schedules:
                schedule.step()
        runs.append(optimizer)
    assert_close(first, second, 1e-6)
    rates = [[group["lr"] for group in optimizer.param_groups] for optimizer in runs]
    assert rates[0] == rates[1] and rates[0][0] < 1e-2


@every_kind
def test_a_group_added_within_a_run(kind):
    (mine, first), (other, second) = both(kind)
    for optimizer, params in ((mine, first), (other, second)):
        train(optimizer, params, 2)
        optimizer.add_param_group({"params": [more := nn.Parameter(torch.ones(9))], "lr": 0.1})
        params.append(more)
        train(optimizer, params, 2, 2)
    assert_close(first, second, 1e-6)


@every_kind
def test_hooks_and_closure(kind):
    (mine, params), _ = both(kind)
    seen = []
    mine.register_step_pre_hook(lambda *_: seen.append("before"))
    mine.register_step_post_hook(lambda *_: seen.append("after"))
    before = [p.detach().clone() for p in params]

    def closure():
        seen.append("closure")
        mine.zero_grad()
        loss = sum((p * 3).sum() for p in params)
        loss.backward()
        return loss

    loss = mine.step(closure)
    assert seen == ["before", "closure", "after"]
    assert loss.requires_grad
    assert all(not torch.equal(p, b) for p, b in zip(params, before, strict=True) if p.numel())


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_pickle_and_deepcopy_go_on_alike(kind, dtype):
    ours = KINDS[kind][0]
    params = parameters(dtype)
    optimizer = ours(params, master_weights=True, **FULL[kind])
    train(optimizer, params, 3)
    file = io.BytesIO()
    torch.save((params, optimizer), file)
    file.seek(0)
    copies = [torch.load(file, weights_only=False), copy.deepcopy((params, optimizer))]
    train(optimizer, params, 3, 3)
    for others, other in copies:
        assert type(other) is ours and other.master_weights
        train(other, others, 3, 3)
        assert all(torch.equal(a, b) for a, b in zip(others, params, strict=True))
        torch.testing.assert_close(state_of(other), state_of(optimizer), rtol=0, atol=0)


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_any_strides(kind, dtype):
    """Channels last, transposed, with gaps, and a gradient in another order than its parameter."""
    base = torch.randn(6, 4, 5, 5).to(dtype)
    odd = [nn.Parameter(base.to(memory_format=torch.channels_last)), nn.Parameter(base[0, 0].t())]
    odd.append(nn.Parameter(torch.empty(8, 10).to(dtype)[:, ::2].copy_(torch.randn(8, 5))))
    odd.append(nn.Parameter(torch.randn(7, 3).to(dtype)))
    plain = [nn.Parameter(p.detach().clone(memory_format=torch.contiguous_format)) for p in odd]
    kept = odd[2].data
    runs = [(KINDS[kind][0](p, master_weights=True, **FULL[kind]), p) for p in (odd, plain)]
    for step in range(4):
        for optimizer, params in runs:
            train(optimizer, params, 1, step)
        odd[3].grad = plain[3].grad.t().contiguous().t()
        for optimizer, _ in runs:
            optimizer.step()
    exact = {"rtol": 1e-6, "atol": 1e-7} if kind == "LAMB" else {"rtol": 0, "atol": 0}
    torch.testing.assert_close(odd, plain, **exact)
    assert odd[2].stride() == (10, 2) and torch.equal(kept, odd[2])


@every_kind
def test_one_without_gradient_is_skipped(kind):
    (mine, params), _ = both(kind)
    before = [p.detach().clone() for p in params]
    params[1].grad = torch.ones_like(params[1])
    mine.step()
    moved = [not torch.equal(p, b) for p, b in zip(params, before, strict=True)]
    assert moved == [False, True, False, False, False, False]
    assert list(mine.state_dict()["state"]) == [1]


@every_kind
@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate")
def test_one_twice_in_a_group_takes_two_steps(kind):
    ours, theirs, _ = KINDS[kind]
    (first,) = parameters(shapes=[(40, 50)])
    (second,) = twins([first])
    options = FULL[kind] | {"amsgrad": False} if "Adam" in kind else {"weight_decay": 0.1}
    mine, other = ours([first, first], **options), theirs([second, second], **options)
    train(mine, [first], 5)
    train(other, [second], 5)
    assert_close(first, second, 2e-6)


@every_kind
def test_a_step_between_forward_and_backward_is_noticed(kind):
    first, second = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3))
    product = (first * second).sum()
    first.grad = torch.ones(3)
    KINDS[kind][0]([first]).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


@every_kind
def test_under_a_grad_scaler(kind):
    """One of the steps overflows and is left out."""
    runs = both(kind)
    for optimizer, params in runs:
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
        for step in range(5):
            optimizer.zero_grad()
            loss = sum((p * p).sum() for p in params)
            scaler.scale(loss * float("inf") if step == 2 else loss).backward()
            scaler.step(optimizer)
            scaler.update()
        assert scaler.get_scale() == 2048.0
    assert_close(runs[0][1], runs[1][1], 1e-6)
    assert all(p.isfinite().all() for p in runs[0][1])


@every_kind
def test_trains_an_ortmodule(kind):
    ours, theirs, _ = KINDS[kind]
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    eager = copy.deepcopy(net)
    model = ORTModule(net)
    mine, other = ours(model.parameters(), lr=1e-2), theirs(eager.parameters(), lr=1e-2)
    x, y = torch.randn(32, 8), torch.randint(4, (32,))
    losses = {}
    for _ in range(8):
        for module, optimizer in ((model, mine), (eager, other)):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(x), y)
            loss.backward()
            optimizer.step()
            losses.setdefault(optimizer, []).append(loss.item())
    assert losses[mine] == pytest.approx(losses[other], rel=1e-3)
    assert losses[mine][-1] < losses[mine][0]
    assert not model.explain().fallbacks


@pytest.mark.parametrize("kind", TORCHS)
@pytest.mark.parametrize("option", ["foreach", "fused"])
def test_torchs_choices_of_kernel_are_accepted(kind, option):
    params = parameters()
    optimizer = KINDS[kind][0](params, **{option: True})
    before = params[0].detach().clone()
    train(optimizer, params, 1)
    assert not torch.equal(params[0], before)
    assert "_step_supports_amp_scaling" not in vars(optimizer), "of torch's fused kernel alone"


@pytest.mark.parametrize(
    "kind, option", [("Adam", "capturable"), ("Adam", "differentiable"), ("SGD", "differentiable")]
)
def test_what_no_kernel_has_is_refused(kind, option):
    ours = KINDS[kind][0]
    message = f"ortmodule.optim.{kind} has no {option} step; use torch.optim.{kind}"
    with pytest.raises(ValueError, match=message):
        ours(parameters(), **{option: True})
    optimizer = ours(parameters())
    optimizer.param_groups[0][option] = True
    with pytest.raises(ValueError, match=message):
        optimizer.step()


@every_kind
def test_a_sparse_gradient_is_refused(kind):
    table = nn.Embedding(5, 3, sparse=True)
    table(torch.tensor([1])).sum().backward()
    before = table.weight.detach().clone()
    with pytest.raises(RuntimeError, match="sparse"):
        KINDS[kind][0](table.parameters()).step()
    assert torch.equal(table.weight, before)


@every_kind
def test_a_state_that_does_not_fit_is_found_before_the_first_write(kind):
    first, second = params = parameters(shapes=[(3,), (4,)])
    optimizer = KINDS[kind][0](params, **FULL[kind])
    train(optimizer, params, 1)
    name = "momentum_buffer" if kind == "SGD" else "exp_avg"
    kept = copy.deepcopy([p.detach() for p in params]), copy.deepcopy(optimizer.state[first])
    wrong = {
        rf"\[{kind}\] {name} has shape \[7\], expected \[4\]": torch.zeros(7),
        f"{name} has dtype Double, expected Float": torch.zeros(4).double(),
        f"{name} is on meta, expected cpu": torch.zeros(4, device="meta"),
    }
    for message, value in wrong.items():
        optimizer.state[second][name] = value
        with pytest.raises(RuntimeError, match=message):
            optimizer.step()
    torch.testing.assert_close(params, [nn.Parameter(p) for p in kept[0]], rtol=0, atol=0)
    torch.testing.assert_close(optimizer.state[first], kept[1], rtol=0, atol=0)


@every_kind
@pytest.mark.parametrize("what", ["grad", "state", "param"])
def test_what_shares_memory_within_is_found_before_the_first_write(kind, what):
    """As an expanded gradient, which a step reads but cannot zero."""
    first, second = params = parameters(shapes=[(3,), (4, 3)])
    optimizer = KINDS[kind][0](params, **FULL[kind], zero_grad=what == "grad")
    train(optimizer, params, 1)
    kept = copy.deepcopy([p.detach() for p in params]), copy.deepcopy(optimizer.state[first])
    wide = torch.zeros(1, 3).expand(4, 3)
    first.grad, second.grad = torch.ones(3), wide if what == "grad" else torch.ones(4, 3)
    if what == "state":
        optimizer.state[second]["momentum_buffer" if kind == "SGD" else "exp_avg"] = wide
    if what == "param":
        second.data = kept[0][1] = torch.ones(1, 3).expand(4, 3)
    with pytest.raises(RuntimeError, match=r"has elements that share memory, which a step cannot"):
        optimizer.step()
    torch.testing.assert_close(params, [nn.Parameter(p) for p in kept[0]], rtol=0, atol=0)
    torch.testing.assert_close(optimizer.state[first], kept[1], rtol=0, atol=0)


@every_kind
@pytest.mark.parametrize("around", [{}, {"max_norm": 1.0}, {"zero_grad": True}], ids=str)
def test_what_has_no_memory_of_its_own_is_refused(kind, around):
    """A kernel would read where nothing is."""
    from torch._subclasses import FakeTensorMode
    from torch.testing._internal.two_tensor import TwoTensor

    with FakeTensorMode():
        fake = torch.ones(3)
    for grad in (TwoTensor(torch.ones(3), torch.ones(3)), torch._efficientzerotensor(3), fake):
        param = nn.Parameter(torch.ones(3))
        param.grad = grad
        with pytest.raises(RuntimeError, match=rf"\[{kind}\] grad has no dense memory of its own"):
            KINDS[kind][0]([param], **FULL[kind], **around).step()
    param = nn.Parameter(TwoTensor(torch.ones(3), torch.ones(3)))
    param.grad = TwoTensor(torch.ones(3), torch.ones(3))
    with pytest.raises(RuntimeError, match="has no dense memory of its own, as a DTensor"):
        KINDS[kind][0]([param], **FULL[kind], **around).step()


@every_kind
@pytest.mark.parametrize("around", [{}, {"max_norm": 1.0}], ids=str)
def test_a_negative_view_is_read_as_its_numbers(kind, around):
    """In memory its numbers have the other sign."""
    grad = torch._neg_view(torch.randn(9))
    ours, theirs = parameters(shapes=[(9,)]), parameters(shapes=[(9,)])
    for params, given in ((ours, grad), (theirs, grad.resolve_neg())):
        params[0].grad = given
        KINDS[kind][0](params, **FULL[kind], **around).step()
    assert torch.equal(ours[0], theirs[0])


@every_kind
def test_a_first_step_that_fails_leaves_no_state(kind):
    odd = nn.Parameter(torch.ones(3, dtype=torch.complex64))
    odd.grad = torch.ones_like(odd)
    plain = nn.Parameter(torch.ones(3))
    plain.grad = torch.ones(3)
    optimizer = KINDS[kind][0]([plain, odd], **FULL[kind])
    with pytest.raises(RuntimeError, match=rf"\[{kind}\] param has dtype ComplexFloat, expected"):
        optimizer.step()
    assert not optimizer.state_dict()["state"]
    assert torch.equal(plain, torch.ones(3))


@pytest.mark.parametrize(
    "kind, options, message",
    [
        (Lion, {"lr": -1.0}, "Invalid learning rate: -1"),
        (Lion, {"lr": torch.ones(2)}, "Tensor lr must be 1-element"),
        (Lion, {"betas": (0.9, 1.0)}, "Invalid beta parameter at index 1: 1.0"),
        (LAMB, {"eps": -1.0}, "Invalid epsilon value: -1"),
        (LAMB, {"weight_decay": -0.1}, "Invalid weight_decay value: -0.1"),
        (SGD, {"momentum": -0.1}, "Invalid momentum value: -0.1"),
        (SGD, {"nesterov": True}, "Nesterov momentum requires a momentum"),
        (Adam, {"betas": (-0.1, 0.9)}, "Invalid beta parameter at index 0"),
    ],
)
def test_options_out_of_range_are_torchs_errors(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(parameters(), **options)


@every_kind
def test_nothing_warns(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (mine, params), _ = both(kind)
        schedule = torch.optim.lr_scheduler.StepLR(mine, 1)
        train(mine, params, 1)
        schedule.step()
    assert mine.param_groups[0]["lr"] < FULL[kind].get("lr", 1e-3)


@every_kind
def test_what_was_replaced_between_steps_is_seen(kind):
    """A gradient, a state's tensor, a parameter's states, all states, a parameter: no step may
    keep those of the step before."""
    (mine, first), (other, second) = both(kind)
    for optimizer, params in ((mine, first), (other, second)):
        train(optimizer, params, 2)
        held = optimizer.state[params[0]]
        name = next(k for k in held if k != "step")
        held[name] = held[name] * 0.5
        optimizer.state[params[1]] = {k: v.clone() for k, v in optimizer.state[params[1]].items()}
        del optimizer.state[params[4]]
        train(optimizer, params, 1, 2)
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        params[5].grad = None
        optimizer.step()
        more = nn.Parameter(torch.ones(9))
        optimizer.param_groups[0]["params"][2] = params[2] = more
        train(optimizer, params, 2, 3)
    assert_close(first, second, 2e-6)
    assert mine.state[first[2]].keys() == other.state[second[2]].keys()


@every_kind
def test_states_that_are_no_tensors_are_refused(kind):
    (mine, params), _ = both(kind)
    train(mine, params, 1)
    name = next(k for k in mine.state[params[1]] if k != "step")
    mine.state[params[1]][name] = 0.5
    with pytest.raises(RuntimeError, match=rf"\[{kind}\] {name} is a float, expected a tensor"):
        mine.step()
    mine.state[params[1]] = []
    with pytest.raises(RuntimeError, match=rf"\[{kind}\] a parameter's state is no dict"):
        mine.step()


@every_kind
def test_parameters_whose_steps_differ_in_one_group(kind):
    """Factors are computed once for equal steps alone."""
    (mine, first), (other, second) = both(kind)
    for optimizer, params in ((mine, first), (other, second)):
        train(optimizer, params[::2], 3)
        train(optimizer, params, 2, 3)
    assert_close(first, second, 2e-6)


@pytest.mark.parametrize("kind", [SGD, Adam])
def test_parameters_over_one_memory_are_stepped_in_order(kind):
    """As torch's, which step one after the other."""
    found = []
    for module in (getattr(torch.optim, kind.__name__), kind):
        base = torch.ones(1 << 20)
        params = [torch.nn.Parameter(base), torch.nn.Parameter(base.view(1024, 1024).t())]
        optimizer = module(params, lr=0.25)
        for _ in range(3):
            for k, p in enumerate(params):
                p.grad = torch.full_like(p, 1.0 + k)
            optimizer.step()
        found.append(base)
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-6)
