"""Runs that are saved and go on. Run by the processes of processes.py, or by one alone."""

import json
import os
import random
import warnings
import zlib
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


class OnOne(Numbers):
    """A loader that fails on rank 1."""

    def __init__(self, saves: bool):
        super().__init__()
        self.saves = saves

    def state_dict(self):
        fails = dist.get_rank() == 1 and not self.saves
        return {"what": nn.Linear(1, 1)} if fails else super().state_dict()

    def load_state_dict(self, state):
        if dist.get_rank() == 1:
            raise OSError("no such shard")
        super().load_state_dict(state)


def fails_on_one(folder: str, apart: str) -> list[str]:
    """What is told where rank 1 alone meets it: states, folders, numbers of steps."""
    model, rank = nn.Linear(2, 2), dist.get_rank()
    found = []
    for loader in (OnOne(saves=False), OnOne(saves=True)):
        checkpointer = Checkpointer(folder, model=model, loader=loader)
        found.append(told(lambda c=checkpointer: c.save(3)))
    found.append(told(lambda: checkpointer.load()))
    own = Checkpointer(f"{apart}/{rank}", model=model)
    found.append(told(lambda: own.save(3)))
    found.append(told(lambda: checkpointer.save(3 + rank)))
    found.append(told(lambda: checkpointer.load(3 + rank)))
    alone = dist.new_group([0])
    if rank == 1:
        found.append(told(lambda: Checkpointer(folder, model=model, group=alone)))
    return found


def sharded_fails_on_one(folder: str) -> str:
    """What is told where rank 1 alone fails, when ranks give rank 0 their parts of the state."""

    def state():
        raise OSError("no schedule")

    run = Run(folder, "zero")
    run.train(0, 1)
    if dist.get_rank() == 1:
        run.scheduler.state_dict = state
    return told(lambda: run.checkpointer.save(1))


def without_its_part(folder: str) -> str:
    """What is told where rank 1's part is not in the metadata, though nothing else is wrong."""
    checkpointer = Checkpointer(folder, model=nn.Linear(2, 2))
    checkpointer.save(1)
    if dist.get_rank() == 0:
        path = checkpointer.folder / "step-000000001"
        metadata = (path / ".metadata").read_bytes().replace(b"rank1", b"rankx")
        (path / ".metadata").write_bytes(metadata)
        found = json.loads((path / "manifest.json").read_text())
        found["files"][".metadata"] = [len(metadata), zlib.crc32(metadata)]
        (path / "manifest.json").write_text(json.dumps(found))
    dist.barrier()
    return told(checkpointer.load)


def train(model, optimizer, xs):
    """The loss of each step."""
    losses = []
    for x in xs:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def with_unused(folder: str, way: str) -> bool:
    """Whether a run goes on, of whose parameters one never gets a gradient."""

    def made():
        torch.manual_seed(0)
        net = Net(unused=True)
        if way == "fully_shard":
            model = fully_shard(ORTModule(net))
        else:
            model = DataParallel(net, bucket_cap_mb=0.001, find_unused_parameters=True)
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)

    xs = torch.randn(4, 6, 7, generator=torch.Generator().manual_seed(dist.get_rank()))
    whole = train(*made(), xs)
    model, optimizer = made()
    train(model, optimizer, xs[:2])
    Checkpointer(folder, model=model, optimizer=optimizer).save(2)
    model, optimizer = made()
    Checkpointer(folder, model=model, optimizer=optimizer).load()
    return train(model, optimizer, xs[2:]) == whole[2:]
