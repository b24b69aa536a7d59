"""Gradients written in Python in other forms than a static forward with its backward."""

import traceback

import pytest
import torch
from pairs import Net, Pair
from torch.autograd import Function

X = torch.randn(5, 3)


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


class Waved(Function):
    """In the form that torch.func's transforms and keywords take."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, factor=2.0):
        return x.sin() * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.factor = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.cos() * ctx.factor * 3, None


@pytest.mark.parametrize(
    "apply",
    [
        lambda x: Waved.apply(x),
        lambda x: Waved.apply(x, 4.0),
        lambda x: torch.func.grad(lambda y: Waved.apply(y).sum())(x),
        lambda x: torch.vmap(Waved.apply)(x),
    ],
)
def test_the_form_with_setup_context(apply):
    pair = Pair(Net(lambda net, x: net.second(apply(net.first(x)))))
    for batch in (5, 5, 7):
        pair.step(torch.randn(batch, 3))


class Calling(Function):
    @staticmethod
    def forward(ctx, x):
        Calling.stack = [frame.name for frame in traceback.extract_stack()]
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g


def test_apply_is_torchs_own_again_after_a_capture():
    Pair(Net(lambda net, x: net.second(Waved.apply(net.first(x))))).step(X)
    Calling.apply(X)
    assert not any(name.endswith("applied") for name in Calling.stack)
