"""ORTModule.attach: the optimizer's step within the backward, against the same step after it."""

import contextlib
import copy
import functools
import warnings

import pytest
import torch
from ortmodule.optim import LAMB, SGD, Adam, AdamW, Lion
from pairs import options
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
from torch.utils.checkpoint import checkpoint

from ortmodule import ORTModule, _native

X = torch.randn(6, 8)


class Tied(nn.Module):
    """A weight used twice, once transposed, and one under a view of it."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.flat = nn.Parameter(torch.randn(64) / 8)

    def forward(self, x):
        y = self.first(x).tanh() @ self.flat.view(8, 8)
        return self.second(y @ self.first.weight).tanh() @ self.first.weight


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(lambda x, layer=layer: layer(x).tanh(), x, use_reentrant=False)
        return x


def layers(count=3):
    parts = []
    for _ in range(count):
        parts += [nn.Linear(8, 8), nn.LayerNorm(8), nn.Tanh()]
    return nn.Sequential(*parts)


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = layers(2), layers(2)
        self.second[3].weight = self.first[0].weight

    def forward(self, x):
        x = self.first(x)
        return self.second(x * 2 if x.sum() > 1e9 else x)


def frozen():
    net = layers()
    net[3].requires_grad_(False)
    return net


def in_groups(kind, module, **options):
    params = list(module.parameters())
    groups = [{"params": params[:2]}, {"params": params[2:5], "weight_decay": 0.1}]
    return kind([*groups, {"params": params[5:], "lr": 0.02}], **options)


def train(model, optimizer, steps=4, autocast=False, after=lambda: None):
    for k in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            y = model(X * (k + 1) / steps)
        y.float().square().sum().backward()
        optimizer.step()
        after()


def same(ours, theirs):
    if isinstance(theirs, torch.Tensor):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
    elif isinstance(theirs, dict):
        assert set(ours) == set(theirs)
        for key in theirs:
            same(ours[key], theirs[key])
    elif isinstance(theirs, list):
        for a, b in zip(ours, theirs, strict=True):
            same(a, b)
    else:
        assert ours == theirs


def both(module, make=None, autocast=False, around=lambda _: contextlib.nullcontext(), **fields):
    """Trains twins, one attached, and compares their parameters and states bit for bit."""
    make = make or MAKERS["AdamW"]
    found = []
    for attach in (False, True):
        model = ORTModule(copy.deepcopy(module), options(segment_bytes=0, **fields))
        params = model if isinstance(make, _Whole) else model.parameters()
        optimizer = make(params)
        if attach:
            model.attach(optimizer)
        with around(model):
            train(model, optimizer, autocast=autocast)
        found.append((model, optimizer))
    (plain, after), (attached, within) = found
    same(attached.state_dict(), plain.state_dict())
    same(within.state_dict(), after.state_dict())
    assert all(p.grad is None for p in attached.parameters() if p.requires_grad)
    assert any(p.grad is not None for p in plain.parameters())
    return attached


class _Whole(functools.partial):
    """What makes an optimizer of a module."""


MAKERS = {
    "AdamW": functools.partial(AdamW, lr=0.01),
    "amsgrad": functools.partial(Adam, lr=0.01, amsgrad=True, weight_decay=0.1),
    "momentum": functools.partial(SGD, lr=0.01, momentum=0.9, nesterov=True),
    "Lion": functools.partial(Lion, lr=0.01),
    "LAMB": functools.partial(LAMB, lr=0.01),
    "torch's AdamW": functools.partial(torch.optim.AdamW, lr=0.01),
    "torch's fused": functools.partial(torch.optim.AdamW, lr=0.01, fused=True),
    "torch's foreach": functools.partial(torch.optim.SGD, lr=0.01, momentum=0.9, foreach=True),
    "NAdam": torch.optim.NAdam,
    "Adafactor": torch.optim.Adafactor,
    "groups": _Whole(in_groups, AdamW, lr=0.01),
    "torch's groups": _Whole(in_groups, torch.optim.RMSprop, lr=0.01),
}


@pytest.mark.parametrize("name", MAKERS)
def test_the_step_is_the_one_after_the_backward(name):
    assert not both(layers(), MAKERS[name]).explain().fallbacks


@pytest.mark.parametrize("make", [Tied, Checkpointed, frozen])
def test_as_after_the_backward(make):
    assert not both(make()).explain().fallbacks


def test_under_autocast():
    assert not both(layers(), autocast=True).explain().fallbacks
    both(Tied(), autocast=True)


def test_in_parts():
    """The tied weight is of both parts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = both(Branching()).explain()
    assert len(report.parts) > 1 and not report.fallbacks, report


