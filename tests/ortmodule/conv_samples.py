"""Convolutions with many things between them, and each beside eager in float64."""

import copy

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


def residual(net, y, activation=F.relu):
    h = activation(net.norm(y))
    return activation(net.third(activation(net.second(h))) + h)


def squeezed(net, y):
    """Squeeze and excitation, as MobileNet and EfficientNet have it."""
    scale = F.hardsigmoid(net.third(F.silu(y.mean(tuple(range(2, y.dim())), keepdim=True))))
    return net.second(F.hardswish(y * scale))


def dropped_paths(net, y):
    kept = torch.arange(1.0, 1.0 + y.shape[0], dtype=y.dtype).view(-1, *[1] * (y.dim() - 1))
    return net.second(F.relu(net.norm(y)) * kept) + y


def normed_by_position(net, y):
    return net.second((y - y.mean(1, keepdim=True)) * y.square().mean(1, keepdim=True).rsqrt())


def normed_by_image(net, y):
    mean = y.mean((2, 3), keepdim=True)
    return net.second((y - mean) * (y - mean).square().mean((2, 3), keepdim=True).rsqrt())


def depthwise(wide, **window):
    """With kernels of 3 + 2 * wide rows and columns."""

    def between(net, y):
        axes = y.dim() - 2
        kernel = F.pad(net.second.weight[:, :1], (wide,) * (2 * axes)) + 0.1
        conv = getattr(F, f"conv{axes}d")
        return net.third(conv(y.relu(), kernel, groups=y.shape[1], **window))

    return between


def next_block(net, y):
    """As ConvNeXt has it: by rows of channels between two convolutions."""
    axes = y.dim() - 2
    h = F.layer_norm(y.movedim(1, -1), y.shape[1:2])
    h = F.gelu(F.linear(h, net.third.weight.flatten(1))).movedim(-1, 1)
    h = net.norm.weight.view(-1, *[1] * axes) * h + y
    return depthwise(2, padding=3)(net, h) + net.second(h)


def transposed(net, y, bias=True, **window):
    conv = getattr(F, f"conv_transpose{y.dim() - 2}d")
    return conv(y, net.second.weight, net.second.bias if bias else None, **window)


def transposed_in_groups(net, y):
    """Each group makes as many channels as it reads."""
    each = y.shape[1] // 2
    h = F.conv_transpose2d(y, net.second.weight[:, :each], net.second.bias, 3, 1, 2, 2)
    return net.third(h.relu())


def cut_and_joined(net, y):
    channels = y.shape[1]
    both = torch.cat([y.relu(), y.sigmoid()], 1)
    first, *rest = both.split(max(channels // 2, 1), 1)
    return net.second(torch.cat([*rest, first], 1)[:, channels // 2 : channels // 2 + channels])


def of_some_rows(net, y):
    joined = torch.cat([y.relu()[:, :, 1:-1:2], y.tanh()[:, :, ::3]], 2)
    return net.second(torch.cat([joined, joined[1:] * 2], 0)[..., 2:])


def normed_twice(net, y):
    h = F.relu(net.norm(y))
    return net.norm(net.second(h)).sigmoid() * h


def summed(net, y):
    axes = tuple(i for i in range(y.dim()) if i != 1)
    return net.second(y.relu()) * y.relu().sum(axes, keepdim=True)


CASES = {
    "chain": lambda net, y: net.third(F.relu(net.second(F.relu(y)))),
    "residual": residual,
    "residual_of_tanh": lambda net, y: residual(net, y, torch.tanh),
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
    "summed": summed,
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
    "transposed": lambda net, y: net.third(transposed(net, y.relu(), stride=2).tanh()),
    "transposed_without_bias": lambda net, y: net.third(
        transposed(net, net.second(y).relu(), False, padding=1)
    ),
    "transposed_in_groups": transposed_in_groups,
    "transposed_dilated": lambda net, y: net.third(transposed(net, y.relu(), dilation=2)),
    "dropped_paths": dropped_paths,
    "normed_by_position": normed_by_position,
    "normed_by_image": normed_by_image,
    "scaled_by_channel": lambda net, y: net.second(
        y * net.norm.weight.view(-1, *[1] * (y.dim() - 2))
    ).relu(),
    "scaled_by_image": lambda net, y: net.second(y * y.mean((1, 2, 3), keepdim=True)),
    "scaled_by_position": lambda net, y: net.second(y * y[0, 0].sigmoid()),
    "scaled_by_row": lambda net, y: net.second(y * y.mean((0, 1, 3), keepdim=True)),
    "scaled_by_the_batch": lambda net, y: net.second(F.relu(y) * y.mean(0)),
    "sums": lambda net, y: y.relu().sum((2, 3)).view(*y.shape[:2], 1, 1) + net.second(y.relu()),
    "sums_of_products": lambda net, y: net.second(
        y * (y.sigmoid() * y).mean(tuple(range(2, y.dim())), True)
    ),
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


def reorders(report) -> list[str]:
    return [step.name for step in report.steps if step.name.startswith("reorder")]


def laid_out(report) -> list[str]:
    """The steps whose results do not lie row-major, beside reorders."""
    named = [step.name for step in report.steps if step.layout]
    return [name for name in named if not name.startswith("reorder")]
