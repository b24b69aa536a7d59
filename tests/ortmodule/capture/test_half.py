"""Modules in halves and float64: the types of their graphs, and their training, are eager's."""

import copy

import pytest
import torch
from captured import Function, captured, check, printed
from near import check_step, check_truth
from torch import nn

from ortmodule import Options, ORTModule

HALVES = [torch.bfloat16, torch.float16]


def test_a_float64_mlp_trains_as_eager():
    twin = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.LayerNorm(32), nn.Linear(32, 4)).double()
    model = ORTModule(copy.deepcopy(twin), Options(fallback="error"))
    steps = [(m, torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)) for m in (model, twin)]
    for _ in range(20):
        x, losses = torch.randn(16, 8, dtype=torch.float64), []
        for module, optimizer in steps:
            optimizer.zero_grad()
            loss = module(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert abs(losses[0] - losses[1]) <= 1e-12
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_a_number_made_of_sizes_is_exact_in_float64():
    x = torch.randn(4, 7, dtype=torch.float64)
    check(Function(lambda x: x * (1 / (x.shape[-1] ** 0.5 + 1))), x, rtol=1e-15, atol=0)


CONVS = {
    "depthwise": (nn.Conv2d(64, 64, 3, 2, 1, groups=64), (2, 64, 1, 1)),
    "in groups": (nn.Conv2d(64, 64, 3, 2, 1, groups=4), (2, 64, 2, 2)),
    "a line": (nn.Conv1d(24, 8, 5, 2, 3, groups=8), (4, 24, 1)),
    "one group": (nn.Conv2d(32, 16, (7, 5), (1, 2), (1, 2)), (2, 32, 5, 1)),
    "taps beside": (nn.Conv3d(24, 40, (2, 5, 3), (3, 1, 3), (1, 0, 1), (1, 2, 1), 8),
                    (2, 24, 16, 17, 1)),
    "one output": (nn.Conv3d(32, 8, (5, 7, 3), (1, 2, 1), (2, 1, 2), (1, 1, 2), 8),
                   (2, 32, 9, 5, 9)),
}  # fmt: skip


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", CONVS)
def test_windows_that_reach_beyond_small_images(name, autocast):
    """Where oneDNN's weight gradient in bfloat16, which is eager's, reads what is not the image's:
    what lies there may be anything, so that float64 alone judges."""
    conv, shape = CONVS[name]
    x = torch.randn(shape)
    if autocast:
        check_truth(copy.deepcopy(conv), x, dtype=torch.bfloat16)
    else:
        check_truth(copy.deepcopy(conv).bfloat16(), x.bfloat16())


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("loss", ["mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss", "kl_div"])
def test_losses_round_once(loss, half):
    x, y = torch.rand(512).to(half), torch.rand(512).to(half)
    run = getattr(nn.functional, loss)
    text = captured(Function(lambda x, y: run(x, y, reduction="none")), x, y).graph.text()
    name = str(half).removeprefix("torch.")
    made = [line for line in text.splitlines() if " = " in line and f"# {name}[" in line]
    assert len(made) == 1 and " = Cast(" in made[0], text


@pytest.mark.parametrize("half", HALVES)
def test_many_elements_are_counted_right(half):
    """257 and 2,049 are no numbers of a half."""
    x = torch.randn(2050)
    text = captured(Function(lambda x: x.var()), x.to(half)).graph.text()
    assert "Div" in text and all(
        "float32" in line for line in text.splitlines() if " = Div(" in line
    )


@pytest.mark.parametrize("number", [1e5, 1e-6, 1.37])
def test_numbers_beside_halves_are_float32s(number):
    class Scaled(nn.Module):
        def forward(self, x):
            return x * number, x / number

    x = torch.tensor([1e-3, 0.0, -0.5, 6e4], dtype=torch.float16)
    for ours, eager in zip(ORTModule(Scaled(), Options("error"))(x), Scaled()(x), strict=True):
        assert torch.equal(ours, eager)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_gradient_of_logsumexp_is_as_near_as_eagers(dtype):
    class Scaled(nn.Module):
        def forward(self, x):
            return torch.logsumexp(x * 64, -1)

    def gradient(module, x):
        x = x.clone().requires_grad_()
        module(x).sum().backward()
        return x.grad.double()

    torch.manual_seed(0)
    x = torch.randn(16, 40).to(dtype)
    exact = gradient(Scaled(), x.double())
    ours, eager = gradient(ORTModule(Scaled(), Options("error")), x), gradient(Scaled(), x)
    allowed = 2 * (eager - exact).abs().max() + torch.finfo(dtype).eps * exact.abs().max()
    assert (ours - exact).abs().max() <= allowed


ATTRIBUTES = {
    "layer_norm": lambda x: nn.functional.layer_norm(x, (8,), eps=1e-5),
    "leaky_relu": lambda x: nn.functional.leaky_relu(x, 0.01),
    "elu": lambda x: nn.functional.elu(x, 1.1),
    "dropout": lambda x: nn.functional.dropout(x, 0.1),
}


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", ATTRIBUTES)
def test_numbers_that_an_op_computes_with_itself_widen_nothing(name, half):
    assert not printed(captured(Function(ATTRIBUTES[name]), torch.randn(4, 8).to(half)), "Cast")


NUMBERS = {
    "size": lambda x: x / x.shape[0],
    "made of sizes": lambda x: x * (x.shape[0] ** -0.5),
    "norm": lambda x: torch.linalg.vector_norm(x, 2.3, dim=0),
    "softplus": lambda x: nn.functional.softplus(x, 1.3),
    "alpha": lambda x: torch.add(x, x, alpha=0.3),
}


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_are_no_halves_are_not_rounded(name, half):
    report = check_step(Function(NUMBERS[name]), torch.rand(263, 3).to(half))
    assert report.captures == 1


F = nn.functional
_CLASS_WEIGHTS = torch.linspace(0, 1, 100)
INSIDE = {
    "elu": lambda x: F.elu(x, 1e5),
    "celu": lambda x: F.celu(x, 0.3),
    "selu": F.selu,
    "leaky_relu": lambda x: F.leaky_relu(x, 1e5),
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "mish": F.mish,
    "silu": F.silu,
    "softplus": lambda x: F.softplus(x, 0.3, 3),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "erf": torch.erf,
    "log2": lambda x: torch.log2(x.abs() + 1),
    "instance_norm": lambda x: F.instance_norm(x.reshape(1, 3, -1) * 1e-3, eps=1e-8),
    "local_response_norm": lambda x: F.local_response_norm(x.reshape(1, 3, -1), 2, 1e-4),
}


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", INSIDE)
def test_numbers_inside_an_op_are_no_halves(name, half):
    """2 / sqrt(pi), an alpha beyond 65,504, an epsilon below every float16."""
    check_step(Function(INSIDE[name]), (torch.randn(263, 3) * 1.5).to(half))


@pytest.mark.parametrize("half", HALVES)
def test_a_cross_entropy_in_halves_keeps_its_parts_wide(half):
    x, target = (torch.randn(64, 100) * 5).to(half), torch.randint(0, 100, (64,))
    for reduction in ("none", "sum", "mean"):
        report = check_step(
            Function(
                lambda x, r=reduction: F.cross_entropy(
                    x, target, _CLASS_WEIGHTS.to(x.dtype), reduction=r
                )
            ),
            x,
        )
        assert not [cast for cast in report.casts if cast.endswith("to float32")], report.casts


def test_gradients_of_equal_casts_are_added_in_the_wider_dtype():
    class Module(nn.Module):
        def forward(self, x):
            return sum((x.bfloat16() * (i + 1.17)).float() for i in range(8))

    x = torch.randn(3, 4, generator=torch.manual_seed(0))
    grads = []
    for model in (Module(), ORTModule(Module(), Options("error"))):
        leaf = x.clone().requires_grad_()
        model(leaf).sum().backward()
        grads.append(leaf.grad)
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-6, atol=0)