def test_in_eager():
    net = both(Tied(), around=ORTModule.eager)
    assert net.explain().captures == 0


def test_a_part_of_the_parameters():
    """The others' gradients stay."""
    model = ORTModule(layers(), options(segment_bytes=0))
    model.attach(SGD(model[0].parameters(), lr=0.1))
    model(X).square().sum().backward()
    assert model[0].weight.grad is None and model[3].weight.grad is not None
    second = SGD(model[3].parameters(), lr=0.1)
    model[3].weight.grad = model[3].bias.grad = None
    model.attach(second)  # a second optimizer, for others


@pytest.mark.parametrize("segment_bytes", [0, 300, 4 << 20])
def test_each_segment_is_one_step(segment_bytes):
    class Counted(SGD):
        def step(self, closure=None):
            sizes.append([p.numel() * 4 for group in self.param_groups for p in group["params"]])
            return super().step(closure)

    sizes = []
    model = ORTModule(layers(), options(segment_bytes=segment_bytes))
    optimizer = Counted(model.parameters(), lr=0.1)
    model.attach(optimizer)
    train(model, optimizer, steps=1)
    assert sum(map(len, sizes)) == 12
    assert all(sum(s[:-1]) <= segment_bytes for s in sizes), sizes
    assert (len(sizes) == 1) == (segment_bytes > 1 << 20)


def test_a_weight_is_stepped_after_its_last_reader():
    """Its gradient is there before the product that reads it, under a view too."""

    class Viewed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.ParameterList(torch.randn(64) / 3 for _ in range(4))

        def forward(self, x):
            for w in self.weights:
                x = (x @ w.view(8, 8).t()).tanh() @ w.view(8, 8).detach()
            return x

    found = []
    for attach in (False, True):
        torch.manual_seed(0)
        model = ORTModule(Viewed(), options(segment_bytes=0))
        optimizer = SGD(model.parameters(), lr=0.5)
        if attach:
            model.attach(optimizer)
        train(model, optimizer, steps=2)
        found.append(model.state_dict())
    same(found[1], found[0])


def test_the_memory_of_gradients_is_used_again():
    """Of ten gradients of 5 MB no more than three are there at once."""
    net = nn.Sequential(*(nn.Linear(1111, 1111) for _ in range(10)))
    model = ORTModule(net, options(segment_bytes=1 << 20))
    optimizer = SGD(model.parameters(), lr=0.01)
    model.attach(optimizer)
    x = torch.randn(2, 1111)
    loss = model(x).square().sum()
    before = _native.core().pool_bytes()
    loss.backward()
    assert _native.core().pool_bytes() - before <= 3 * (6 << 20)
    assert model.explain().captures == 1


# --- the training loop around it ----------------------------------------------------------------


def test_hooks_run_once_a_step_and_schedulers_do_not_warn():
    found = []
    for attach in (False, True):
        torch.manual_seed(0)
        model = ORTModule(layers(), options(segment_bytes=0))
        optimizer = AdamW(model.parameters(), lr=0.1)
        before = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        if attach:
            model.attach(optimizer)
        later = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        calls = []
        optimizer.register_step_pre_hook(lambda *_, calls=calls: calls.append("pre"))
        optimizer.register_step_post_hook(lambda *_, calls=calls: calls.append("post"))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            train(model, optimizer, after=lambda a=before, b=later: (a.step(), b.step()))
        assert calls == ["pre", "post"] * 4
        found.append((model.state_dict(), optimizer.state_dict()))
    same(list(found[1]), list(found[0]))


def test_step_with_a_closure():
    model = ORTModule(layers(), options())
    optimizer = SGD(model.parameters(), lr=0.1)
    model.attach(optimizer)
    before = copy.deepcopy(model.state_dict())

    def closure():
        loss = model(X).square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).requires_grad
    assert not torch.equal(model.state_dict()["0.weight"], before["0.weight"])


def test_remove():
    model = ORTModule(layers(), options())
    optimizer = SGD(model.parameters(), lr=0.1)
    handle = model.attach(optimizer)
    train(model, optimizer, steps=1)
    handle.remove()
    handle.remove()
    before = model[0].weight.detach().clone()
    optimizer.zero_grad()
    model(X).square().sum().backward()
    assert torch.equal(model[0].weight, before) and model[0].weight.grad is not None
    optimizer.step()
    assert not torch.equal(model[0].weight, before)
    optimizer.zero_grad()
    model.attach(optimizer)  # again
    train(model, optimizer, steps=2)
    assert model[0].weight.grad is None


