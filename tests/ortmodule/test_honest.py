"""Nothing silently wrong: whatever changes between or inside calls, ours equals eager.

Each test goes through the engine, or through a fallback that explain() reports.
"""

import pytest
import torch
import torch.nn.functional as F
from pairs import Pair, close, mlp, options
from torch import nn
from torch.utils.checkpoint import checkpoint

from ortmodule import ORTModule

pytestmark = pytest.mark.filterwarnings("ignore:ORTModule runs this module in eager")
X = torch.randn(5, 3)


class Net(nn.Module):
    """A module whose forward is `function(self, *args)`."""

    def __init__(self, function):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


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


def test_attribute_that_changes_every_step():
    """Eight captures that serve nobody are enough; those that fit again are used, and a module that
    has come to rest is captured."""
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
    pair.fell_back("forward hook")


def test_full_backward_hook():
    pair = Pair(mlp())
    pair.step(X)
    pair.each(lambda m: m[2].register_full_backward_hook(lambda _m, gi, _go: (gi[0] * 3,)))
    pair.step(X)
    pair.fell_back("backward hook")


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
    pair.fell_back("register_hook")


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
    pair.fell_back("writes to an attribute")


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


def outcomes(pair, act):
    """What `act(module)` raises for eager and for ours, or None; gradients agree if nothing."""
    errors = []
    for module in (pair.eager, pair.ours):
        module.zero_grad()
        try:
            act(module)
            errors.append(None)
        except RuntimeError as error:
            errors.append(str(error))
    assert (errors[0] is None) == (errors[1] is None), errors
    if errors[0] is None:
        pair.compare()
    else:
        assert all("modified by an inplace operation" in error for error in errors)
    pair.through_engine()
    return errors


ACTIVATIONS = {
    "tanh": nn.Tanh(), "softmax": nn.Softmax(-1), "log_softmax": nn.LogSoftmax(-1),
    "sigmoid": nn.Sigmoid(), "relu": nn.ReLU(), "gelu": nn.GELU(), "silu": nn.SiLU(),
    "elu": nn.ELU(), "softplus": nn.Softplus(), "linear": nn.Linear(4, 2),
    "layer_norm": nn.LayerNorm(4),
}  # fmt: skip
FUNCTIONS = {
    "exp": torch.exp, "sqrt": lambda h: h.abs().sqrt(), "rsqrt": lambda h: h.abs().rsqrt(),
    "reciprocal": torch.reciprocal, "square": torch.square, "log": lambda h: h.abs().log(),
    "pow": lambda h: h.abs() ** 1.5, "amax": lambda h: h.amax(-1), "cumsum": lambda h: h.cumsum(0),
    "norm": lambda h: h.norm(dim=-1), "prod": lambda h: h.prod(-1),
    "div": lambda h: 1.0 / (h.abs() + 1),
    "view": lambda h: h.exp().view(-1), "transposed": lambda h: h.tanh().t(),
}  # fmt: skip
SAVED = {"tanh", "softmax", "log_softmax", "sigmoid", "relu", "exp", "sqrt", "rsqrt", "reciprocal",
         "amax", "norm", "prod", "view", "transposed"}  # fmt: skip


@pytest.mark.parametrize("what", [*ACTIVATIONS, *FUNCTIONS])
def test_output_edited_before_backward(what):
    """Eager's gradient, or an error exactly where eager saved what was written to."""
    last = ACTIVATIONS.get(what)
    function = FUNCTIONS.get(what)
    net = Net(lambda net, x: net.last(net.first(x)) if net.last else function(net.first(x)))
    net.last = last

    def act(module):
        y = module(X)
        y.mul_(2)
        y.pow(3).sum().backward()

    errors = outcomes(Pair(net), act)
    if what in SAVED:
        assert errors[0] is not None


# Where eager's formula reads the result and ours what it was made of, and where the result is a
# view of what eager saved (ours is laid out anew), ours gives the gradient without the write.
UNSEEN = {"rsqrt", "prod", "transposed"}


