"""Nothing silently wrong: whatever changes between or inside calls, ours equals eager.

Each test goes through the engine, or through a fallback that explain() reports.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from pairs import Net, Pair, close, mlp, options
from torch import nn
from torch.utils.checkpoint import checkpoint

from ortmodule import Options, ORTModule
from ortmodule.dispatch import search

pytestmark = pytest.mark.filterwarnings("ignore:ORTModule runs this module in eager")
X = torch.randn(5, 3)


class Config:
    def __init__(self):
        self.scale = 2.0


def scaled(net, x):
    return net.second(net.first(x) * net.config.scale + net.shifts[0]) * net.factor


def scaled_pair():
    net = Net(scaled)
    net.config, net.shifts, net.factor = Config(), [0.5], 3.0
    return Pair(net)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m, "factor", -1.5),
        lambda m: m.shifts.__setitem__(0, 7.0),
        lambda m: setattr(m.config, "scale", 0.1),
        lambda m: m.first.weight.requires_grad_(False),
        lambda m: m.requires_grad_(False),
    ],
    ids=["scalar", "list", "config", "one_requires_grad", "no_requires_grad"],
)
def test_attribute_changed(change):
    pair = scaled_pair()
    pair.step(X)
    pair.each(change)
    pair.step(X)
    pair.through_engine(captures=2)


def test_attribute_that_changes_every_step(monkeypatch):
    """Eight captures that serve nobody are enough; those that fit again are used, and a module that
    has come to rest is captured."""
    monkeypatch.setattr(search, "_SHARE", math.inf)  # at each call it is asked whether it has
    pair = scaled_pair()
    for i in range(12):
        pair.each(lambda m: setattr(m, "factor", float(i)))  # noqa: B023
        pair.step(X)
    assert pair.report.captures == 8
    pair.fell_back("factor changes from call to call")
    assert len(pair.report.fallbacks) == 1
    pair.each(lambda m: setattr(m, "factor", 3.0))
    pair.step(X)
    assert pair.report.captures == 8 and pair.report.providers["cpu"] > 0
    pair.each(lambda m: setattr(m, "factor", 100.0))
    for _ in range(40):
        pair.step(X)
    assert pair.report.captures == 9


def test_what_changes_every_step_is_asked_for_some_of_the_time(monkeypatch):
    """Else eager's calls would wait for the comparison with eight captures."""
    now, asked = [0.0], []

    def changed(self):
        asked.append(self)
        now[0] += 1.0
        return compare(self)

    compare = search.Snapshot.changed
    monkeypatch.setattr(search.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(search.Snapshot, "changed", changed)
    pair, counts = scaled_pair(), []
    for i in range(60):
        pair.each(lambda m: setattr(m, "factor", float(min(i, 30))))  # noqa: B023
        before = len(asked)
        pair.step(X)
        counts.append(len(asked) - before)
    assert all(counts[9:16]) and not any(counts[18:])
    assert pair.report.captures == 8
    for _ in range(40):
        now[0] += 1e9
        pair.step(X)
    assert pair.report.captures == 9


def test_attribute_that_changes_now_and_then():
    """Each state that serves a while is worth its capture."""
    pair = scaled_pair()
    for i in range(10):
        pair.each(lambda m: setattr(m, "factor", float(i)))  # noqa: B023
        for _ in range(5):
            pair.step(X)
    pair.through_engine(captures=10)


def test_submodule_swapped():
    pair = Pair(mlp())
    pair.step(X)
    torch.manual_seed(3)
    fresh = nn.Linear(4, 6)
    pair.each(lambda m: m.__setitem__(2, Pair(fresh).twin))
    assert pair.step(X).shape == (5, 6)
    pair.through_engine()


@pytest.mark.parametrize("where", ["", "2"], ids=["module", "submodule"])
def test_hook_added(where):
    pair = Pair(mlp())
    pair.step(X)
    pair.each(lambda m: m.get_submodule(where).register_forward_hook(lambda _m, _i, y: y * 2))
    pair.step(X)
    pair.through_engine()  # of the module itself the wrapper runs it


def test_full_backward_hook():
    pair = Pair(mlp())
    pair.step(X)
    pair.each(lambda m: m[2].register_full_backward_hook(lambda _m, gi, _go: (gi[0] * 3,)))
    pair.step(X)
    assert pair.report.captures == 2 and not pair.report.not_whole
    pair.fell_back("hooks on a gradient")


def test_hook_on_the_wrapper():
    pair = Pair(mlp())
    for module in (pair.eager, pair.ours):
        module.register_forward_hook(lambda _m, _i, y: y * 2)
    pair.step(X)


def test_tensor_hook_in_forward():
    def forward(net, x):
        hidden = net.first(x)
        if hidden.requires_grad:
            hidden.register_hook(lambda g: g * 5)
        return net.second(hidden)

    pair = Pair(Net(forward))
    pair.step(X)
    assert pair.report.captures == 1
    pair.fell_back("hooks on a gradient")


class Tripled(torch.autograd.Function):
    """Its backward is not its forward's derivative."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 3


def test_custom_function_keeps_its_backward():
    pair = Pair(Net(lambda net, x: net.second(Tripled.apply(net.first(x)))))
    pair.step(X)
    pair.fell_back("autograd.Function")


def test_counter_in_forward():
    def forward(net, x):
        net.count += 1
        return net.second(net.first(x)) * net.count

    net = Net(forward)
    net.count = 0
    pair = Pair(net)
    for _ in range(5):
        pair.step(X)
    assert pair.twin.count == pair.eager.count == 5
    assert pair.report.captures <= 2 and not pair.report.reasons()


def test_counter_in_a_buffer():
    def forward(net, x):
        net.steps += 1
        return net.second(net.first(x)) * net.steps

    net = Net(forward)
    net.register_buffer("steps", torch.zeros(()))
    pair = Pair(net)
    for _ in range(3):
        pair.step(X)
    assert pair.twin.steps == 3


def test_batch_norm_train_and_eval():
    pair = Pair(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)))
    for mode in (True, False, True, True, False):
        pair.eager.train(mode), pair.ours.train(mode)
        pair.step(X)
    assert pair.twin[1].num_batches_tracked == 3
    pair.through_engine(captures=2)


def test_forward_run_again_for_other_outputs():
    """The backward that comes is not the one that was planned for: statistics move once, dropout
    keeps its mask."""

    def forward(net, x):
        hidden = F.dropout(net.norm(net.first(x)), 0.5, net.training)
        return hidden.square().sum(), net.second(hidden), hidden

    net = Net(forward)
    net.norm = nn.BatchNorm1d(4)
    ours = ORTModule(net, options())
    for used in (1, 0, 2, 1):
        before = net.norm.running_mean.clone()
        x = torch.randn(5, 3)
        net.zero_grad()
        outputs = ours(x)
        with torch.no_grad():
            mean = net.first(x).mean(0)
        close(net.norm.running_mean, 0.9 * before + 0.1 * mean, "the running mean")
        after = net.norm.running_mean.clone()
        outputs[used].square().sum().backward()
        assert torch.equal(net.norm.running_mean, after)
        got = net.norm.weight.grad, net.norm.bias.grad
        kept = (outputs[2] != 0).float() * 2
        normal = F.batch_norm(net.first(x), None, None, net.norm.weight, net.norm.bias, True)
        hidden = normal * kept
        expected = (hidden.square().sum(), net.second(hidden), hidden)[used].square().sum()
        wrt = (net.norm.weight, net.norm.bias)
        for mine, theirs in zip(got, torch.autograd.grad(expected, wrt), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    assert ours.explain().captures == 1 and not ours.explain().fallbacks
    assert net.norm.num_batches_tracked == 4


def test_tied_weights():
    net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    net[2].weight = net[0].weight
    pair = Pair(net)
    assert pair.twin[2].weight is pair.twin[0].weight
    pair.step(X)
    pair.through_engine()


def test_arguments_that_change():
    def forward(net, x, scale=1, how="tanh"):
        return net.second(getattr(torch, how)(net.first(x)) * scale)

    pair = Pair(Net(forward))
    for kwargs in ({}, {"scale": 2}, {"scale": 2.5}, {"how": "sigmoid"}, {"scale": True}, {}):
        pair.step(X, **kwargs)
    pair.through_engine(captures=5)


def test_same_tensor_twice_then_two():
    net = Net(lambda net, a, b: net.second(net.first(a) * net.first(b)))
    pair = Pair(net)
    for same in (True, False, True):
        for module in (pair.eager, pair.ours):
            module.zero_grad()
            a = X.clone().requires_grad_()
            b = a if same else (X * 2).requires_grad_()
            module(a, b).square().sum().backward()
            if module is pair.eager:
                expected = a.grad
            else:
                close(a.grad, expected, "the input's gradient")
        pair.compare()
    pair.through_engine(captures=2)


def adamw(pair):
    for module in (pair.eager, pair.ours):
        torch.optim.AdamW(module.parameters(), lr=0.1, fused=True).step()


def by_data(pair):
    pair.each(lambda m: m[0].weight.data.mul_(2))


def new_data(pair):
    pair.each(lambda m: setattr(m[0].weight, "data", torch.full((4, 3), 0.25)))


def loaded(pair):
    state = {k: v + 1 for k, v in pair.eager.state_dict().items()}
    pair.eager.load_state_dict(state)
    pair.ours.load_state_dict(state)


@pytest.mark.parametrize("change", [adamw, by_data, new_data, loaded])
def test_weights_changed(change):
    """Under no_grad too, where packed weights could be kept across calls."""
    pair = Pair(mlp())
    for _ in range(2):
        with torch.no_grad():
            pair.step(X)
        pair.step(X)
        change(pair)
    with torch.no_grad():
        pair.step(X)
    pair.step(X)
    pair.through_engine(captures=2)


def test_peft_merge():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["0", "2"], init_lora_weights=False)
    pair = Pair(peft.get_peft_model(mlp(), config))
    for change in (lambda m: None, lambda m: m.merge_adapter(), lambda m: m.unmerge_adapter()):
        pair.each(change)
        pair.step(X)
        with torch.no_grad():
            pair.step(X)
    pair.through_engine()


def test_batch_1_first_and_then_8():
    pair = Pair(mlp())
    for batch in (1, 8, 1, 3, 8):
        pair.step(torch.randn(batch, 3))
    pair.through_engine(captures=2)


def test_branch_on_data():
    def forward(net, x):
        hidden = net.first(x)
        return net.second(hidden if x.sum() > 0 else hidden.exp())

    pair = Pair(Net(forward))
    for x in (X.abs(), -X.abs(), X.abs()):
        pair.step(x)
    pair.fell_back("data-dependent")


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_regions(reentrant):
    def forward(net, x):
        hidden = net.first(x)
        return net.second(checkpoint(torch.tanh, hidden, use_reentrant=reentrant))

    pair = Pair(Net(forward))
    pair.step(X)
    pair.step(X)
    pair.through_engine(captures=1)


def test_checkpointed_dropout_draws_once():
    def forward(net, x):
        return checkpoint(lambda h: F.dropout(h, 0.5, True), net.first(x), use_reentrant=False)

    net = ORTModule(Net(forward), options())
    y = net(torch.ones(64, 3))
    y.sum().backward()
    with torch.no_grad():
        clean = net.first(torch.ones(64, 3))
    kept = (y / clean).detach()
    close(net.first.bias.grad, kept.sum(0), "the gradient of the bias")


def test_fork_rng():
    net = ORTModule(nn.Dropout(0.5), options())
    ones = torch.ones(100)
    torch.manual_seed(5)
    with torch.random.fork_rng(devices=[]):
        first = net(ones)
    assert torch.equal(net(ones), first)
    torch.manual_seed(5)
    assert torch.equal(net(ones), first)
    assert not torch.equal(net(ones), first)


def test_fork_rng_inside_forward():
    def forward(net, x):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            noise = torch.randn_like(x)
        return net.second(net.first(x + noise))

    pair = Pair(Net(forward))
    pair.step(X)
    pair.step(X)
    pair.fell_back("set_rng_state")


def test_nan_weights_give_eagers_nan():
    pair = Pair(mlp())
    pair.step(X)
    pair.each(lambda m: m[0].weight.data.__setitem__((0, 0), float("nan")))
    y = pair.step(X)
    assert y.isnan().all()
    pair.each(lambda m: m[0].weight.data.__setitem__((0, 0), 0.5))
    assert not pair.step(X).isnan().any()
    pair.through_engine(captures=1)


def test_a_capture_that_takes_too_long():
    """The report says how much was traced, and where."""

    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTMCell(3, 3)

        def forward(self, x):
            h = c = torch.zeros(5, 3)
            for _ in range(1000):
                h, c = self.cell(x, (h, c))
            return h

    torch.manual_seed(0)
    pair = Pair(Loop(), capture_seconds=1.0)
    for _ in range(2):
        pair.step(torch.randn(5, 3))
    (reason,) = pair.report.reasons()
    assert "longer than Options(capture_seconds=1) allows" in reason, reason
    assert "operators were traced" in reason, reason
    assert not pair.report.captures and not pair.report.parts


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_no_time_for_a_capture(seconds):
    with pytest.raises(ValueError, match="capture_seconds is .*, expected more than 0"):
        Options(capture_seconds=seconds)


def count_in_place(net):
    net.count.add_(1)


def count_by_half(net):
    net.count.mul_(0.5).sub_(2)


def count_into_itself(net):
    torch.div(net.count, 2, out=net.count)


def count_floored(net):
    net.count += 7
    net.count.floor_divide_(2)


@pytest.mark.parametrize("write", [count_in_place, count_by_half, count_into_itself, count_floored])
def test_a_number_written_to_a_tensor_that_is_no_buffer(write):
    """torch's mode of fake tensors computes these with the tensor's own data."""

    def counted(net, x):
        write(net)
        return net.first(x) * net.count

    mine, other = Net(counted), Net(counted)
    other.load_state_dict(mine.state_dict())
    mine.count, other.count = torch.full((1,), 9.0), torch.full((1,), 9.0)
    model = ORTModule(mine)
    for _ in range(3):
        close(model(X), other(X), "output")
        assert torch.equal(mine.count, other.count)


@pytest.mark.parametrize(
    "positive",
    [
        lambda t: f"{t.sum() > 0}" == "True",
        lambda t: f"{t.sum():.1f}" != "-15.0",
        lambda t: "{}".format(t.sum() > 0) == "True",  # noqa: UP032 this is the case
        lambda t: "r" in f"{t.sum() > 0}",
    ],
)
def test_the_text_of_a_tensor_is_compared_in_each_call(positive):
    net = Net(lambda net, x: net.first(x) * float(positive(x)))
    model = ORTModule(net)
    for sign in (1, -1, 1):
        x = sign * torch.ones(5, 3)
        close(model(x), net.function(net, x), "output")
