"""autograd.Functions are steps of the plan with their own backward, or refused."""

import copy

import pytest
import torch
from pairs import Net, Pair, options
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ortmodule import ORTModule

X = torch.randn(5, 3)
CALLS = {"backward": 0}


class Product(Function):
    """As the documentation of torch.amp writes it; its gradient is not the product's."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a.mm(b)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g.mm(b.t()) * 2, a.t().mm(g)


class ProductInFloat32(Product):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a.mm(b)


class Plain(Function):
    """Without custom_fwd: autocast casts inside of it."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a.mm(b)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g.to(b.dtype).mm(b.t()), a.t().mm(g.to(a.dtype))


class Multiplied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.first, self.weight = nn.Linear(3, 4), nn.Parameter(torch.randn(4, 2))
        self.function = function

    def forward(self, x):
        return self.function.apply(self.first(x), self.weight).tanh()


@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [Product, ProductInFloat32, Plain])
def test_functions_under_autocast(function, dtype):
    eager = Multiplied(function)
    ours = ORTModule(copy.deepcopy(eager), options(fallback="error"))
    seen = []
    for module in (eager, ours):
        for _ in range(2):
            with torch.autocast("cpu", dtype, enabled=dtype is not None):
                y = module(X)
            y.float().square().sum().backward()
        seen.append([y, *(p.grad for p in module.parameters())])
    allowed = 1e-6 if dtype is None else torch.finfo(dtype).eps
    for theirs, mine in zip(*seen, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=allowed, atol=allowed)
    (fallback,) = ours.explain().fallbacks
    assert "autograd.Function" in fallback.reason and function.__name__ in fallback.op
    assert fallback.file == __file__ and ours.explain().captures == 1


def test_an_inner_region_of_autocast_reaches_a_function():
    def forward(net, x):
        x = net.first(x)
        with torch.autocast("cpu", torch.bfloat16):
            return Product.apply(x, net.second.weight.t()).float()

    pair = Pair(Net(forward), fallback="error")
    pair.step(X)


class Tripled(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 3


class Rows(Function):
    """With a setup_context of its own, a size, a default and two results, one without gradient."""

    @staticmethod
    def forward(x, rows, scale=2.0, name="sum"):
        return x[:rows] * scale, x.detach().clone()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.rows, ctx.scale = inputs[0].shape[0], inputs[2]
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, g, _):
        rest = g.new_zeros(ctx.rows - g.shape[0], *g.shape[1:])
        return torch.cat([g * ctx.scale, rest]), None, None, None


class Either(Function):
    """Asks what is needed; gradients that do not come are None, as is what it gives for them."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.set_materialize_grads(False)
        return a * 2, b * 3

    @staticmethod
    def backward(ctx, g, h):
        assert ctx.needs_input_grad == (True, True)
        return None if g is None else g * 5, None if h is None else h * 7


class Dirty(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Same(Tripled):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)


class Drawn(Tripled):
    @staticmethod
    def forward(ctx, x):
        return x * torch.rand_like(x)


class Counted(Tripled):
    @staticmethod
    def backward(ctx, g):
        CALLS["backward"] += 1
        return g * CALLS["backward"]


class Scaled(Tripled):
    """Of whatever it finds in an object that is no tensor."""

    @staticmethod
    def forward(ctx, x, given):
        ctx.given = given
        return x * 2

    @staticmethod
    def backward(ctx, g):
        given = ctx.given
        return g * (given["by"] if isinstance(given, dict) else given[0][0]), None


class Recomputed(Function):
    """A checkpoint of the user's own: it calls what it is given, which uses parameters."""

    @staticmethod
    def forward(ctx, call, x, *parameters):
        ctx.call = call
        ctx.save_for_backward(x, *parameters)
        return call(x)

    @staticmethod
    def backward(ctx, g):
        x, *parameters = ctx.saved_tensors
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.call(x)
        return None, *torch.autograd.grad(y, [x, *parameters], g)


class Accumulating(Function):
    """Its backward runs a backward, which adds to the parameters' gradients by itself."""

    @staticmethod
    def forward(ctx, call, x):
        ctx.call = call
        ctx.save_for_backward(x)
        return call(x)

    @staticmethod
    def backward(ctx, g):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            ctx.call(x).backward(g)
        return None, x.grad


class OneOfTwo(Function):
    """Gives no gradient for its second argument, which is not a gradient of zero."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(w)
        return x @ w.t()

    @staticmethod
    def backward(ctx, g):
        return g @ ctx.saved_tensors[0], None


class Shifted(Tripled):
    """Its own apply is what a user calls, and calls torch's."""

    @classmethod
    def apply(cls, x):
        return super().apply(x + 1) * 2


