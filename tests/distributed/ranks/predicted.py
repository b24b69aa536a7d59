"""Models that predict is asked about, and what real processes do with them. Run by test_predict.py
and, in processes.py, by a pair."""

import torch
import torch.distributed as dist
from compositions import Net
from ortmodule.distributed import DataParallel
from ortmodule.distributed.link import measure_in
from ortmodule.distributed.predict import predict
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer


class WithLoss(nn.Module):
    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, x):
        return {"loss": self.net(x).square().mean()}


def small(**kind) -> tuple[nn.Module, tuple]:
    return WithLoss(Net(**kind)), (torch.randn(6, 7),)


def wide() -> tuple[nn.Module, tuple]:
    """39 MB of gradients: DDP's first bucket and two of its usual ones."""
    layers = [nn.Sequential(nn.Linear(700, 700), nn.Tanh()) for _ in range(20)]
    return WithLoss(nn.Sequential(*layers)), (torch.randn(2, 700),)


CASES = {
    "wide": (wide, {}),
    "small": (small, {}),
    "buckets": (small, {"bucket_cap_mb": 0.001}),
    "tied": (lambda: small(tied=True), {"bucket_cap_mb": 0.001}),
    "unused": (
        lambda: small(unused=True),
        {"bucket_cap_mb": 0.001, "find_unused_parameters": True},
    ),
    "static": (small, {"bucket_cap_mb": 0.001, "static_graph": True}),
    "copied": (small, {"bucket_cap_mb": 0.001, "gradient_as_bucket_view": False}),
    "checkpointed": (lambda: small(checkpointed=True), {"bucket_cap_mb": 0.002}),
}
Buckets = list[tuple[int, list[str]]]


def predicted(case: str) -> Buckets:
    """Bytes and gradients of each bucket, by a process alone."""
    make, options = CASES[case]
    torch.manual_seed(0)
    alone = predict(*make(), rounds=1, **options).alone
    return [(b.bytes, [g.name for g in b.gradients]) for b in alone.buckets]


def buckets(case: str) -> Buckets:
    """Those in the last of a few steps of all."""
    make, options = CASES[case]
    torch.manual_seed(0)
    module, inputs = make()
    model = DataParallel(module, **options)
    names = {p: name for name, p in model.module.named_parameters()}
    reduced: Buckets = []

    def hook(_, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        reduced.append((bucket.buffer().nbytes, [names[p] for p in bucket.parameters()]))
        work = dist.all_reduce(bucket.buffer(), async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    model.register_comm_hook(None, hook)
    for _ in range(4):
        reduced.clear()
        model.zero_grad()
        model(*inputs)["loss"].backward()
    return reduced


def sharded() -> tuple[int, int, int]:
    """Bytes of this rank's parameters, gradients and momenta under fully_shard by blocks."""
    module, (x,) = small()
    for block in module.net.blocks:
        fully_shard(block)
    fully_shard(module)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    module(x)["loss"].backward()
    optimizer.step()
    parameters = list(module.parameters())
    momenta = [optimizer.state[p]["momentum_buffer"] for p in parameters]
    kinds = (parameters, [p.grad for p in parameters], momenta)
    return tuple(sum(t.to_local().nbytes for t in kind) for kind in kinds)


def dealt() -> int:
    """Bytes of this rank's momenta in a ZeroRedundancyOptimizer."""
    module, (x,) = small()
    optimizer = ZeroRedundancyOptimizer(
        module.parameters(), optimizer_class=torch.optim.SGD, lr=0.1, momentum=0.9
    )
    module(x)["loss"].backward()
    optimizer.step()
    return sum(state["momentum_buffer"].nbytes for state in optimizer.optim.state.values())


def link() -> tuple[float, float, float]:
    found = measure_in(dist.group.WORLD, rounds=1)
    return found.latency, found.bandwidth, found.processor
