"""A backward under create_graph: what torch makes of a module's gradient is eager's, whole and in
parts."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from pairs import Net, Pair, mlp, options
from torch import nn
from torch._higher_order_ops.map import map as over
from torch.autograd import functional
from torch.utils.checkpoint import checkpoint

from ortmodule import ORTModule

ROWS = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * 3 * x * x


class Once(Cubed):
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        return Cubed.backward(ctx, dy)


def nonlinear(name, slope):
    """A Function whose gradient is not linear in the one that comes in."""

    def backward(ctx, dy):
        return slope(dy) * ctx.saved_tensors[0].cos()

    members = {"forward": staticmethod(_sine), "backward": staticmethod(backward)}
    return type(name, (torch.autograd.Function,), members)


def _sine(ctx, x):
    ctx.save_for_backward(x)
    return x.sin()


CLAMPED = nonlinear("Clamped", lambda dy: dy.clamp(-0.3, 0.3))
UNIT = nonlinear("Unit", lambda dy: dy / (dy.norm() + 1e-3))
SQUARED = nonlinear("Squared", lambda dy: dy * dy)


def smooth(net, x):
    return net.second(net.first(x).tanh())


def cut(net, x):
    h = net.first(x).tanh().exp().mul(2)
    if h.sum() > 1e9:
        h = h * 2
    return net.second(h.sin()).sigmoid().square()


def hidden_too(net, x):
    h = net.first(x).exp()
    return h.sin(), net.second(h)


def written_to(net, x):
    h = net.first(x) * 2
    h[0] = 1.0
    h.view(-1)[1].mul_(3)
    return h, net.second(h.sin())


def through_views(net, x):
    h = net.first(x).exp()
    return h.t(), net.second(h.t().t()), h


def without_gradients(net, x):
    with torch.no_grad():
        w = net.first(x).exp()
    return net.second(net.first(x).sin()) * w[:, :2] + net.first(x).detach()[:, :2]


def in_place(net, x):
    return net.second(net.first(x).mul_(2).tanh_())


def penalty(module, x):
    """Of a gradient, and then the gradient of both."""
    x = x.clone().requires_grad_()
    loss = sum(y.square().sum() for y in _tensors(module(x)))
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    ((slope.norm(dim=-1) - 1).square().sum() + loss).backward()
    return slope, x.grad


def with_the_outputs(module, x):
    """What two backwards under create_graph gave and the outputs, in one loss."""
    x = x.clone().requires_grad_()
    results = _tensors(module(x))
    loss = sum(y.square().sum() for y in results)
    slopes = torch.autograd.grad(loss, [x, *module.parameters()], create_graph=True)
    (other,) = torch.autograd.grad(results[-1].sin().sum(), x, create_graph=True)
    total = sum(slope.square().sum() for slope in slopes) + other.exp().sum()
    (total + sum(y.exp().sum() for y in results)).backward()
    return (*slopes, other, x.grad)


def of_a_gradient_alone(module, x):
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
    slope.square().sum().backward()
    return slope, x.grad


def begun_in_a_hook(module, x):
    """A backward under create_graph runs while one that has not come to the module yet does."""
    x, found = x.clone().requires_grad_(), []
    y = module(x)
    loss, other = y.square().sum(), y.sin().sum()
    first = loss * 2
    first.register_hook(lambda _: found.extend(torch.autograd.grad(other, x, create_graph=True)))
    first.backward(retain_graph=True)
    (found[0].square().sum() + loss).backward()
    return found[0], x.grad


def _tensors(result):
    return result if isinstance(result, tuple) else (result,)


def adapted(module, x):
    """One inner step of meta-learning, and its outer gradient."""
    names, parameters = zip(*module.named_parameters(), strict=True)
    slopes = torch.autograd.grad(module(x).square().mean(), parameters, create_graph=True)
    inner = {n: p - 0.1 * g for n, p, g in zip(names, parameters, slopes, strict=True)}
    torch.func.functional_call(module, inner, (x,)).square().mean().backward()


def added_up(module, x):
    module(x).square().sum().backward(create_graph=True)
    module(2 * x).sin().sum().backward(create_graph=True)
    total = sum(p.grad.square().sum() for p in module.parameters())
    for p in module.parameters():
        p.grad = None
    total.backward()
    return (total,)


def third(module, x):
    found = [x.clone().requires_grad_()]
    y = module(found[0]).square().sum()
    for _ in range(3):
        (slope,) = torch.autograd.grad(y, found[0], create_graph=True)
        found.append(slope)
        y = slope.square().sum()
    return found


def of_hidden(module, x):
    x = x.clone().requires_grad_()
    h, y = module(x)
    slopes = torch.autograd.grad(y.square().sum(), [h, x], create_graph=True)
    sum(slope.square().sum() for slope in slopes).backward()
    return (*slopes, x.grad)


def hooked(module, x):
    """A hook on a returned tensor, from which another output is computed."""
    x = x.clone().requires_grad_()
    h, y = module(x)
    seen = []
    h.register_hook(lambda dh: seen.append(dh.detach()) or dh * 2)
    h.retain_grad()
    y.square().sum().backward(create_graph=True)
    (second,) = torch.autograd.grad(x.grad.square().sum(), x)
    return (*seen, h.grad, second)


def kept_for_a_later_one(module, x):
    x = x.clone().requires_grad_()
    y = module(x).square().sum()
    (first,) = torch.autograd.grad(y, x, retain_graph=True)
    (second,) = torch.autograd.grad(y, x, create_graph=True)
    y.backward(retain_graph=True)
    second.square().sum().backward()
    return first, second, x.grad


def batched(module, x):
    x = x.clone().requires_grad_()
    y = module(x)
    rows = torch.eye(y.numel()).reshape(-1, *y.shape)
    (found,) = torch.autograd.grad(y, x, rows, is_grads_batched=True, create_graph=True)
    found.square().sum().backward()
    return found, x.grad


def of_two_inputs(module, x):
    """The second is computed from the first."""
    a = x.clone().requires_grad_()
    b = a.sin()
    slopes = torch.autograd.grad(module(a, b).square().sum(), [a, b], create_graph=True)
    sum(slope.square().sum() for slope in slopes).backward()
    return (*slopes, a.grad)


def transposed(module, x):
    x = x.t().contiguous().requires_grad_()
    (slope,) = torch.autograd.grad(module(x.t()).square().sum(), x, create_graph=True)
    slope.square().sum().backward()
    return slope, x.grad


def within_autocast(module, x):
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = module(x)
    (slope,) = torch.autograd.grad(y.float().square().sum(), x, create_graph=True)
    slope.square().sum().backward()
    return slope, x.grad


def twice_through(module, x):
    return penalty(lambda v: module(torch.cat([module(v), v[:, :1]], 1)), x)


def checkpointed(module, x):
    return penalty(lambda v: checkpoint(module, v, use_reentrant=False), x)


def _jacobian(module, x, **how):
    return functional.jacobian(lambda v: module(v).sin(), x[0], **how)


def _hessian(module, x, **how):
    return functional.hessian(lambda v: module(v).square().sum(), x[0], **how)


def jacobian(module, x):
    found = _jacobian(module, x, create_graph=True)
    found.square().sum().backward()
    return found, _jacobian(module, x, vectorize=True)


def hessian(module, x):
    return _hessian(module, x), _hessian(module, x, vectorize=True)


def products(module, x):
    def loss(v):
        return module(v).square().sum()

    return (
        functional.hvp(loss, x[0], x[1])[1],
        functional.vhp(loss, x[0], x[1])[1],
        functional.jvp(module, x[0], x[1])[1],
    )


USES = {f.__name__: f for f in (
    penalty, adapted, added_up, third, kept_for_a_later_one, batched, transposed, within_autocast,
    twice_through, checkpointed, jacobian, hessian, products,
)}  # fmt: skip
NETS = {f.__name__: f for f in (smooth, cut, without_gradients, in_place)} | {
    "a Function": lambda net, x: net.second(Cubed.apply(net.first(x))),
    "a checkpoint": lambda net, x: net.second(
        checkpoint(lambda v: net.first(v).sin(), x, use_reentrant=False)
    ),
    "sizes that depend on data": lambda net, x: smooth(net, x)[x[:, 0] > 0].square(),
    "a numbered loop": lambda net, x: net.second(_looped(net.first(x))),
    "both branches": lambda net, x: _branched(net, x) + _branched(net, -x),
    "Functions that are not linear": lambda net, x: net.second(
        CLAMPED.apply(UNIT.apply(net.first(x)).tanh())
    ),
    "such Functions in parts": lambda net, x: _in_parts(net, x),
    "hooks": lambda net, x: _hooked(net, x),
    "an input seen in another shape": lambda net, x: smooth(net, x.t().reshape(-1).view(4, 3)),
}
TOGETHER = {  # where the graph of the second run is that of the first one's outputs too
    "Functions that are not linear": NETS["Functions that are not linear"],
    "such Functions in parts": NETS["such Functions in parts"],
    "hooks": NETS["hooks"],
    "a hidden one too": lambda net, x: (
        h := UNIT.apply(net.first(x)), net.second(SQUARED.apply(h)) + h.sum()
    ),
}  # fmt: skip
SPECIAL = {
    "hidden": (hidden_too, penalty),
    "of a hidden one": (lambda net, x: (h := net.first(x).exp(), net.second(h)), of_hidden),
    "hooked": (lambda net, x: (h := net.first(x) * 3, net.second(h.sin())), hooked),
    "views": (through_views, penalty),
    "written to": (written_to, penalty),
    "written to and hooked": (written_to, hooked),
    "two inputs": (lambda net, a, b: net.first(a).sin() * net.first(b).exp(), of_two_inputs),
}


def _looped(x):
    return over(lambda row: row.sin() * row, x)


def _in_parts(net, x):
    h = UNIT.apply(net.first(x)).tanh()
    if h.sum() > 1e9:
        h = h * 2
    return net.second(CLAMPED.apply(h)).sigmoid()


def _hooked(net, x):
    """The result of an operator that saves it has a hook."""
    h = net.first(x).tanh()
    h.register_hook(lambda dh: dh.clamp(-0.1, 0.1))
    return net.second(h * h).sigmoid()


def _branched(net, x):
    def yes(v):
        return net.first(v).sin()

    return net.second(torch.cond(x.sum() > 0, yes, lambda v: net.first(v).exp(), (x,)))


def found_by(use, module, x):
    """Tensors that it gives, and the gradients that it leaves."""
    torch.manual_seed(0)
    result = use(module, x)
    found = [t.detach().clone() for t in (result or ()) if t is not None]
    found += [p.grad for p in module.parameters()]
    module.zero_grad()
    return found


def check(net, use, x=ROWS, again=True, **fields):
    """Eager's, twice; again: forward ran again for it."""
    module = net if isinstance(net, nn.Module) else Net(net)
    pair = Pair(module, **fields)
    close = {"rtol": 0.02, "atol": 0.02} if use is within_autocast else {}
    for _ in range(2):
        for a, b in zip(found_by(use, pair.ours, x), found_by(use, pair.eager, x), strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b, **close)
    report = pair.report
    assert report.captures and (report.second_runs > 0) == again
    return report


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("net", ["smooth", "cut"])
def test_uses(net, use):
    report = check(NETS[net], USES[use])
    assert len(report.parts) == (2 if net == "cut" else 0)


