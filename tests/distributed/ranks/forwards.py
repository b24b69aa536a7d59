"""Forwards that communicate, beside eager on every rank. Run by the processes of processes.py."""

import copy

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from torch import nn

from ortmodule import Options, ORTModule

FORWARDS = {}


def forward(function):
    FORWARDS[function.__name__] = function
    return function


def world():
    return dist.group.WORLD


@forward
def all_reduce(x):
    return functional.all_reduce(x * 2, "sum", world()) * x


@forward
def all_gather(x):
    return functional.all_gather_tensor(x * 2, 0, world()).sin()


@forward
def all_gather_columns(x):
    return functional.all_gather_tensor(x * 2, 1, world()).sin()


@forward
def all_gather_autograd(x):
    return functional.all_gather_tensor_autograd(x * 2, 0, world()).sin()


@forward
def reduce_scatter(x):
    return functional.reduce_scatter_tensor(x * 2, "sum", 0, world()).sin()


@forward
def reduce_scatter_columns_autograd(x):
    return functional.reduce_scatter_tensor_autograd(x * 2, "sum", 1, world()).sin()


@forward
def nn_all_reduce(x):
    return differentiable.all_reduce(x * 2) * x


@forward
def nn_all_reduce_max(x):
    return differentiable.all_reduce(x * 2, dist.ReduceOp.MAX) * x


@forward
def nn_all_reduce_min(x):
    return differentiable.all_reduce(x * 2, dist.ReduceOp.MIN) * x


@forward
def nn_all_gather(x):
    first, second = differentiable.all_gather(x * 2)
    return (first * 3 + second).sin()


@forward
def nn_all_gather_numbers(x):
    return torch.stack(differentiable.all_gather(x.mean())).sin().sum() * x


@forward
def nn_reduce_scatter(x):
    parts = list((x * 2).chunk(2, 1))
    return differentiable.reduce_scatter(torch.empty_like(parts[0]), parts).sin()


@forward
def nn_broadcast(x):
    return differentiable.broadcast(x * 2, 1) * x


@forward
def norm_over_all_ranks(x):
    """Whose statistics are everyone's."""
    count = x.shape[0] * dist.get_world_size()
    mean = differentiable.all_reduce(x.sum(0)) / count
    variance = differentiable.all_reduce((x - mean).square().sum(0)) / count
    return (x - mean) * (variance + 1e-5).rsqrt()


@forward
def contrastive(x):
    """Every rank's features against those of all."""
    features = nn.functional.normalize(x, dim=1)
    everyone = torch.cat(differentiable.all_gather(features))
    first = dist.get_rank() * len(x)
    labels = torch.arange(len(x)) + first
    return nn.functional.cross_entropy(features @ everyone.T / 0.1, labels).reshape(1)


@forward
def in_order(x):
    """The second asks for the first's result, the third is ready before both."""
    first = functional.all_reduce(x * 2, "sum", world())
    second = functional.all_reduce(first.sin(), "sum", world())
    return second * functional.all_gather_tensor(x, 0, world()).sum(0) + first


# Without gradients of their own.
@forward
def functional_reductions(x):
    with torch.no_grad():
        most = functional.all_reduce(x, "max", world())
        least = functional.all_reduce(x, "min", world())
        mean = functional.all_reduce(x, "avg", world())
        product = functional.all_reduce(x, "product", world())
        part = functional.reduce_scatter_tensor(torch.cat([x, x]), "max", 0, world())
        first = functional.broadcast(x, 0, world())
    return (most - least + mean + product + part.mean() + first) * x


@forward
def in_place(x):
    y = x.detach() * 2
    dist.all_reduce(y)
    z = x.detach().clone()
    dist.all_reduce(z, op=dist.ReduceOp.MAX)
    return y * x + z


