"""Optimizers over what is sharded. Run by the processes of processes.py."""

import functools

import torch
import torch.distributed as dist
from compositions import Net, whole
from ortmodule.distributed import DataParallel
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

from ortmodule import ORTModule, optim

OPTIONS = {
    "AdamW": {"lr": 0.01, "weight_decay": 0.1},
    "Adam": {"lr": 0.01, "amsgrad": True},
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    "Lion": {"lr": 0.01},
}


WAYS = {
    "data_parallel": lambda net: DataParallel(net, bucket_cap_mb=0.001),
    "fully_shard": lambda net: fully_shard(ORTModule(net)),
}


@functools.cache
def captured_once(way):
    """The model, which all optimizers train from the weights beside it."""
    torch.manual_seed(0)
    model = WAYS[way](Net())
    return model, [p.detach().clone() for p in model.parameters()]


def at_its_start(way):
    model, start = captured_once(way)
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), start, strict=True):
            parameter.copy_(value)
    model.zero_grad()
    return model


def trained(way, name, steps=6, **around):
    model = at_its_start(way)
    optimizer = getattr(optim, name)(model.parameters(), **OPTIONS[name], **around)
    generator = torch.Generator().manual_seed(dist.get_rank())
    norms = []
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(6, 7, generator=generator)).square().mean().backward()
        optimizer.step()
        norms.append(optimizer.grad_norm or 0.0)
    weights = [whole(p.detach()).clone() for p in model.parameters()]
    return weights, norms, optimizer


def compare(name: str, around: dict) -> dict:
    """fully_shard beside DataParallel, which trains the same."""
    one, norms, _ = trained("data_parallel", name, **around)
    other, sharded_norms, optimizer = trained("fully_shard", name, **around)
    own = sum(
        state.to_local().numel() * state.element_size()
        for states in optimizer.state.values()
        for state in states.values()
        if hasattr(state, "to_local")
    )
    return {
        "apart": max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True)),
        "norms": max(abs(a - b) for a, b in zip(norms, sharded_norms, strict=True)),
        "bytes": own,
        "of": sum(p.numel() * p.element_size() for p in one),
    }


def refused() -> list[str]:
    told = []
    for name in ("LAMB", "Adafactor", "Muon"):
        model = fully_shard(ORTModule(torch.nn.Linear(6, 4, bias=False)))
        optimizer = getattr(optim, name)(model.parameters(), lr=0.01)
        model(torch.randn(3, 6)).sum().backward()
        try:
            optimizer.step()
            told.append("nothing")
        except RuntimeError as error:
            told.append(str(error))
    return told


def zero() -> dict:
    """ZeRO-1: each process has the states of its own parameters alone."""
    torch.manual_seed(0)
    model = DataParallel(Net(), bucket_cap_mb=0.001)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optim.AdamW, **OPTIONS["AdamW"])
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(6, 7, generator=generator)).square().mean().backward()
        optimizer.step()
    plain, _, _ = trained("data_parallel", "AdamW")
    states = optimizer.optim.state.values()
    sizes = [2 * 4 * p.numel() for p in model.parameters()]
    return {
        "apart": max(
            float((a - b).abs().max()) for a, b in zip(plain, model.parameters(), strict=True)
        ),
        "bytes": sum(t.nbytes for s in states for k, t in s.items() if k != "step"),
        "bound": sum(sizes) / dist.get_world_size() + max(sizes),
    }


def losses(steps: int = 50) -> list[float]:
    """Of the whole batch, by all processes together; SGD."""
    torch.manual_seed(0)
    net = Net()
    model = DataParallel(net, bucket_cap_mb=0.001) if dist.is_initialized() else ORTModule(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rank, count = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    generator, found = torch.Generator().manual_seed(3), []
    for _ in range(steps):
        x = torch.randn(8, 7, generator=generator)
        optimizer.zero_grad()
        loss = (model(x[rank::count]) - x[rank::count, :5]).square().mean()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        if count > 1:
            dist.all_reduce(total)
        found.append(float(total) / count)
    return found
