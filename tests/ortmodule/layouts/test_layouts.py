"""Values that do not lie row-major between the kernels that take them so: eager's results and
gradients, and reorders only where others read or make such a value."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pairs import options
from torch import nn

from ortmodule import ORTModule


class Convs(nn.Module):
    """Convolutions with what `between` puts between them."""

    def __init__(self, between, channels=32, kind=nn.Conv2d, norm=nn.BatchNorm2d):
        super().__init__()
        self.first = kind(3, channels, 3, padding=1)
        self.second = kind(channels, channels, 3, padding=1)
        self.third = kind(channels, channels, 1)
        self.norm = norm(channels)
        self.between = between

    def forward(self, x):
        return self.between(self, self.first(x))


def residual(net, y):
    h = F.relu(net.norm(y))
    return F.relu(net.third(F.relu(net.second(h))) + h)


def squeezed(net, y):
    """Squeeze and excitation, as MobileNet and EfficientNet have it."""
    scale = F.hardsigmoid(net.third(F.silu(F.adaptive_avg_pool2d(y, 1))))
    return net.second(F.hardswish(y * scale))


def dropped_paths(net, y):
    kept = torch.arange(1.0, 1.0 + y.shape[0], dtype=y.dtype).view(-1, 1, 1, 1)
    return net.second(F.relu(net.norm(y)) * kept) + y


def normed_by_position(net, y):
    return net.second((y - y.mean(1, keepdim=True)) * y.square().mean(1, keepdim=True).rsqrt())


def normed_by_image(net, y):
    mean = y.mean((2, 3), keepdim=True)
    return net.second((y - mean) * (y - mean).square().mean((2, 3), keepdim=True).rsqrt())


def depthwise(wide, **window):
    """With kernels of 3 + 2 * wide rows and columns."""

    def between(net, y):
        kernel = F.pad(net.second.weight[:, :1], (wide,) * 4) + 0.1
        return net.third(F.conv2d(y.relu(), kernel, groups=y.shape[1], **window))

    return between


def next_block(net, y):
    """As ConvNeXt has it: by rows of channels between two convolutions."""
    h = F.layer_norm(y.permute(0, 2, 3, 1), y.shape[1:2])
    h = F.gelu(F.linear(h, net.third.weight[:, :, 0, 0])).permute(0, 3, 1, 2)
    h = net.norm.weight.view(-1, 1, 1) * h + y
    return depthwise(2, padding=3)(net, h) + net.second(h)


def cut_and_joined(net, y):
    channels = y.shape[1]
    both = torch.cat([y.relu(), y.sigmoid()], 1)
    first, *rest = both.split(max(channels // 2, 1), 1)
    return net.second(torch.cat([*rest, first], 1)[:, channels // 2 : channels // 2 + channels])


def of_some_rows(net, y):
    joined = torch.cat([y.relu()[:, :, 1:-1:2], y.tanh()[:, :, ::3]], 2)
    return net.second(torch.cat([joined, joined[1:] * 2], 0)[:, :, :, 2:])


def normed_twice(net, y):
    h = F.relu(net.norm(y))
    return net.norm(net.second(h)).sigmoid() * h


CASES = {
    "chain": lambda net, y: net.third(F.relu(net.second(F.relu(y)))),
    "residual": residual,
    "normed_twice": normed_twice,
    "scaled": lambda net, y: net.third(net.second(y * 0.5 + 1.0).tanh()),
    "seen_through_a_view": lambda net, y: net.second(y.flatten(2).reshape(y.shape) * 2),
    "read_by_others": lambda net, y: net.second(y.sin()) * y.sin().cumsum(1) + y.sin().mean(0),
    "joined": lambda net, y: net.second(torch.cat([y.relu(), y.sigmoid()], 1)[:, ::2]),
    "cut_and_joined": cut_and_joined,
    "of_some_rows": of_some_rows,
    "joined_with_a_plain_one": lambda net, y: net.second(
        torch.cat([y.relu(), y.cumsum(2)], 1)[:, : y.shape[1]]
    ),
    "summed": lambda net, y: net.second(y.relu()) * y.relu().sum((0, 2, 3)).view(1, -1, 1, 1),
    "permuted": lambda net, y: net.second(y.movedim(1, -1).softmax(-1).movedim(-1, 1)),
    "per_channel": lambda net, y: net.second(F.relu(y * y.mean((2, 3), keepdim=True))),
    "squeezed": squeezed,
    "depthwise_3": depthwise(0, padding=1),
    "depthwise_5": depthwise(1, stride=2, padding=2),
    "depthwise_7": depthwise(2, padding=3),
    "depthwise_wide": depthwise(3, padding=4),
    "depthwise_dilated": depthwise(0, dilation=(2, 3), padding=(1, 3)),
    "depthwise_unpadded": depthwise(1, stride=(1, 2)),
    "next_block": next_block,
    "transposed": lambda net, y: net.third(
        F.conv_transpose2d(y.relu(), net.second.weight, net.second.bias, stride=2).tanh()
    ),
    "transposed_without_bias": lambda net, y: net.third(
        F.conv_transpose2d(net.second(y).relu(), net.second.weight, padding=1)
    ),
    "dropped_paths": dropped_paths,
    "normed_by_position": normed_by_position,
    "normed_by_image": normed_by_image,
    "scaled_by_channel": lambda net, y: net.second(y * net.norm.weight.view(-1, 1, 1)).relu(),
    "scaled_by_image": lambda net, y: net.second(y * y.mean((1, 2, 3), keepdim=True)),
    "scaled_by_position": lambda net, y: net.second(y * y[0, 0].sigmoid()),
    "scaled_by_row": lambda net, y: net.second(y * y.mean((0, 1, 3), keepdim=True)),
    "scaled_by_the_batch": lambda net, y: net.second(F.relu(y) * y.mean(0)),
    "sums": lambda net, y: y.relu().sum((2, 3)).view(*y.shape[:2], 1, 1) + net.second(y.relu()),
    "sums_of_products": lambda net, y: net.second(y * (y.sigmoid() * y).mean((2, 3), True)),
    "maxima": lambda net, y: net.second(y * y.relu().amax((2, 3), keepdim=True)),
    "dropped": lambda net, y: net.second(F.dropout(F.relu(y), 0.0)),
    "pooled": lambda net, y: net.third(F.avg_pool2d(net.second(F.max_pool2d(y.relu(), 2)), 2)),
    "pooled_where_windows_overlap": lambda net, y: net.third(
        F.avg_pool2d(net.second(F.max_pool2d(y.tanh(), 3, 2, 1)), 3, 1, 1)
    ),
    "pooled_to_one": lambda net, y: net.third(F.avg_pool2d(F.max_pool2d(y, 2), y.shape[2] // 2)),
    "larger": lambda net, y: net.third(F.interpolate(net.second(y).relu(), scale_factor=2)),
    "forward_twice": lambda net, y: net.second(F.relu(net.second(F.relu(y)))),
    "masked": lambda net, y: net.second(torch.where(y > 0, y, y * 0.1)),
    "nothing_made": lambda net, y: net.second(F.relu(y)).detach() + y,
}


class Twins:
    """A module under ORTModule beside eager in float64: what rounding makes of zero is near it."""

    def __init__(self, net: nn.Module):
        self.exact = copy.deepcopy(net).double()
        self.net, self.ours = net, ORTModule(net, options(fallback="error"))

    def step(self, x: torch.Tensor) -> None:
        grads = []
        for module, given in ((self.exact, x.double()), (self.ours, x.clone())):
            module.zero_grad()
            given.requires_grad_()
            y = module(given)
            y.square().mean().backward()
            grads.append([y, given.grad, *(p.grad for p in module.parameters())])
        exact, ours = grads
        assert [g is None for g in ours] == [g is None for g in exact]
        pairs = [(a.double(), b) for a, b in zip(ours, exact, strict=True) if b is not None]
        largest = max(b.norm() for _, b in pairs[1:])
        assert (pairs[0][0] - pairs[0][1]).norm() <= 1e-5 * pairs[0][1].norm()
        for a, b in pairs[1:]:
            assert (a - b).norm() <= 1e-4 * b.norm() + 1e-5 * largest
        for a, b in zip(self.net.buffers(), self.exact.buffers(), strict=True):
            torch.testing.assert_close(a, b.to(a.dtype), rtol=1e-4, atol=1e-5)


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


@pytest.mark.parametrize(
    "kind, norm, sizes",
    [(nn.Conv1d, nn.BatchNorm1d, (30,)), (nn.Conv3d, nn.BatchNorm3d, (4, 6, 8))],
)
def test_other_ranks(kind, norm, sizes):
    twins = Twins(Convs(residual, 32, kind, norm))
    for batch in (2, 2, 3):
        twins.step(torch.randn(batch, 3, *sizes))


POOLS = {
    "max": lambda y, f: f.max_pool(y, 3, 2, 1),
    "max_without_overlap": lambda y, f: f.max_pool(y, 2),
    "max_dilated": lambda y, f: f.max_pool(y, 3, 1, 1, dilation=2),
    "max_of_wide_windows": lambda y, f: f.max_pool(y, 5, 1, 2),
    "max_beyond_the_edge": lambda y, f: f.max_pool(y, 3, 2, 0, ceil_mode=True),
    "max_of_few": lambda y, f: f.max_pool(y, 1, 3),
    "average": lambda y, f: f.avg_pool(y, 2),
    "average_padded": lambda y, f: f.avg_pool(y, 3, 2, 1),
    "average_without_pads": lambda y, f: f.avg_pool(y, 3, 1, 1, count_include_pad=False),
    "average_of_wide_windows": lambda y, f: f.avg_pool(y, 5, 1, 2, count_include_pad=False),
    "average_beyond_the_edge": lambda y, f: f.avg_pool(y, 3, 2, 1, ceil_mode=True),
}


class PoolsOf:
    """torch's pools of one number of axes."""

    def __init__(self, axes: int):
        self.max_pool = getattr(F, f"max_pool{axes}d")
        self.avg_pool = getattr(F, f"avg_pool{axes}d")


