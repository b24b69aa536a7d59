"""What a step of ours does around its rule: clipping, unscaling, zeroing, means of parameters."""

import copy
import math
import pickle
import warnings

import ortmodule.optim
import pytest
import torch
from ortmodule.optim import SGD, AdamW, GradScaler, Lion, fuse
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from .kinds import FULL, KINDS, assert_close, parameters, state_of, train, twins

HALVES = [torch.bfloat16, torch.float16]
SCALERS = {"torch's": torch.amp.GradScaler, "ours": GradScaler}
every_kind = pytest.mark.parametrize("kind", KINDS)
every_scaler = pytest.mark.parametrize("scaler", SCALERS)


def set_grads(params, step: int, size: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(step)
    for p in params:
        grad = torch.randn(p.shape, generator=generator, dtype=torch.float64) * size
        p.grad = grad.to(p.dtype)


@every_kind
@pytest.mark.parametrize("max_norm", [0.5, 8.0, 1e9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_hundred_clipped_steps(kind, max_norm, dtype):
    """clip_grad_norm_ and the optimizer it must equal in float64; 8.0 clips some of the steps.

    Lion's reference is in the same dtype, as in test_rules.
    """
    ours, theirs, _ = KINDS[kind]
    options = FULL[kind] | {"maximize": True}
    first = parameters(dtype)
    second = twins(first, dtype if kind == "Lion" else torch.float64)
    mine, other = ours(first, max_norm=max_norm, **options), theirs(second, **options)
    assert mine.grad_norm is None
    for step in range(100):
        set_grads(first, step, 0.7)
        kept = [p.grad.clone() for p in first]
        for q, grad in zip(second, kept, strict=True):
            q.grad = grad.to(q.dtype, copy=True)
        mine.step()
        norm = clip_grad_norm_(second, max_norm).item()
        other.step()
        assert mine.grad_norm == pytest.approx(norm, rel=1e-6)
        assert all(torch.equal(p.grad, g) for p, g in zip(first, kept, strict=True))
    near = 1e-6 if dtype == torch.float32 else 1e-11
    assert_close([p.double() for p in first], [q.double() for q in second], near)


@every_kind
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_halves_with_masters_are_clipped_in_float32(kind, dtype):
    ours, theirs, _ = KINDS[kind]
    halves = parameters(dtype)
    wide = twins(halves, torch.float32 if kind == "Lion" else torch.float64)
    mine = ours(halves, master_weights=True, max_norm=0.5, ema_decay=0.8, **FULL[kind])
    other = theirs(wide, **FULL[kind])
    for step in range(100):
        set_grads(halves, step)
        for p, q in zip(halves, wide, strict=True):
            q.grad = p.grad.to(q.dtype)
        mine.step()
        clip_grad_norm_(wide, 0.5)
        other.step()
    for p, q in zip(halves, wide, strict=True):
        assert_close(mine.state[p]["master"].double(), q.double(), 2e-6)
        assert mine.state[p]["ema"].dtype == torch.float32


@every_kind
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_half_alone_is_clipped_and_rounded_once(kind, dtype):
    ours, theirs, _ = KINDS[kind]
    halves = parameters(dtype)
    wide = twins(halves, torch.float64)
    mine, other = ours(halves, max_norm=0.5, **FULL[kind]), theirs(wide, **FULL[kind])
    set_grads(halves, 1)
    for p, q in zip(halves, wide, strict=True):
        q.grad = p.grad.double()
    mine.step()
    clip_grad_norm_(wide, 0.5)
    other.step()
    for p, q in zip(halves, wide, strict=True):
        assert_close(p.double(), q.detach(), 1e-6, torch.finfo(dtype).eps)


def test_the_norm_is_of_all_groups_and_whatever_the_threads():
    norms, threads = [], torch.get_num_threads()
    for count in (1, 2):
        torch.set_num_threads(count)
        params = parameters(shapes=[(300, 1000), (77,), (123, 456)])
        params += parameters(torch.bfloat16, [(99,)]) + parameters(torch.float64, [(3, 5)])
        optimizer = AdamW([{"params": params[:2]}, {"params": params[2:]}], max_norm=1.0)
        set_grads(params, 3)
        params[0].grad = params[0].grad.t().contiguous().t()
        optimizer.step()
        norms.append(optimizer.grad_norm)
    torch.set_num_threads(threads)
    squares = sum(p.grad.double().square().sum().item() for p in params)
    assert norms[0] == norms[1] == pytest.approx(math.sqrt(squares), rel=1e-12)


def test_a_norm_that_float32_cannot_hold():
    p = nn.Parameter(torch.zeros(3))
    p.grad = torch.full((3,), 1e38)
    optimizer = SGD([p], lr=1.0, max_norm=1.0)
    optimizer.step()
    assert optimizer.grad_norm == pytest.approx(math.sqrt(3) * 1e38)
    assert_close(p.detach(), torch.full((3,), -1 / math.sqrt(3)), 1e-6)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_what_is_not_finite_clips_as_torch_does(value):
    mine, other = parameters(shapes=[(5,), (3,)]), parameters(shapes=[(5,), (3,)])
    for params in (mine, other):
        set_grads(params, 1)
        params[0].grad[2] = value
    optimizer = SGD(mine, lr=1.0, max_norm=1.0)
    optimizer.step()
    norm = clip_grad_norm_(other, 1.0)
    torch.optim.SGD(other, lr=1.0).step()
    torch.testing.assert_close(mine, other, equal_nan=True)
    assert str(optimizer.grad_norm) == str(norm.item())


def scaled_run(optimizer, params, scaler, unscale: bool, max_norm=None, clears=False):
    """Six steps, of which the third and the fourth overflow."""
    scales = []
    for step in range(6):
        if not clears:
            optimizer.zero_grad()
        loss = sum(((p * (step + 1)) ** 2).sum() for p in params)
        scaler.scale(loss * float("inf") if step in (2, 3) else loss).backward()
        if unscale:
            scaler.unscale_(optimizer)
        if max_norm is not None:
            clip_grad_norm_(params, max_norm)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


@every_kind
@every_scaler
@pytest.mark.parametrize("unscale", [False, True])
@pytest.mark.parametrize("clears", [False, True])
def test_under_a_scaler_as_the_plain_path(kind, scaler, unscale, clears):
    """Torch's: unscale_, clip_grad_norm_, step; skipped where there is an infinity."""
    ours, theirs, _ = KINDS[kind]
    options = {"init_scale": 1000.0, "growth_interval": 2}
    first = parameters()
    second = twins(first)
    mine = ours(first, max_norm=2.0, zero_grad=clears, **FULL[kind])
    other = theirs(second, **FULL[kind])
    kind_of = SCALERS[scaler]
    scales = scaled_run(mine, first, kind_of("cpu", **options), unscale, clears=clears)
    expected = torch.amp.GradScaler("cpu", **options)
    assert scales == scaled_run(other, second, expected, True, max_norm=2.0)
    assert scales[3] < scales[1]
    assert_close(first, second, 1e-6)
    assert_close(state_of(mine), state_of(other), 1e-6)
    assert not hasattr(mine, "grad_scale") and not hasattr(mine, "found_inf")


@every_scaler
@pytest.mark.parametrize("dtype", [torch.float64, *HALVES], ids=str)
def test_gradients_of_any_dtype_are_unscaled(scaler, dtype):
    mine = parameters(dtype, [(33,)])
    wide = twins(mine, torch.float64)
    runs = [(SGD(mine, lr=0.1), mine, SCALERS[scaler]("cpu", init_scale=64.0))]
    runs += [(torch.optim.SGD(wide, lr=0.1), wide, torch.amp.GradScaler("cpu", enabled=False))]
    for optimizer, params, scale in runs:
        scale.scale((params[0] ** 2).sum()).backward()
        scale.step(optimizer)
        scale.update()
    near = 1e-11 if dtype == torch.float64 else 2 * torch.finfo(dtype).eps
    assert_close(mine[0].double(), wide[0].detach(), near)


@every_scaler
def test_a_first_step_that_is_left_out_makes_no_state(scaler):
    params = parameters()
    optimizer = AdamW(params, max_norm=1.0, zero_grad=True)
    scale = SCALERS[scaler]("cpu")
    before = copy.deepcopy(params)
    scale.scale(sum(p.sum() for p in params) * float("nan")).backward()
    scale.step(optimizer)
    assert not optimizer.state and math.isnan(optimizer.grad_norm)
    assert all(torch.equal(a, b) for a, b in zip(params, before, strict=True))
    assert not any(p.grad.any() for p in params), "zeroed, or the NaN would stay for ever"


def test_our_scaler_tells_a_large_double_from_an_infinity():
    """Whose square is one; and checks others' optimizers as torch does."""
    p = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    for optimizer in (SGD([p], lr=1.0), torch.optim.SGD([p], lr=1.0)):
        scaler = GradScaler(init_scale=1.0)
        scaler.scale(p.sum() * 1e200).backward()
        before = p.detach().clone()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(p, before - 1e200) and scaler.get_scale() == 1.0
        p.grad = None


@every_scaler
def test_a_scale_of_ones_own_is_multiplied(scaler):
    """As torch's fused steps have it: optimizer.grad_scale that was set before."""
    p = nn.Parameter(torch.zeros(4))
    optimizer = SGD([p], lr=1.0)
    scale = SCALERS[scaler]("cpu", init_scale=8.0)
    optimizer.grad_scale = torch.tensor(4.0)
    scale.scale(p.sum() * 4).backward()
    scale.step(optimizer)
    assert torch.equal(p, -torch.ones(4))


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES], ids=str)
def test_gradients_are_zeros_after_a_step(kind, dtype):
    """The same tensors, whatever their strides; the step is the one without."""
    ours = KINDS[kind][0]
    shapes = [(5,), (3, 7), (), (0, 4), (33,), (40, 1001)]
    first = parameters(dtype, shapes)
    second = twins(first)
    mine, plain = ours(first, zero_grad=True, **FULL[kind]), ours(second, **FULL[kind])
    for step in range(3):
        set_grads(first, step)
        first[1].grad = first[1].grad.t().contiguous().t()
        for p, q in zip(first, second, strict=True):
            q.grad = p.grad.clone()
        grads = [p.grad for p in first]
        versions = [g._version for g in grads]
        mine.step()
        plain.step()
        assert all(p.grad is g and not g.any() for p, g in zip(first, grads, strict=True))
        assert all(g._version > v for g, v in zip(grads, versions, strict=True))
    assert all(torch.equal(p, q) for p, q in zip(first, second, strict=True))


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate")
def test_shared_gradients_are_zeroed_after_the_last_that_reads_them():
    p, q, r = parameters(shapes=[(50,), (50,), (20,)])
    shared = torch.ones(50)
    p.grad, q.grad, r.grad = shared, shared, shared[30:]
    before = [t.detach().clone() for t in (p, q, r)]
    SGD([p, q, r], lr=1.0, zero_grad=True).step()
    for t, old in zip((p, q, r), before, strict=True):
        assert_close(t.detach(), old - 1, 1e-6)
    assert not shared.any()
    r.grad = torch.ones(20)
    SGD([r, r], lr=1.0, zero_grad=True).step()
    assert_close(r.detach(), before[2] - 3, 1e-6)
    assert not r.grad.any()


@every_kind
@pytest.mark.parametrize("decay", [0.0, 0.4, 0.9, 1.0])
def test_means_are_an_averaged_models(kind, decay):
    ours, theirs, _ = KINDS[kind]
    net = nn.Sequential(nn.Linear(8, 5), nn.Linear(5, 3))
    twin = copy.deepcopy(net)
    mine = ours(net.parameters(), ema_decay=decay, **FULL[kind])
    other = theirs(twin.parameters(), **FULL[kind])
    averaged = AveragedModel(twin, multi_avg_fn=get_ema_multi_avg_fn(decay))
    for step in range(30):
        set_grads(list(net.parameters()), step)
        set_grads(list(twin.parameters()), step)
        mine.step()
        other.step()
        averaged.update_parameters(twin)
        if step == 0:
            assert all(torch.equal(mine.state[p]["ema"], p) for p in net.parameters())
    for p, mean in zip(net.parameters(), averaged.module.parameters(), strict=True):
        assert_close(mine.state[p]["ema"], mean.detach(), 2e-6)


@pytest.mark.parametrize("masters", [False, True])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_means_of_halves(dtype, masters):
    """Of the masters in float32 if there are any; rounded to the parameter's dtype else."""
    halves = parameters(dtype)
    mine = AdamW(halves, lr=0.1, ema_decay=0.5, master_weights=masters)
    means = []
    for step in range(5):
        set_grads(halves, step)
        mine.step()
        now = [mine.state[p].get("master", p).detach().double() for p in halves]
        means = [0.5 * m + 0.5 * p for m, p in zip(means, now, strict=True)] if means else now
        for p, mean in zip(halves, means, strict=True):
            ema = mine.state[p]["ema"]
            assert ema.dtype == (torch.float32 if masters else dtype)
            assert_close(ema.double(), mean, 1e-6 if masters else 2 * torch.finfo(dtype).eps)


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_copies_and_state_dicts_go_on_alike(kind, dtype):
    ours = KINDS[kind][0]
    options = {"max_norm": 0.5, "ema_decay": 0.7, "master_weights": True, **FULL[kind]}
    params = parameters(dtype)
    optimizer = ours(params, **options)
    train(optimizer, params, 3)
    others, other = copy.deepcopy((params, optimizer))
    loaded = twins(params)
    fresh = ours(loaded, **options)
    fresh.load_state_dict(pickle.loads(pickle.dumps(optimizer.state_dict())))
    train(optimizer, params, 3, 3)
    for kept, again in ((others, other), (loaded, fresh)):
        train(again, kept, 3, 3)
        torch.testing.assert_close(state_of(again), state_of(optimizer), rtol=0, atol=0)
        assert again.grad_norm == optimizer.grad_norm
        assert "ema" in again.state_dict()["state"][0]
    assert other.max_norm == 0.5 and other.ema_decay == 0.7 and not other.zeroes


def test_fuse_takes_them():
    first = parameters()
    second = twins(first)
    mine, other = torch.optim.AdamW(first), torch.optim.AdamW(second)
    for step in range(6):
        if step == 2:
            assert fuse(mine, max_norm=0.5, ema_decay=0.9, zero_grad=True) is mine
        set_grads(first, step)
        set_grads(second, step)
        if step >= 2:
            clip_grad_norm_(second, 0.5)
        mine.step()
        other.step()
    assert_close(first, second, 1e-6)
    assert not first[0].grad.any() and "ema" in mine.state[first[0]]
    assert fuse(mine, max_norm=2.0).max_norm == 2.0 and mine.ema_decay is None
    plain = torch.optim.SGD(parameters())
    with pytest.raises(ValueError, match="Invalid max_norm value: -1"):
        fuse(plain, max_norm=-1)
    assert type(plain) is torch.optim.SGD and not hasattr(plain, "max_norm")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_norm": -1.0}, "Invalid max_norm value: -1.0"),
        ({"max_norm": float("nan")}, "Invalid max_norm value: nan"),
        ({"ema_decay": 1.5}, "Invalid ema_decay value: 1.5"),
        ({"ema_decay": -0.1}, "Invalid ema_decay value: -0.1"),
    ],
)
@every_kind
def test_options_out_of_range(kind, options, message):
    with pytest.raises(ValueError, match=message):
        KINDS[kind][0](parameters(), **options)


