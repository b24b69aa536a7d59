"""Runs that are saved and go on. Run by the processes of processes.py, or by one alone."""

import os
import random
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from compositions import Net, whole
from ortmodule.distributed import Checkpointer, DataParallel
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

from ortmodule import ORTModule, optim


def ours(net):
    return ORTModule(net)


WAYS = {
    "alone": (ours, optim.AdamW),
    "data_parallel": (lambda net: DataParallel(net, bucket_cap_mb=0.001), optim.AdamW),
    "fully_shard": (lambda net: fully_shard(ORTModule(net)), torch.optim.AdamW),
    "zero": (
        lambda net: DataParallel(net, bucket_cap_mb=0.001),
        lambda parameters, **options: ZeroRedundancyOptimizer(
            parameters, optimizer_class=optim.AdamW, **options
        ),
    ),
}


class Numbers:
    """A loader with a position, as torchdata's StatefulDataLoader."""

    def __init__(self):
        self.position = 0

    def __next__(self):
        self.position += 1
        rank = dist.get_rank() if dist.is_initialized() else 0
        return torch.randn(6, 7, generator=torch.Generator().manual_seed(99 * rank + self.position))

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


class Run:
    def __init__(self, folder, way, **options):
        torch.manual_seed(0)
        wrap, optimizer = WAYS[way]
        self.model = wrap(Net())
        self.optimizer = optimizer(self.model.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, gamma=0.5)
        self.loader = Numbers()
        self.checkpointer = Checkpointer(
            folder, model=self.model, optimizer=self.optimizer, scheduler=self.scheduler,
            loader=self.loader, **options,
        )  # fmt: skip

    def train(self, start, stop, save=()):
        losses = []
        for step in range(start, stop):
            self.optimizer.zero_grad()
            noise = 0.1 * torch.randn(()) + random.random() + np.random.rand()
            loss = self.model(next(self.loader)).square().mean() * noise
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            losses.append(loss.item())
            if step + 1 in save:
                self.checkpointer.save(step + 1)
        self.checkpointer.wait()
        return losses


def seeded():
    torch.manual_seed(5)
    random.seed(6)
    np.random.seed(7)


def goes_on(folder: str, way: str, asynchronous: bool) -> bool:
    """Whether a run that was saved after 3 of 6 steps ends with the losses of one that was not."""
    seeded()
    losses = Run(folder, way, asynchronous=asynchronous).train(0, 6, save=(3,))
    seeded()
    run = Run(folder, way)
    start = run.checkpointer.load()
    return start == 3 and run.train(3, 6) == losses[3:]


def saved(folder: str, way: str, keep: int = 3, steps: int = 6) -> list[int]:
    run = Run(folder, way, keep=keep)
    run.train(0, steps, save=range(1, steps + 1))
    return run.checkpointer.steps()


def loaded(folder: str, way: str, step: int | None = None):
    """What is loaded, the sum of all weights and of their moments, and warnings."""
    run = Run(folder, way)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = run.checkpointer.load(step)
    lines = [str(w.message) for w in warned if "[Checkpointer]" in str(w.message)]
    weights = sum(float(whole(p.detach()).double().abs().sum()) for p in run.model.parameters())
    state = run.optimizer.state
    if way == "zero":  # each process has its own part
        return found, weights, None, lines
    moments = sum(float(whole(s["exp_avg"]).double().abs().sum()) for s in state.values())
    return found, weights, moments, lines


def fails(folder: str, way: str, step: int | None = None) -> str:
    return told(lambda: Run(folder, way).checkpointer.load(step))


def full_disk(folder: str) -> tuple[str, list[int], list[str]]:
    """The second save meets a full disk on rank 1."""
    run = Run(folder, "data_parallel")
    run.train(0, 1, save=(1,))
    free = Path(folder) / "filling"
    if dist.get_rank() == 0:
        with open(free, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
    dist.barrier()
    said = told(lambda: run.train(1, 2, save=(2,)))
    dist.barrier()
    return said, run.checkpointer.steps(), sorted(p.name for p in Path(folder).iterdir())


def not_plain(folder: str) -> str:
    """The last rank's loader has a state that is no plain data."""

    class Loader(Numbers):
        def state_dict(self):
            return {"what": nn.Linear(1, 1)}

    run = Run(folder, "data_parallel" if dist.is_initialized() else "alone")
    if not dist.is_initialized() or dist.get_rank() == 1:
        run.checkpointer._loader = Loader()
    return told(lambda: run.checkpointer.save(1))


def not_zero(folder: str) -> str:
    """A ZeroRedundancyOptimizer, where another one was saved."""
    run = Run(folder, "data_parallel")
    run.train(0, 1, save=(1,))
    return told(lambda: Run(folder, "zero").checkpointer.load())


def closed(folder: str) -> tuple[int, int]:
    """Threads of this process before a Checkpointer, and after it was closed."""
    run = Run(folder, "data_parallel", asynchronous=True)
    run.train(0, 1)
    run.checkpointer.close()
    before = len(os.listdir("/proc/self/task"))
    again = Run(folder, "data_parallel", asynchronous=True).checkpointer
    again.save(1)
    again.close()
    return before, len(os.listdir("/proc/self/task"))


def told(action) -> str:
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"