@forward
def in_place_gathered(x):
    out = x.new_empty(2 * x.shape[0], x.shape[1])
    dist.all_gather_into_tensor(out, x.detach())
    part = torch.empty_like(out[: len(x)])
    dist.reduce_scatter_tensor(part, out.sin())
    several = [torch.empty_like(x), torch.empty_like(x)]
    dist.all_gather(several, x.detach())
    return x * (part + several[0] - several[1])


# What is no whole capture: eager's result, and why.
REASONS = {}


def in_eager(reason):
    def add(function):
        REASONS[function.__name__] = reason
        return forward(function)

    return add


NO_NODE = "the engine has no node for this collective"


@in_eager(NO_NODE)
def all_to_all(x):
    return functional.all_to_all_single(x * 2, None, None, world()).sin()


@in_eager(NO_NODE)
def coalesced(x):
    first, second = functional.all_reduce_coalesced([x * 2, x.sin()], "sum", world())
    return first * second


@in_eager("torch has no gradient for it")
def broadcast_with_gradient(x):
    return functional.broadcast(x * 2, 0, world()) * x


@in_eager("is given a tensor that requires grad, and torch has no gradient for it")
def in_place_with_gradient(x):
    y = x * 2
    dist.all_reduce(y)
    return y * x


@in_eager("writes, without gradients, to a tensor that has one")
def in_place_without_gradients(x):
    y = x * 2
    with torch.no_grad():
        dist.all_reduce(y)
    return y * x


@in_eager("to functional collective")  # torch traces none that is waited for later
def in_place_later(x):
    y = x.detach() * 2
    work = dist.all_reduce(y, async_op=True)
    z = x.sin()
    work.wait()
    return y * x + z


@in_eager("broadcast_")
def in_place_broadcast(x):
    y = x.detach() * 2
    dist.broadcast(y, 0)
    return y * x


@in_eager("torch.export: ")
def around_a_branch(x):
    """Dynamo's own way with these two has other gradients than eager."""
    y = differentiable.all_reduce(x * 2)
    if float(y.detach().sum()) > 0:
        y = y * 2
    z = y * 3
    dist.all_reduce(z)
    return z * x


@in_eager("it communicates in the true branch of cond, which other ranks may not run")
def in_a_branch(x):
    with torch.no_grad():
        y = torch.cond(
            x.sum() > -1e9,
            lambda x: functional.all_reduce(x * 2, "sum", world()),
            lambda x: x * 1,
            (x.detach(),),
        )
    return y * x


class Net(nn.Module):
    def __init__(self, name, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(6, 4, dtype=dtype)
        self.name = name

    def forward(self, x):
        return FORWARDS[self.name](self.linear(x))


def batches(dtype, rows=(4, 4, 6)):
    generator = torch.Generator().manual_seed(5 + dist.get_rank())
    return [torch.randn(n, 6, generator=generator).to(dtype) for n in rows]


def trained(model, dtype):
    """What a forward gives and the gradients of a backward, for batches of several sizes."""
    found = []
    for x in batches(dtype):
        x.requires_grad_()
        model.zero_grad()
        y = model(x)
        (y * torch.linspace(-1, 2, y.numel()).reshape(y.shape)).sum().backward()
        found += [y.detach(), x.grad, *(p.grad.clone() for p in model.parameters())]
    return found


def sent():
    """How many collectives the group was asked for so far."""
    return world()._get_sequence_number_for_group()


def compare(name, dtype="float32", fallback="whole"):
    """The distance from eager, of the largest element or one; how often each communicated."""
    dtype = getattr(torch, dtype)
    plain = Net(name, dtype)
    model = ORTModule(copy.deepcopy(plain), Options(fallback=fallback))
    first = sent()
    wanted = trained(plain, dtype)
    then = sent()
    found = trained(model, dtype)
    report = model.explain()
    return {
        "distance": max(
            ((a.double() - b.double()).abs().max() / b.double().abs().max().clamp(1)).item()
            for a, b in zip(found, wanted, strict=True)
        ),
        "sent": (sent() - then, then - first),
        "reasons": report.reasons(),
        "captures": report.captures,
        "steps": [step.name for step in report.steps],
    }
