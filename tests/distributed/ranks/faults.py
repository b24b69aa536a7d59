"""Ranks that die, come late or differ. Run by the processes of processes.py."""

import datetime
import os
import signal
import time

import torch
import torch.distributed as dist
from compositions import Net
from loops import WithClipping
from ortmodule.distributed import DataParallel, alike
from torch import nn

import ortmodule
from ortmodule import ORTModule


def model_of(module=None):
    return DataParallel(module or Net(), bucket_cap_mb=0.001)


def step(model):
    model.zero_grad()
    model(torch.randn(6, 7)).square().mean().backward()


def told(action) -> str:
    started = time.monotonic()
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error} after {time.monotonic() - started:.0f} s"
    return "nothing"


def killed() -> str:
    """Rank 1 dies in its third backward; what rank 0 is told."""
    model = model_of()
    for _ in range(2):
        step(model)
    if dist.get_rank() == 1:
        hook = model.module.first.weight.register_hook(
            lambda _: os.kill(os.getpid(), signal.SIGKILL)
        )
        assert hook is not None
    return told(lambda: step(model))


def late(seconds: float) -> str:
    """Rank 1 comes later to the third backward than Gloo waits."""
    model = model_of()
    for _ in range(2):
        step(model)
    if dist.get_rank() == 1:
        time.sleep(seconds)
    return told(lambda: step(model))


def late_at_first(seconds: float) -> str:
    """Rank 1 comes late to the first step, before which DDP broadcasts buffers."""
    model = model_of(Net(norm=nn.BatchNorm1d))
    if dist.get_rank() == 1:
        time.sleep(seconds)
    return told(lambda: step(model))


class Other(Net):
    """As Net, but for one operator."""

    def forward(self, x):
        return super().forward(x.sigmoid())


class Longer(Net):
    """As Net, with an operator more at the end."""

    def forward(self, x):
        return super().forward(x).sigmoid()


def another_graph(longer: bool) -> str:
    other = Longer if longer else Other
    return told(lambda: step(model_of(other() if dist.get_rank() == 1 else Net())))


class Lazy(Net):
    """As Net, but that the last block is not used."""

    def forward(self, x):
        return self.head(self.blocks[1](self.blocks[0](self.first(x))))


def other_parameters() -> str:
    """Of a rank with one row, whose graph has another form by that alone."""
    rank = dist.get_rank()
    model = model_of(Lazy() if rank == 1 else Net())
    return told(lambda: model(torch.randn(1 if rank == 1 else 6, 7)))


def another_version() -> tuple[str, str]:
    """Of ortmodule, then of torch."""
    rank, found = dist.get_rank(), []
    for package, of in ((alike, ortmodule), (torch, torch)):
        version = of.__version__
        package.__version__ = f"{version}.{rank}"
        try:
            found.append(told(lambda: step(model_of())))
        finally:
            package.__version__ = version
    return tuple(found)


def one_in_eager() -> str:
    """A rank that runs eagerly reduces the same gradients."""
    model = model_of(ORTModule(Net()))
    if dist.get_rank() == 1:
        with model.module.eager():
            return told(lambda: step(model))
    return told(lambda: step(model))


def eager_before_another_graph() -> str:
    """The first rank has no graph, the last one another than those between."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    model = model_of(ORTModule(Other() if rank == last else Net()))
    if rank == 0:
        with model.module.eager():
            return told(lambda: step(model))
    return told(lambda: step(model))


def python_steps() -> str:
    """A rank that has captured an autograd.Function before, whose number is taken."""
    before = ORTModule(WithClipping())
    if dist.get_rank() == 1:
        before(torch.randn(6, 7))
    return told(lambda: step(model_of(WithClipping())))


def in_other_groups() -> str:
    """A rank that is in more groups than the others, and has a model there."""
    if dist.get_rank() == 1:
        alone = dist.new_group([1], use_local_synchronization=True)
        step(DataParallel(Net(), process_group=alone))
    return told(lambda: step(model_of()))


def step_together(store: str, rank: int, count: int) -> str:
    """What a step says in a new group, which gives up after 12 s where a rank is gone."""
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=count,
        timeout=datetime.timedelta(seconds=12),
    )  # fmt: skip
    return told(lambda: step(model_of()))


def in_another_job(store: str) -> str:
    """A rank that was alone in a group of the same name before, and had a model there."""
    rank, count = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    if rank == 0:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        step(model_of())
        dist.destroy_process_group()
    return step_together(store, rank, count)


def groups_left_at_once(store: str) -> str:
    """A group that is destroyed as soon as a backward has ended, many times."""
    rank, count = dist.get_rank(), dist.get_world_size()
    for _ in range(40):
        dist.destroy_process_group()
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        step(model_of())
    dist.destroy_process_group()
    return step_together(store, rank, count)


def sync_batch_norm() -> tuple[str, str]:
    """What eager's SyncBatchNorm says on the CPU, and ours."""

    def made(wrap):
        net = nn.Sequential(nn.Linear(7, 5), nn.SyncBatchNorm(5))
        return told(lambda: step(wrap(net))).rpartition(" after ")[0]

    return made(lambda net: nn.parallel.DistributedDataParallel(net)), made(model_of)