@pytest.mark.parametrize("net", sorted(NETS.keys() - {"smooth", "cut", "both branches"}))
def test_modules(net):
    check(NETS[net], penalty)


@pytest.mark.parametrize("use", [with_the_outputs, of_a_gradient_alone, begun_in_a_hook])
@pytest.mark.parametrize("net", TOGETHER)
def test_a_gradient_is_whole_where_it_meets(net, use):
    """Functions and hooks get the sum of what the loss and a gradient's gradient bring."""
    function = TOGETHER[net]
    if net == "a hidden one too" and use is not with_the_outputs:
        function = lambda net, x: TOGETHER["a hidden one too"](net, x)[1]  # noqa: E731
    check(function, use)


def test_hooks_on_modules_see_what_eagers_do():
    seen = []

    def hooked():
        net = Net(smooth)
        net.first.register_full_backward_hook(lambda *found: seen.append(found[2][0].detach()))
        net.second.register_full_backward_pre_hook(lambda _, found: (found[0].clamp(-0.1, 0.1),))
        return net

    def use(module, x):
        seen.clear()
        return [*with_the_outputs(module, x), *seen]

    check(hooked(), use)


@pytest.mark.parametrize("kept", [0, 1])
def test_an_output_may_be_dropped(kept):
    """What leads to the other's inputs alone is gone before the backward."""

    def use(module, x):
        x = x.clone().requires_grad_()
        y = module(x)[kept]
        (slope,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        (slope.square().sum() + y.sum()).backward()
        return slope, x.grad

    check(hidden_too, use)


@pytest.mark.parametrize("case", SPECIAL)
def test_outputs_and_inputs(case):
    check(*SPECIAL[case])


LAYERS = {
    "batch norm": lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh()),
    "layer norm": lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.GELU()),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 4, 2), nn.SiLU(), nn.MaxPool1d(2), nn.Flatten()
    ),
    "softmax": lambda: nn.Sequential(nn.Linear(3, 3), nn.Softmax(1), nn.Linear(3, 2)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    check(LAYERS[name](), penalty)


def test_attention_of_a_scale():
    """Of values of another width, where torch's kernel has a gradient of its gradient."""

    def forward(net, x):
        q, v = net.first(x)[None, None], net.second(net.first(x))[None, None]
        return F.scaled_dot_product_attention(q, q, v, scale=0.3)

    check(forward, penalty)


def test_torch_has_no_gradient_of_the_gradient():
    """What torch refuses is refused in its words."""
    pair = Pair(Net(lambda net, x: net.second(Once.apply(net.first(x)))))
    for module in (pair.eager, pair.ours):
        with pytest.raises(RuntimeError, match="once_differentiable"):
            penalty(module, ROWS)


class Dropped(nn.Module):
    """Its output and the gradient of its square's half sum show the mask."""

    def __init__(self, drop, rank=2):
        super().__init__()
        self.drop, self.rank = drop, rank

    def forward(self, x):
        return self.drop(x)


DROPS = {
    "dropout": lambda x: F.dropout(x * 1.0, 0.4),
    "dropout twice": lambda x: F.dropout(F.dropout(x * 1.0, 0.3), 0.3),
    "in place": lambda x: F.dropout(x * 1.0, 0.4, inplace=True),
    "channels": lambda x: F.dropout1d(x[..., None].expand(*x.shape, 2) * 1.0, 0.4),
    "bernoulli": lambda x: x * torch.bernoulli(torch.ones_like(x), 0.5),
    "torch's own": lambda x: x * torch.rand_like(x),
    "attention": lambda x: F.scaled_dot_product_attention(
        torch.zeros(1, 1, *x.shape), torch.zeros(1, 1, *x.shape), x[None, None], dropout_p=0.4
    ),
    "attention of a scale": lambda x: F.scaled_dot_product_attention(
        torch.zeros(1, 1, *x.shape),
        torch.zeros(1, 1, *x.shape),
        x[None, None],
        dropout_p=0.4,
        scale=0.5,
    ),
    "in a loop": lambda x: over(lambda row: F.dropout(row, 0.4), x * 1.0),
}


@pytest.mark.parametrize("name", DROPS)
def test_the_second_run_has_the_masks_of_the_first(name):
    """The module is linear in x: y = Ax, so the gradient of y.dot(v) is A'v for the same A."""
    ours = ORTModule(Dropped(DROPS[name]), options())
    for k in range(3):
        torch.manual_seed(k)
        x = torch.rand(6, 4).add(0.5).requires_grad_()
        y = ours(x)
        v = torch.rand(y.shape)
        (slope,) = torch.autograd.grad(y, x, v, create_graph=True)
        torch.testing.assert_close((slope * x).sum(), (y * v).sum())
    assert ours.explain().second_runs == 3 and ours.explain().captures == 1


def test_a_recurrent_layer_has_its_masks_again():
    ours = ORTModule(nn.LSTM(3, 4, num_layers=3, dropout=0.5, batch_first=True), options())
    x = torch.rand(2, 5, 3, requires_grad=True)
    y, _ = ours(x)
    (plain,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    torch.testing.assert_close(slope, plain)
    slope.square().sum().backward()


def test_torch_checks_it_by_differences():
    ours = ORTModule(Net(smooth).double(), options())
    x = ROWS.double().requires_grad_()
    assert torch.autograd.gradcheck(ours, x)
    assert torch.autograd.gradgradcheck(ours, x, check_batched_grad=True)


def test_it_is_told_once():
    ours = ORTModule(mlp(), options())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        penalty(ours, ROWS)
        penalty(ours, ROWS)
    told = [str(w.message) for w in told if "create_graph=True: the first" in str(w.message)]
    assert len(told) == 1 and "runs forward again in eager PyTorch" in told[0]
    report = ours.explain()
    assert report.second_runs == 2 and report.second_runs_ms > 0 and not report.fallbacks
    assert "2 forwards ran again in eager PyTorch for a backward with create_graph=True" in str(
        report
    )


def test_a_weight_that_changed_before_is_eagers_error():
    pair = Pair(mlp())
    for module in (pair.eager, pair.ours):
        x = ROWS.clone().requires_grad_()
        y = module(x).square().sum()
        with torch.no_grad():
            module[2].weight.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(y, x, create_graph=True)


def test_a_weight_that_changes_in_between_is_eagers_error():
    pair = Pair(mlp())
    for module in (pair.eager, pair.ours):
        x = ROWS.clone().requires_grad_()
        (slope,) = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
        with torch.no_grad():
            module[2].weight.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            slope.square().sum().backward()


def test_what_eager_does_not_read_may_change():
    """A bias: the first time it is an error, after which it is kept."""
    pair = Pair(mlp())

    def use(module, x):
        x = x.clone().requires_grad_()
        y = module(x).square().sum()
        with torch.no_grad():
            module[0].bias.add_(1)
        (slope,) = torch.autograd.grad(y, x, create_graph=True)
        slope.square().sum().backward()
        return slope, x.grad

    found_by(use, pair.eager, ROWS)
    with pytest.raises(RuntimeError, match=r"input \d of the module has been modified .* under "
                       "create_graph runs forward again"):  # fmt: skip
        found_by(use, pair.ours, ROWS)
    for a, b in zip(found_by(use, pair.ours, ROWS), found_by(use, pair.eager, ROWS), strict=True):
        torch.testing.assert_close(a, b)


def test_a_graph_is_used_up():
    pair = Pair(mlp())
    for module in (pair.eager, pair.ours):
        x = ROWS.clone().requires_grad_()
        y = module(x).square().sum()
        torch.autograd.grad(y, x, create_graph=True, retain_graph=False)
        with pytest.raises(RuntimeError, match="second time"):
            y.backward()


def test_the_module_may_be_gone():
    module = copy.deepcopy(mlp())
    ours = ORTModule(module, options())
    x = ROWS.clone().requires_grad_()
    y = ours(x).square().sum()
    del ours, module
    (slope,) = torch.autograd.grad(y, x, create_graph=True)
    slope.square().sum().backward()
    assert x.grad is not None