@every_kind
def test_gradients_that_no_kernel_takes_are_refused_before_the_first_write(kind):
    ours = KINDS[kind][0]
    plain, odd = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3, dtype=torch.complex64))
    plain.grad, odd.grad = torch.ones(3), torch.ones(3, dtype=torch.complex64)
    optimizer = ours([{"params": [plain]}, {"params": [odd]}], max_norm=1.0)
    with pytest.raises(RuntimeError, match=rf"\[{kind}\] grad is ComplexFloat, expected"):
        optimizer.step()
    assert torch.equal(plain, torch.ones(3))
    table = nn.Embedding(5, 3, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="sparse"):
        ours(table.parameters(), max_norm=1.0).step()


def test_a_mean_that_does_not_fit():
    (p,) = parameters(shapes=[(4,)])
    optimizer = Lion([p], ema_decay=0.5)
    train(optimizer, [p], 1)
    optimizer.state[p]["ema"] = torch.zeros(7)
    with pytest.raises(RuntimeError, match=r"\[Lion\] ema has shape \[7\], expected \[4\]"):
        train(optimizer, [p], 1)


def test_nothing_warns_and_a_parameter_that_is_no_tensor_is_told():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        params = parameters()
        optimizer = AdamW(params, max_norm=1.0, zero_grad=True, ema_decay=0.9)
        scaled_run(optimizer, params, GradScaler(), False, clears=True)
    optimizer.param_groups[0]["params"].append("p")
    with pytest.raises(RuntimeError, match=r"\[AdamW\] a parameter is no tensor"):
        optimizer.step()


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph")
def test_zeroing_ends_a_gradients_own_graph():
    p = nn.Parameter(torch.ones(3))
    (p**3).sum().backward(create_graph=True)
    assert p.grad.requires_grad
    SGD([p], lr=0.1, zero_grad=True).step()
    assert not p.grad.requires_grad and not p.grad.any()


def test_the_scaler_is_in_the_package():
    assert ortmodule.optim.GradScaler is GradScaler