@pytest.mark.parametrize("what", [k for k in (*ACTIVATIONS, *FUNCTIONS) if k not in UNSEEN])
def test_data_of_an_output_edited_before_backward(what):
    """Eager does not see such a write: if it saved the output, its backward uses the new data."""
    last, function = ACTIVATIONS.get(what), FUNCTIONS.get(what)
    net = Net(lambda net, x: net.last(net.first(x)) if net.last else function(net.first(x)))
    net.last = last

    def act(module):
        y = module(X)
        y.data.mul_(2)
        y.sum().backward(retain_graph=True)
        y.data.mul_(2)
        y.sum().backward()

    assert outcomes(Pair(net), act)[0] is None


def test_output_resized_before_backward():
    """An owner may give the memory away; the backward does not run on what is no longer there."""
    pair = Pair(nn.Sequential(nn.Linear(3, 4), nn.Tanh()))
    y = pair.ours(X)
    loss = y.sum()
    y.untyped_storage().resize_(0)
    with pytest.raises(
        RuntimeError, match="which the backward reads, has 0 bytes now, expected 80"
    ):
        loss.backward()


@pytest.mark.parametrize("edited", [0, 1, 2])
@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 1, 2)])
def test_one_of_several_outputs_edited(edited, used):
    """An output may be saved by what another was made of; only what the backward runs counts."""
    net = Net(lambda net, x: (h := net.first(x), e := h.exp(), net.second(e)))

    def act(module):
        outputs = module(X)
        losses = [outputs[i].square().sum() for i in used]
        with torch.no_grad():
            outputs[edited].mul_(2)
        sum(losses).backward()

    outcomes(Pair(net), act)


def test_output_edited_through_a_view():
    def act(module):
        y = module(X)
        loss = y.sum()
        y.detach()[0].zero_()
        loss.backward()

    assert outcomes(Pair(nn.Sequential(nn.Linear(3, 2), nn.Tanh())), act)[0] is not None


def test_output_dropped_before_backward():
    pair = Pair(nn.Sequential(nn.Linear(3, 2), nn.Tanh()))
    for module in (pair.eager, pair.ours):
        loss = module(X).sum()
        scratch = [torch.full((5, 2), float(i)) for i in range(50)]
        loss.backward()
        del scratch
    pair.compare()


@pytest.mark.parametrize("what", ["input", "weight", "bias", "scale", "table", "mask"])
def test_inputs_edited_before_backward(what):
    """What eager saves may not change; of what it does not, ours may read no new value."""

    def forward(net, x, mask):
        hidden = net.first(x).masked_fill(mask > 0, 0.5) * net.scale.exp()
        return net.second(torch.relu(hidden) + net.table)

    net = Net(forward)
    net.scale, net.table = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
    pair = Pair(net)
    inner = {id(pair.eager): pair.eager, id(pair.ours): pair.twin}

    def act(module):
        given = {"input": X.clone(), "mask": (torch.arange(4) % 2).expand(5, 4).clone()}
        y = module(given["input"], given["mask"])
        net = inner[id(module)]
        given |= {"weight": net.second.weight, "bias": net.first.bias}
        given |= {"scale": net.scale, "table": net.table}
        with torch.no_grad():
            given[what].mul_(2)
        y.square().sum().backward()

    outcomes(pair, act)


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
    assert pair.report.fallbacks


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
    assert pair.report.fallbacks


def test_create_graph_raises_before_any_gradient():
    pair = Pair(mlp(), segment_bytes=0)
    seen = []
    for parameter in pair.ours.parameters():
        parameter.register_hook(seen.append)
    with pytest.raises(RuntimeError, match="create_graph"):
        pair.ours(X).sum().backward(create_graph=True)
    assert not seen and all(p.grad is None for p in pair.ours.parameters())
    pair.step(X)
    pair.through_engine()


def test_nan_weights_give_eagers_nan():
    pair = Pair(mlp())
    pair.step(X)
    pair.each(lambda m: m[0].weight.data.__setitem__((0, 0), float("nan")))
    y = pair.step(X)
    assert y.isnan().all()
    pair.each(lambda m: m[0].weight.data.__setitem__((0, 0), 0.5))
    assert not pair.step(X).isnan().any()
    pair.through_engine(captures=1)