def steps_of(report) -> list[str]:
    return [step.name for step in report.steps]


@pytest.mark.parametrize(
    "axes, size, dtype",
    [
        (1, (13,), torch.float32),
        (2, (11, 13), torch.float32),
        (2, (11, 13), torch.bfloat16),
        (3, (7, 6, 9), torch.float32),
    ],
)
@pytest.mark.parametrize("name", POOLS)
def test_pools(name, axes, size, dtype):
    """Of small whole numbers, so that many are equal and sums are exact."""
    pools, kind = PoolsOf(axes), getattr(nn, f"Conv{axes}d")
    net = nn.Sequential(kind(2, 32, 1), kind(32, 16, 1)).to(dtype)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randint(-1, 2, p.shape))

    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = net

        def forward(self, x):
            return self.second(POOLS[name](F.relu(self.first(x)) - 1, pools))

    x, pooled, found = torch.randint(-2, 3, (2, 2, *size)), Pooled(), []
    exact = copy.deepcopy(pooled).double()
    ours = ORTModule(pooled, options(fallback="error"))
    plain = ORTModule(pooled, options(off=("layouts",)))
    for module, owner in ((exact, exact), (plain, pooled), (ours, pooled)):
        owner.zero_grad()
        given = x.to(next(owner.parameters()).dtype).requires_grad_()
        y = module(given)
        (y * (torch.arange(y.numel()).view(y.shape) % 3 - 1)).sum().backward()
        found.append([y, given.grad, *(p.grad for p in owner.parameters())])
    near = {"rtol": 1e-5, "atol": 1e-4} if dtype is torch.float32 else {"rtol": 0.05, "atol": 1.0}
    for theirs in found[:2]:
        torch.testing.assert_close(found[2], [t.to(dtype) for t in theirs], **near)