def call(function, *more):
    return lambda net, x: net.second(function.apply(net.first(x) + 0, *more))


bound = Tripled.apply
CAPTURED = {
    "bound": lambda net, x: net.second(bound(net.first(x))),
    "rows": lambda net, x: net.second(Rows.apply(net.first(x), x.shape[0] - 1, 3.0)[0]),
    "no_gradient": lambda net, x: net.second(net.first(x)) * Rows.apply(x, 2)[1].sum(),
    "one_of_two": lambda net, x: net.second(Either.apply(net.first(x), net.first.weight)[0]),
    "both": lambda net, x: sum(net.second(y) for y in Either.apply(net.first(x), net.first(-x))),
    "twice": lambda net, x: net.second(bound(bound(net.first(x)).relu())),
    "view": call(Same),
    "reversed_twice": lambda net, x: net.second(Same.apply(Same.apply(net.first(x)))),
    "own_apply": call(Shifted),
    "dict": call(Scaled, {"by": 5.0}),
    "list": call(Scaled, [(7.0,)]),
    "module": lambda net, x: Recomputed.apply(net.second, net.first(x), *net.second.parameters()),
    "method": lambda net, x: Recomputed.apply(
        net.second.forward, net.first(x), *net.second.parameters()
    ),
    "lambda": lambda net, x: Recomputed.apply(
        lambda h: net.second(h).tanh(), net.first(x), *net.second.parameters()
    ),
    "backward_within": lambda net, x: Accumulating.apply(net.second, net.first(x)),
    "none": lambda net, x: net.second(net.first(x)) + OneOfTwo.apply(x, net.unused),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_functions_give_their_own_gradients(name):
    net = Net(CAPTURED[name])
    net.unused = nn.Parameter(torch.randn(2, 3))
    pair = Pair(net, fallback="error")
    for rows in (5, 5, 6):
        pair.step(torch.randn(rows, 3))
    with torch.no_grad():
        pair.step(X)
    assert pair.report.captures == 2  # with gradients, of any size, and without


def test_what_is_saved_may_not_be_written_to():
    pair = Pair(Net(lambda net, x: Product.apply(net.first(x), net.second.weight.t())))
    for module in (pair.eager, pair.ours):
        loss = module(X).sum()
        with torch.no_grad():
            module.second.weight.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def local(net, x):
    factor = net.first(x).detach()

    class Local(Tripled):
        @staticmethod
        def backward(ctx, g):
            return g * factor

    return net.second(Local.apply(net.first(x)))


REFUSED = {
    "dirty": (call(Dirty), "written to by the autograd.Function"),
    "state": (call(Counted), "forward writes to"),
    "local": (local, "forward makes the autograd.Function"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_step_can_do_is_not_captured_whole(name):
    forward, reason = REFUSED[name]
    pair = Pair(Net(forward))
    for _ in range(3):
        results = []
        for module in (pair.eager, pair.ours):
            CALLS["backward"] = 0
            torch.manual_seed(1)
            module.zero_grad()
            y = module(X)
            y.square().sum().backward()
            results.append(y)
        torch.testing.assert_close(*results)
        pair.compare()
    pair.fell_back(reason)


def test_a_function_that_draws_draws_as_in_eager():
    pair = Pair(Net(call(Drawn)), fallback="error")
    for _ in range(3):
        pair.step(X)
    assert pair.report.captures == 1


@pytest.mark.parametrize("drawn", ["rand_like", "exponential_", "bernoulli", "dropout"])
def test_what_draws_after_a_function_is_in_no_region_with_what_it_reads(drawn):
    """Effects keep their order, and a region runs as one: here it would wait for itself."""
    draw = {
        "rand_like": torch.rand_like,
        "exponential_": lambda x: torch.empty_like(x).exponential_(),
        "bernoulli": lambda x: torch.bernoulli(x.sigmoid()),
        "dropout": lambda x: torch.dropout(x.detach(), 0.5, True),
    }[drawn]

    def forward(net, x):
        a = x.exp()
        b = Tripled.apply(a)
        return a * draw(x) + b

    model = ORTModule(Net(forward), options(fallback="error"))
    x = X.clone().requires_grad_()
    y = model(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y + x.exp())  # as Tripled's gradient is three


def test_what_a_function_passes_on_may_not_be_written_to():
    def forward(net, x):
        h = net.first(x)
        y = Same.apply(h)
        h.detach().mul_(2)
        return net.second(y)

    pair = Pair(Net(forward))
    for module in (pair.eager, pair.ours):
        with pytest.raises(RuntimeError, match="created inside a custom Function"):
            module(X)


class CompiledCapture(Function):
    """Saves its own result."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


def test_a_write_to_what_a_function_saved_is_eagers_error():
    def forward(net, x):
        return net.second(CompiledCapture.apply(net.first(x)).add_(1))

    pair = Pair(Net(forward))
    for module in (pair.eager, pair.ours):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            module(X).sum().backward()
    pair.fell_back("forward writes in place to what its own backward reads")


READ = {"by": 1.0}


class Reading(Tripled):
    """Its backward reads when it runs."""

    @staticmethod
    def backward(ctx, g):
        return g * READ["by"]


class Unmaterialised(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x.sin()

    @staticmethod
    def backward(ctx, a, b):
        return a * 2 if b is None else a * 7 + b


def cut(h):
    return h * 2 if h.sum() > 1e9 else h


AROUND = {"whole": lambda h: h, "in_parts": cut}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.filterwarnings("ignore:ORTModule runs")
def test_a_backward_reads_when_it_runs(around):
    def forward(net, x):
        h = AROUND[around](net.first(x).tanh().exp().sin())
        return net.second(Reading.apply(h.cos().exp()).tanh())

    pair = Pair(Net(forward))
    for by in (1.0, 2.0, 5.0):
        for module in (pair.eager, pair.ours):
            READ["by"] = 1.0
            module.zero_grad()
            y = module(X)
            READ["by"] = by
            y.square().sum().backward()
        pair.compare()


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.filterwarnings("ignore:ORTModule runs")
def test_gradients_that_do_not_come_stay_none(around):
    def forward(net, x):
        h = AROUND[around](net.first(x).tanh().exp().sin())
        y, _ = Unmaterialised.apply(h.cos().exp())
        return net.second(y.tanh())

    pair = Pair(Net(forward))
    for rows in (5, 5, 6):
        pair.step(torch.randn(rows, 3))


class Filled(Function):
    """Is given no tensor, or one that the module holds."""

    @staticmethod
    def forward(ctx, value):
        return value * 2 if isinstance(value, torch.Tensor) else torch.full((4,), float(value))

    @staticmethod
    def backward(ctx, g):
        return g


@pytest.mark.parametrize("value", [3, torch.arange(4.0)], ids=["number", "constant"])
def test_a_function_that_is_given_no_tensor_of_the_call(value):
    pair = Pair(Net(lambda net, x: net.second(net.first(x) * Filled.apply(value))))
    for rows in (5, 6):
        pair.step(torch.randn(rows, 3))
    assert pair.report.captures and pair.report.providers["aten"]


class Once(Tripled):
    """Tells on the module how often it ran."""

    @staticmethod
    def forward(ctx, x, told):
        told.forwards += 1
        return x * 2 + torch.rand_like(x)

    @staticmethod
    def backward(ctx, g):
        return g * 3, None


class Told:
    forwards = 0


def test_a_function_runs_once_though_the_forward_runs_again():
    told = Told()

    def forward(net, x):
        y = Once.apply(net.first(x), told)
        return net.second(y), y.tanh()

    net = Net(forward)
    ours = ORTModule(copy.deepcopy(net), options())
    for k in (0, 1, 0, 1, 1):
        results = []
        for module in (net, ours):
            told.forwards = 0
            module.zero_grad()
            torch.manual_seed(2)
            outputs = module(X)
            outputs[k].square().sum().backward(retain_graph=True)
            outputs[1 - k].sum().backward()
            results.append([*outputs, *(p.grad for p in module.parameters()), told.forwards])
        for mine, theirs in zip(results[1], results[0], strict=True):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_what_a_function_raises_is_the_users_own(where):
    class Mine(Exception):
        pass

    class Raising(Tripled):
        @staticmethod
        def forward(ctx, x):
            if where == "forward" and CALLS["raise"]:
                raise Mine("in forward")
            return x * 2

        @staticmethod
        def backward(ctx, g):
            if CALLS["raise"]:
                raise Mine("in backward")
            return g * 3

    pair = Pair(Net(call(Raising)))
    CALLS["raise"] = False
    pair.step(X)
    for module in (pair.eager, pair.ours):
        CALLS["raise"] = True
        with pytest.raises(Mine, match=where):
            module(X).sum().backward()
        CALLS["raise"] = False
    pair.step(X)
