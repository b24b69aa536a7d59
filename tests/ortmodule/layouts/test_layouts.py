"""Values that do not lie row-major between the kernels that take them so: eager's results and
gradients."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conv_samples import CASES, Convs, Twins, residual
from pairs import options
from torch import nn

from ortmodule import ORTModule

FEW = ["chain", "residual", "squeezed", "joined", "pooled", "depthwise_5", "next_block"]


@pytest.mark.parametrize(
    "name, channels",
    [(name, channels) for name in CASES for channels in (32, 20)]
    + [(name, channels) for name in FEW for channels in (8, 1)],
)
def test_training_is_eagers(name, channels):
    torch.manual_seed(0)
    twins = Twins(Convs(CASES[name], channels))
    for size in (12, 12, 8):
        twins.step(torch.randn(2, 3, size, size))
    twins.net.eval()
    twins.exact.eval()
    twins.step(torch.randn(3, 3, 12, 12))
    x = torch.randn(1, 3, 12, 12)
    with torch.no_grad():
        expected = twins.exact(x.double()).float()
        torch.testing.assert_close(twins.ours(x), expected, rtol=1e-4, atol=1e-5)


RANKS = [
    "residual", "squeezed", "joined", "cut_and_joined", "of_some_rows", "next_block", "transposed",
    "dropped_paths", "scaled_by_channel", "sums_of_products", "summed", "masked",
]  # fmt: skip


@pytest.mark.parametrize("name", RANKS)
@pytest.mark.parametrize(
    "kind, norm, sizes",
    [(nn.Conv1d, nn.BatchNorm1d, (30,)), (nn.Conv3d, nn.BatchNorm3d, (4, 6, 8))],
)
def test_other_ranks(name, kind, norm, sizes):
    torch.manual_seed(0)
    twins = Twins(Convs(CASES[name], 32, kind, norm))
    for batch in (2, 2, 3):
        twins.step(torch.randn(batch, 3, *sizes))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.int64])
@pytest.mark.parametrize("axes", [(0, 2, 3), (2, 3), (1,)])
def test_sums_of_whole_numbers_do_not_round(dtype, axes):
    """Beyond what float32 tells apart, and around where the dtype ends."""

    class Sums(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 32, 1)

        def forward(self, x):
            whole = (self.conv(x).relu() * 50).to(torch.int32)
            large = whole * 90_001 if dtype in (torch.int32, torch.int64) else whole
            return large.to(dtype).sum(axes, dtype=dtype)

    net = Sums()
    with torch.no_grad():
        net.conv.weight.copy_(torch.randint(-1, 2, net.conv.weight.shape))
        net.conv.bias.zero_()
    x = torch.randint(-3, 4, (2, 3, 40, 40)).float()
    ours = ORTModule(net, options())
    with torch.no_grad():
        assert torch.equal(ours(x), net(x))


HALVES = [  # relu's kink is met by what is rounded
    "residual_of_tanh", "squeezed", "joined", "cut_and_joined", "of_some_rows", "next_block",
    "transposed", "depthwise_5", "dropped_paths", "scaled_by_channel", "sums_of_products",
    "summed", "pooled",
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cast", ["autocast", "all"])
@pytest.mark.parametrize("name", HALVES)
def test_halves(name, cast, dtype):
    """No farther from float64 than eager's, which rounds at each op."""
    torch.manual_seed(0)
    net = Convs(CASES[name], 32)
    exact, x = copy.deepcopy(net).double(), torch.randn(2, 3, 12, 12)
    if cast == "all":
        net, x = net.to(dtype), x.to(dtype)
    ours, found = ORTModule(net, options()), []
    for module, owner, given in ((exact, exact, x.double()), (net, net, x), (ours, net, x)):
        owner.zero_grad()
        with torch.autocast("cpu", dtype, enabled=cast == "autocast" and owner is net):
            y = module(given)
        y.double().square().mean().backward()
        found.append([y, *(p.grad for p in owner.parameters() if p.grad is not None)])
    error = torch.finfo(dtype).eps
    largest = max(g.norm() for g in found[0][1:])
    for i, (a, b, c) in enumerate(zip(*found, strict=True)):
        least = error * (a.norm() if i == 0 else a.norm() + 0.1 * largest)
        assert (c.double() - a).norm() <= 2 * (b.double() - a).norm() + 2 * least


@pytest.mark.parametrize("other_rows", [0.0, 1e3])
@pytest.mark.parametrize("mean", [0.0, 3e3])
def test_statistics_beside_a_large_mean(mean, other_rows):
    """As exact as the kernel over planes: against float64. `other_rows`: how far most of an image
    lies from its first rows, whose mean the sums start from."""
    net = Convs(lambda net, y: F.relu(net.norm(y)).sum(1), 32)
    with torch.no_grad():
        net.first.bias += mean
    x = torch.randn(4, 3, 16, 16)
    x[:, :, 8:] += other_rows
    x[:, :, :8] *= 1 + other_rows / 1e3
    exact = net.double()(x.double())
    ours = ORTModule(net.float(), options())(x)
    bound = 1e-4 if mean == 0 else 2e-2
    assert (ours.double() - exact).abs().max() < bound * exact.abs().max()


@pytest.mark.parametrize("off", [(), ("layouts",)])
@pytest.mark.parametrize("providers", [("cpu", "aten"), ("reference",)])
def test_running_statistics_slope_where_x_is_not_finite(providers, off):
    """It is the same everywhere: no product of x and zero."""
    net = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 32, 1), nn.BatchNorm2d(32)).eval()
    ours, grads = ORTModule(net, options(providers=providers, off=off)), []
    x = torch.randn(2, 3, 12, 12)
    x[0, 0, 5, 5], x[1, 2, 0, 11] = torch.nan, torch.inf
    for module in (net, ours):
        net.zero_grad()
        given = x.clone().requires_grad_()
        y = module(given)
        (y * torch.arange(y.numel()).view(y.shape).sin()).sum().backward()
        grads.append([given.grad, net[2].weight.grad, net[2].bias.grad])
    assert grads[0][0].isfinite().all()
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-4, equal_nan=True)