def test_maxima_that_are_nan():
    net = Convs(lambda net, y: net.third(F.max_pool2d(y, 3, 2, 1)), 32)
    ours, x = ORTModule(net, options()), torch.randn(2, 3, 12, 12)
    x[0, 0, 5, 5], x[1, 2, 0, 11] = float("nan"), float("inf")
    given = [x.clone().requires_grad_(), x.clone().requires_grad_()]
    y, expected = ours(given[0]), net(given[1])
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
    for one in (y, expected):
        one.nan_to_num(0, 0, 0).sum().backward()
    torch.testing.assert_close(given[0].grad, given[1].grad, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_indices_of_maxima_are_row_major(tmp_path):
    from ortmodule import InferenceSession

    class Maxima(Convs):
        def forward(self, x):
            y, index = F.max_pool2d(F.relu(self.first(x)), 3, 2, 1, return_indices=True)
            return self.second(y), index

    net, path = Maxima(None, 32).eval(), tmp_path / "net.onnx"
    x = torch.randn(2, 3, 13, 12)
    torch.onnx.export(net, (x,), str(path), dynamo=False, input_names=["x"])
    y, index = InferenceSession(path).run(None, {"x": x.numpy()})
    expected = net(x)
    np.testing.assert_allclose(y, expected[0].detach().numpy(), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(index, expected[1].numpy())


@pytest.mark.parametrize("mean", [0.0, 3e3])
def test_statistics_beside_a_large_mean(mean):
    """As exact as the kernel over planes: against float64."""
    net = Convs(lambda net, y: F.relu(net.norm(y)).sum(1), 32)
    with torch.no_grad():
        net.first.bias += mean
    x = torch.randn(4, 3, 16, 16)
    exact = net.double()(x.double())
    ours = ORTModule(net.float(), options())(x)
    bound = 1e-4 if mean == 0 else 2e-2
    assert (ours.double() - exact).abs().max() < bound * exact.abs().max()


def test_halves():
    net = Convs(residual, 32)
    ours = ORTModule(net, options())
    x = torch.randn(2, 3, 12, 12)
    with torch.autocast("cpu", torch.bfloat16):
        y, expected = ours(x), net(x)
    assert (y - expected).abs().max() < 0.1


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


def reorders(report) -> list[str]:
    return [step.name for step in report.steps if step.name.startswith("reorder")]


def test_reorders_are_where_data_enters_and_leaves():
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 64, 7, 2, 3)
            self.blocks = nn.ModuleList(Convs(None, 64) for _ in range(4))

        def forward(self, x):
            h = F.relu(self.stem(x))
            for block in self.blocks:
                h = F.relu(block.third(F.relu(block.second(h))) + h)
            return h.mean((2, 3))

    net = Deep().eval()
    x = torch.randn(2, 3, 64, 64)
    ours, plain = ORTModule(net, options()), ORTModule(net, options(off=("layouts",)))
    with torch.no_grad():
        torch.testing.assert_close(ours(x), plain(x), rtol=1e-4, atol=1e-4)
    assert len(reorders(ours.explain())) <= 2
    assert reorders(plain.explain()) == []


class Stem(nn.Module):
    """As a ResNet begins."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.second, self.third = nn.Conv2d(64, 64, 3, padding=1), nn.Conv2d(64, 64, 3, padding=1)

    def forward(self, x):
        h = F.max_pool2d(F.relu(self.norm(self.first(x))), 3, 2, 1)
        return F.relu(self.third(F.relu(self.second(h))) + h)


class UNet(nn.Module):
    """Down by a pool, up by a convolution, and joined."""

    def __init__(self):
        super().__init__()
        self.first, self.down = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
        self.same, self.last = nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(64, 32, 3, padding=1)

    def forward(self, x):
        first = F.relu(self.first(x))
        low = F.relu(self.down(F.avg_pool2d(F.max_pool2d(first, 3, 1, 1), 3, 1, 1)))
        left, right = low.chunk(2, 1)
        return self.last(torch.cat([F.relu(self.same(left)), first * right], 1))


@pytest.mark.parametrize("kind, most", [(Stem, 3), (UNet, 0)])
def test_pools_and_parts_of_channels_take_no_reorder(kind, most):
    """The stem's result is its last ReLU, which the backward reads again beside its gradient."""
    net, x = kind(), torch.randn(2, 3, 32, 32)
    ours = ORTModule(net, options())
    ours(x).sum().backward()
    report = ours.explain()
    assert {"MaxPool", "MaxPoolGrad", "ReduceSum"} <= set(steps_of(report))
    assert len(reorders(report)) <= most


UNMOVED = [
    "chain", "residual", "squeezed", "dropped_paths", "scaled_by_channel", "sums_of_products",
    "transposed", "transposed_without_bias", "depthwise_3", "depthwise_5", "depthwise_7", "masked",
    "pooled_where_windows_overlap",
]  # fmt: skip


@pytest.mark.parametrize("name", UNMOVED)
def test_what_takes_blocks_needs_no_reorder(name):
    """Beside those of x, of y and of their gradients."""
    net = Convs(CASES[name], 32)
    ours = ORTModule(net, options())
    y = ours(torch.randn(2, 3, 12, 12))
    y.square().mean().backward()
    assert len(reorders(ours.explain())) <= 3
    net.eval()
    with torch.no_grad():
        ours(torch.randn(2, 3, 12, 12))
    assert len(reorders(ours.explain())) <= 1


def test_rows_of_channels_are_the_bytes_of_a_transposition():
    net = Convs(lambda net, y: next_block(net, next_block(net, y)), 32)
    ours = ORTModule(net, options())
    ours(torch.randn(2, 3, 12, 12)).square().mean().backward()
    assert len(reorders(ours.explain())) <= 6


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
