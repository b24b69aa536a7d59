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


bound = Tripled.apply
CAPTURED = {
    "bound": lambda net, x: net.second(bound(net.first(x))),
    "rows": lambda net, x: net.second(Rows.apply(net.first(x), x.shape[0] - 1, 3.0)[0]),
    "no_gradient": lambda net, x: net.second(net.first(x)) * Rows.apply(x, 2)[1].sum(),
    "one_of_two": lambda net, x: net.second(Either.apply(net.first(x), net.first.weight)[0]),
    "both": lambda net, x: sum(net.second(y) for y in Either.apply(net.first(x), net.first(-x))),
    "twice": lambda net, x: net.second(bound(bound(net.first(x)).relu())),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_functions_give_their_own_gradients(name):
    pair = Pair(Net(CAPTURED[name]), fallback="error")
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


class Listed(Tripled):
    @staticmethod
    def forward(ctx, x, factors):
        return x * factors[0]

    @staticmethod
    def backward(ctx, g):
        return g, None


def local(net, x):
    factor = net.first(x).detach()

    class Local(Tripled):
        @staticmethod
        def backward(ctx, g):
            return g * factor

    return net.second(Local.apply(net.first(x)))


def call(function, *more):
    return lambda net, x: net.second(function.apply(net.first(x) + 0, *more))


REFUSED = {
    "dirty": (call(Dirty), "written to by the autograd.Function Dirty"),
    "view": (call(Same), "a view comes from the autograd.Function Same"),
    "random": (call(Drawn), "drawn by the autograd.Function Drawn"),
    "state": (call(Counted), "forward writes to"),
    "list": (lambda net, x: x.sum() * Listed.apply(net.first(x), [2.0]), "gives a list to"),
    "local": (local, "forward makes the autograd.Function"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_step_can_do_runs_in_eager(name):
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


def test_an_operator_with_a_gradient_written_in_python():
    library = torch.library.Library("ortmodule_written", "FRAGMENT")
    library.define("cube(Tensor x) -> Tensor")
    library.impl("cube", lambda x: x**3, "CompositeExplicitAutograd")
    torch.library.register_fake("ortmodule_written::cube", torch.empty_like, lib=library)
    torch.library.register_autograd(
        "ortmodule_written::cube",
        lambda ctx, g: g * ctx.saved_tensors[0] * 7,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
        lib=library,
    )

    def forward(net, x):
        return net.second(torch.ops.ortmodule_written.cube(net.first(x)))

    Pair(Net(forward), fallback="error").step(X)