def test_results_are_row_major():
    net = Convs(lambda net, y: (y, F.relu(y), net.second(F.relu(y))), 32)
    ours, x = ORTModule(net, options()), torch.randn(2, 3, 12, 12)
    given, expected = ours(x), net(x)
    for one, theirs in zip(given, expected, strict=True):
        assert one.is_contiguous()
        torch.testing.assert_close(one, theirs, rtol=1e-4, atol=1e-4)
    given[0].detach().zero_()  # its memory is the caller's: the backward reads another
    sum(one.square().sum() for one in given[1:]).backward()
    grads = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    net.zero_grad()
    sum(one.square().sum() for one in expected[1:]).backward()
    theirs = [p.grad for p in net.parameters() if p.grad is not None]
    torch.testing.assert_close(grads, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("written", [False, True])
def test_a_result_that_the_backward_reads_is_read_where_its_owner_has_it(written):
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.Sigmoid()
    )
    ours = ORTModule(net, options())
    plain = ORTModule(net, options(off=("layouts",)))
    x, grads = torch.randn(2, 3, 12, 12), []
    for module in (net, ours, plain):
        net.zero_grad()
        y = module(x)
        if written:
            y.data.mul_(0.5)  # told to no version: eager's backward reads what is there
        y.sum().backward()
        grads.append([p.grad for p in net.parameters()])
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-3)
    assert ours.explain().stash_bytes == plain.explain().stash_bytes


def test_a_backward_that_is_repeated():
    net = Convs(residual, 32)
    ours = ORTModule(net, options())
    y = ours(torch.randn(2, 3, 12, 12)).square().sum()
    y.backward(retain_graph=True)
    once = [p.grad.clone() for p in net.parameters()]
    y.backward()
    for p, first in zip(net.parameters(), once, strict=True):
        torch.testing.assert_close(p.grad, 2 * first, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("channels", [16, 2064])
def test_sums_over_rows_of_many_channels(channels):
    """A row of them is longer than what a program takes of other rows at once."""

    class Rows(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 16, 3, padding=1)
            self.wide = nn.Linear(16, channels)
            self.scale = nn.Parameter(torch.rand(channels, 1, 1) + 0.5)
            self.last = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

        def forward(self, x):
            h = self.wide(self.first(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            h = self.last(self.scale * h).sigmoid() * h
            return h.tanh().mean((2, 3)) + (h * h).sum((2, 3))

    twins = Twins(Rows())
    for size in (6, 5):
        twins.step(torch.randn(2, 3, size, size))


def test_a_constant_is_packed_for_all_sizes_at_once(tmp_path):
    """Whatever was run before."""
    from ortmodule import InferenceSession

    net = Convs(CASES["chain"], 32).eval()
    path = tmp_path / "net.onnx"
    torch.onnx.export(
        net, (torch.randn(2, 3, 12, 12),), str(path), dynamo=False, input_names=["x"],
        dynamic_axes={"x": {0: "n", 2: "h", 3: "w"}},
    )  # fmt: skip
    session = InferenceSession(path)
    for sizes in ((2, 12, 12), (1, 8, 8), (2, 12, 12), (3, 9, 7)):
        x = np.random.default_rng(0).standard_normal((sizes[0], 3, *sizes[1:]), np.float32)
        ours = session.run(None, {"x": x})[0]
        expected = net(torch.from_numpy(x)).detach().numpy()
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


class Plain(nn.Module):
    """Convolutions without norms: what comes after each one joins it."""

    def __init__(self, activation):
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1)
        self.second = nn.Conv2d(32, 32, 3, padding=1)
        self.third = nn.Conv2d(32, 32, 1)
        self.activation = activation

    def forward(self, x):
        h = self.activation(self.first(x))
        return self.activation(self.third(self.activation(self.second(h))) + h)


@pytest.mark.parametrize(
    "activation, name, trains",
    [
        (F.relu, "relu", True),
        (torch.sigmoid, "sigmoid", True),
        (torch.tanh, "tanh", True),
        (F.relu6, "clip", False),
        (F.silu, "silu", False),
        (F.hardswish, "hard_swish", False),
        (lambda y: F.leaky_relu(y, 0.2), "leaky_relu", False),
    ],
)
def test_a_sum_and_an_activation_join_a_convolution(activation, name, trains):
    """In training too where the gradient reads the result alone."""
    torch.manual_seed(0)
    twins = Twins(Plain(activation))
    for size in (12, 12, 8):
        twins.step(torch.randn(2, 3, size, size))
    joined = {step.name for step in twins.ours.explain().steps if step.name.startswith("Conv+")}
    assert joined == ({f"Conv+{name}", f"Conv+add+{name}"} if trains else {"Conv+add"})
    x = torch.randn(2, 3, 12, 12)
    x[0, 1, 3, 4], x[1, 2, 5, 6] = torch.nan, torch.inf
    with torch.no_grad():
        torch.testing.assert_close(
            twins.ours(x), twins.exact(x.double()).float(), rtol=1e-4, atol=1e-5, equal_nan=True
        )
    names = [step.name for step in twins.ours.explain().steps]
    assert [n for n in names if "Conv" in n or "add" in n] == [
        f"Conv+{name}", f"Conv+{name}", f"Conv+add+{name}"
    ]  # fmt: skip