def test_a_wrapper_that_is_gone_attaches_nothing():
    net = layers()
    optimizer = SGD(net.parameters(), lr=0.1)
    ORTModule(net, options()).attach(optimizer)
    before = net[0].weight.detach().clone()
    net(X).square().sum().backward()
    assert torch.equal(net[0].weight, before)
    optimizer.step()
    assert not torch.equal(net[0].weight, before)


def test_what_joins_later():
    """A group that is added, a parameter that thaws: stepped at step(), then within."""
    net = frozen()
    model = ORTModule(net, options())
    optimizer = SGD(net[0].parameters(), lr=0.1)
    model.attach(optimizer)
    optimizer.add_param_group({"params": [*net[3].parameters()]})
    train(model, optimizer, steps=1)
    net[3].requires_grad_(True)
    before = net[3].weight.detach().clone()
    train(model, optimizer, steps=1)
    assert net[3].weight.grad is None and not torch.equal(net[3].weight, before)
    before = net[3].weight.detach().clone()
    model(X).square().sum().backward()
    assert net[3].weight.grad is None and not torch.equal(net[3].weight, before)


def test_a_backward_that_fails_may_be_left():
    model = ORTModule(layers(), options(segment_bytes=0))
    optimizer = SGD(model.parameters(), lr=0.1)
    model.attach(optimizer)

    def fail(_):
        raise KeyError("of the user's")

    hook = model[0].weight.register_hook(fail)
    with pytest.raises(KeyError, match="of the user's"):
        model(X).square().sum().backward()
    hook.remove()
    train(model, optimizer, steps=2)
    assert all(p.grad is None for p in model.parameters())


def test_a_pending_backward_does_not_read_what_was_stepped():
    model = ORTModule(layers(), options())
    optimizer = SGD(model.parameters(), lr=0.1)
    model.attach(optimizer)
    first, second = model(X).square().sum(), model(X * 2).square().sum()
    first.backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        second.backward()


def test_a_wrapper_that_is_gone_lets_the_next_attach():
    net = layers()
    optimizer = SGD(net.parameters(), lr=0.1)
    ORTModule(net, options()).attach(optimizer)
    assert not any(p._backward_hooks or p._post_accumulate_grad_hooks for p in net.parameters())
    assert "_step_supports_amp_scaling" not in vars(optimizer)  # else no GradScaler would unscale
    model = ORTModule(net, options())
    model.attach(optimizer)
    train(model, optimizer, steps=1)
    assert all(p.grad is None for p in net.parameters())


@pytest.mark.parametrize("clip", [clip_grad_norm_, clip_grad_value_])
def test_what_would_clip_nothing_says_so(clip):
    """Whoever has imported it before."""
    model, optimizer, handle = attached()
    model(X).square().sum().backward()
    with pytest.raises(RuntimeError, match=f"{clip.__name__} comes after the steps that the back"):
        clip(model.parameters(), 0.1)
    other = torch.ones(3, requires_grad=True)
    other.sum().backward()
    clip([other], 0.1)
    assert other.grad.max() < 0.2
    handle.remove()
    clip([p for p in model.parameters() if p.grad is not None] or [other], 0.1)


def test_zero_grad_in_place_of_a_step_is_told():
    """The steps are made, where eager would have left them out."""
    model, optimizer, _ = attached()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, optimizer, steps=2)
    model(X).square().sum().backward()
    with pytest.warns(UserWarning, match=r"zero_grad\(\) without step\(\) after a backward"):
        optimizer.zero_grad()
    with pytest.raises(ValueError, match=r"zero_grad\(set_to_none=False\) keeps"):
        optimizer.zero_grad(set_to_none=False)


# --- what is refused ----------------------------------------------------------------------------


def attached(**fields):
    model = ORTModule(layers(), options(**fields))
    optimizer = SGD(model.parameters(), lr=0.1)
    return model, optimizer, model.attach(optimizer)


def test_gradients_are_not_accumulated():
    model, optimizer, handle = attached()
    train(model, optimizer, steps=1)
    model(X).square().sum().backward()
    with pytest.raises(RuntimeError, match=r"7.weight gets a second gradient, but was stepped"):
        model(X).square().sum().backward()
    handle.remove()