LARGE = {
    "mish": (F.mish, torch.bfloat16, [3e38, 1.0], 1.48),
    "mish in float32": (F.mish, torch.float32, [3e38, 1.0], -1.484),
    "glu": (lambda x: F.glu(x, 0), torch.float16, [65504.0, 2.5], -1.4),
    "softplus": (lambda x: F.softplus(x, 3.0, 2.0), torch.bfloat16, [0.66796875, 0.3], 1.0),
}


@pytest.mark.parametrize("name", LARGE)
def test_what_is_finite_in_eager_is_here(name):
    """Values and gradients where a product within the op leaves the dtype's range."""
    function, dtype, numbers, slope = LARGE[name]
    results = []
    for module in (function, ORTModule(Function(function), Options(fallback="error"))):
        x = torch.tensor(numbers).to(dtype).requires_grad_()
        y = module(x)
        y.backward(torch.full_like(y, slope))
        results.append((y.detach(), x.grad))
    for ours, theirs in zip(*reversed(results), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=3 * torch.finfo(dtype).eps, atol=0)


# Functions of a tensor and a number that have a step where these two are equal.
_STEPS = {
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "not_equal": torch.not_equal,
    "greater": torch.greater,
    "greater_equal": torch.greater_equal,
    "less": torch.less,
    "less_equal": torch.less_equal,
    "floor_divide": torch.floor_divide,
    "div_floor": lambda x, n: torch.div(x, n, rounding_mode="floor"),
    "div_trunc": lambda x, n: torch.div(x, n, rounding_mode="trunc"),
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "hardshrink": nn.functional.hardshrink,
    "softshrink": nn.functional.softshrink,
    "threshold": lambda x, n: nn.functional.threshold(x, n, -1.0),
    "where": lambda x, n: torch.where(x > n, x, 0.0),
}


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", _STEPS)
def test_a_step_is_on_torchs_side(name, half):
    """Whether the number is rounded first decides it, and torch's kernels differ."""
    function = _STEPS[name]
    for number in (1.006, 0.3003):
        near = torch.tensor(number).to(half)
        ulps = torch.arange(-3, 4) * torch.finfo(half).eps
        x = torch.cat([near * (k * (1 + ulps)).to(half) for k in (1, -1, 2, -2, 3, 7)])
        theirs = function(x, number)
        ours = ORTModule(Function(lambda x, n=number: function(x, n)), Options(fallback="error"))(x)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