SHARED = {
    "input": lambda net, x: (net.first(x), x),
    "view_of_input": lambda net, x: (net.first(x), x.view(-1)),
    "row_of_input": lambda net, x: (net.first(x), x[1]),
    "last_row_of_input": lambda net, x: (net.first(x), x[x.shape[0] - 1 :]),
    "transposed_input": lambda net, x: (net.first(x), x.t()),
    "split_of_input": lambda net, x: (net.first(x), *x.split(1, dim=1)),
    "reshaped_input": lambda net, x: (net.first(x), x.reshape(3, -1)),
    "expanded_input": lambda net, x: (net.first(x), x[:, None].expand(-1, 2, -1)),
    "detached_input": lambda net, x: (net.first(x), x.detach()),
    "parameter": lambda net, x: (net.first(x), net.second.weight, net.second.weight.t()),
    "buffer": lambda net, x: (net.first(x), net.table[0]),
    "output_and_view": lambda net, x: (h := net.first(x), h.view(-1)),
    "output_and_row": lambda net, x: (h := net.first(x), h[0], h.t()),
    "two_views": lambda net, x: ((h := net.first(x)).t(), h.view(-1)),
    "two_halves": lambda net, x: net.first(x).chunk(2, dim=-1),
    "detached_output": lambda net, x: (h := net.first(x), h.detach()),
    "output_twice": lambda net, x: (h := net.first(x), h),
    "dropout_off": lambda net, x: (h := net.first(x), F.dropout(h, 0.5, False)),
    "copies": lambda net, x: (h := net.first(x), h.clone(), x.clone(), x + 0),
    "written_input": lambda net, x: (x.mul_(2), x[0], net.first(x)),
}


def aliases(tensors):
    """Which tensors are one object, and which share elements: by the addresses of each."""
    places = []
    for t in tensors:
        indices = torch.ones(t.shape).nonzero() * torch.tensor(t.stride())
        places.append({t.data_ptr() + 4 * int(i) for i in indices.sum(-1)})
    same = [[a is b for b in tensors] for a in tensors]
    return same, [[len(a & b) for b in places] for a in places]


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("what", SHARED)
def test_outputs_share_memory_as_in_eager(what, grad):
    """With the inputs and with each other: identity, overlap, writes, gradients; any batch size."""
    net = Net(SHARED[what])
    net.register_buffer("table", torch.ones(2, 3))
    pair = Pair(net)
    for batch in (5, 4):
        seen = []
        for module, inner in ((pair.eager, pair.eager), (pair.ours, pair.twin)):
            module.zero_grad()
            x = torch.arange(3.0 * batch).view(batch, 3)
            if grad and what != "written_input":
                x.requires_grad_()
            outputs = module(x)
            tensors = [*outputs, x, inner.second.weight, inner.table]
            sum((i + 1) * y.square().sum() for i, y in enumerate(outputs)).backward()
            gradient = x.grad
            if what not in ("expanded_input", "split_of_input", "two_halves"):  # eager refuses it
                with torch.no_grad():
                    outputs[-1].select(0, 0).fill_(7.0)
            values = [t.detach().clone() for t in tensors]
            needs = [t.requires_grad for t in tensors]
            seen.append((aliases(tensors), needs, [t.is_leaf for t in tensors], values, gradient))
        pair.compare()
        eager, ours = seen
        assert ours[:3] == eager[:3]
        for mine, theirs in zip(ours[3], eager[3], strict=True):
            close(mine, theirs, "a returned tensor")
        if gradient is not None:
            close(ours[4], eager[4], "the gradient of x")
    pair.through_engine(captures=1)


def test_a_returned_view_is_written_in_place():
    """A write through a view reaches the other output and its gradient."""
    pair = Pair(Net(lambda net, x: (h := net.first(x), h[0])))

    def act(module):
        whole, row = module(X)
        row.mul_(3)
        whole.square().sum().backward()

    outcomes(pair, act)