def test_a_gradient_that_is_there():
    model, _, _ = attached()
    model[0].weight.grad = torch.zeros(8, 8)
    with pytest.raises(RuntimeError, match="parameter 0.weight has a gradient already"):
        model(X).square().sum().backward()
    model = ORTModule(layers(), options())
    model(X).square().sum().backward()
    with pytest.raises(RuntimeError, match="has a gradient already"):
        model.attach(SGD(model.parameters(), lr=0.1))


def test_hooks_that_want_the_gradient():
    model, _, _ = attached()
    model[0].weight.register_post_accumulate_grad_hook(lambda p: None)
    with pytest.raises(RuntimeError, match="0.weight has a post-accumulate hook of another's"):
        model(X).square().sum().backward()
    with pytest.raises(RuntimeError, match="has a post-accumulate hook of another's"):
        model.attach(SGD(model.parameters(), lr=0.1))


def test_a_norm_of_all_gradients():
    model, optimizer, _ = attached()
    optimizer.max_norm = 1.0
    with pytest.raises(ValueError, match="SGD has a max_norm"):
        model(X).square().sum().backward()
    model = ORTModule(layers(), options())
    optimizer = SGD([{"params": [*model.parameters()], "max_norm": 1.0}], lr=0.1)
    with pytest.raises(ValueError, match="SGD has a max_norm"):
        model.attach(optimizer)
    lamb = torch.optim.SGD([{"params": [*model.parameters()], "max_grad_norm": 1.0}], lr=0.1)
    with pytest.raises(ValueError, match="SGD has a max_grad_norm"):
        model.attach(lamb)


def test_a_grad_scaler():
    model, optimizer, handle = attached()
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(model(X).square().sum()).backward()
    with pytest.raises(ValueError, match="a GradScaler steps the SGD"):
        scaler.step(optimizer)
    del optimizer.grad_scale, optimizer.found_inf
    handle.remove()
    assert "_step_supports_amp_scaling" not in vars(optimizer)


def test_optimizers_that_step_at_once():
    model = ORTModule(layers(), options())
    with pytest.raises(ValueError, match="LBFGS needs a closure"):
        model.attach(torch.optim.LBFGS(model.parameters()))
    with pytest.raises(ValueError, match="SGD is differentiable"):
        model.attach(torch.optim.SGD(model.parameters(), lr=0.1, differentiable=True))

    class Counts(torch.optim.SGD):
        def step(self, closure=None):
            self.param_groups[0]["k"] = self.param_groups[0].setdefault("k", 0) + 1
            return super().step(closure)

    model = ORTModule(layers(), options())
    model.attach(Counts([{"params": [*model.parameters()], "k": 0}], lr=0.1))
    with pytest.raises(RuntimeError, match="a step of Counts changes 'k'"):
        model(X).square().sum().backward()


def test_what_is_no_optimizer_of_the_module():
    model = ORTModule(layers(), options())
    with pytest.raises(TypeError, match="got a Linear, expected a torch.optim.Optimizer itself"):
        model.attach(nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"a parameter of sizes \[2, 3\] that is none of"):
        model.attach(SGD([torch.randn(2, 3, requires_grad=True)], lr=0.1))
    optimizer = SGD(model.parameters(), lr=0.1)
    optimizer.step = lambda: None
    with pytest.raises(ValueError, match="SGD.step is wrapped by something other"):
        model.attach(optimizer)


def test_parameters_of_other_kinds():
    from torch.testing._internal.two_tensor import TwoTensor

    net = nn.Module()
    net.weight = nn.Parameter(TwoTensor(torch.ones(2), torch.ones(2)))
    with pytest.raises(ValueError, match="parameter weight is a TwoTensor, expected a plain"):
        ORTModule(net, options()).attach(torch.optim.SGD(net.parameters(), lr=0.1))


def test_distributed_data_parallel(monkeypatch):
    ddp = nn.parallel.DistributedDataParallel
    model, _, _ = attached()
    monkeypatch.setattr(ddp, "_active_ddp_module", model)
    with pytest.raises(RuntimeError, match="a DistributedDataParallel calls the module"):
        model(X)
    monkeypatch.undo()
    net = nn.Sequential(nn.Linear(2, 2))
    monkeypatch.setattr(ddp, "__init__", lambda self: nn.Module.__init__(self))
    net.append(ddp())
    with pytest.raises(ValueError, match="the module holds a DistributedDataParallel"):
        ORTModule(net, options()).attach(SGD(net.parameters(), lr=0.1))
