"""Batches that do not fit into the address space that this process leaves itself, found by the
functions of others that look for a smaller one. test_memory.py runs it in a process of its own."""

import pathlib
import resource
import sys

import torch
from torch import nn

from ortmodule import Options, ORTModule, _native

WIDTH = 4096
MOST = 40_000  # 0.66 GB of floats a layer
SPARE = 1 << 30


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 2))


def step(model, rows):
    model.zero_grad()
    loss = model(torch.linspace(-1, 1, rows * 16).reshape(rows, 16)).square().mean()
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters())]


def leave(spare):
    """This process gets `spare` bytes more than it has."""
    used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + spare, resource.RLIM_INFINITY))


def by_accelerate(model, sizes):
    from accelerate.utils import find_executable_batch_size

    @find_executable_batch_size(starting_batch_size=MOST, reduce_batch_size_fn=lambda: sizes.pop())
    def run(batch_size):
        step(model, batch_size)
        return batch_size

    return run()


def by_trainer(model, sizes):
    from transformers.trainer_utils import find_executable_batch_size

    def run(batch_size):
        rows = MOST if batch_size == MOST else sizes.pop()
        step(model, rows)
        return rows

    return find_executable_batch_size(run, starting_batch_size=MOST, auto_find_batch_size=True)()


def by_lightning(model, sizes):
    from lightning.pytorch.utilities.memory import is_oom_error

    for rows in (MOST, *reversed(sizes)):
        try:
            step(model, rows)
            return rows
        except RuntimeError as error:
            if not is_oom_error(error):
                raise
    raise AssertionError("no batch fits")


if __name__ == "__main__":
    model = ORTModule(net(), Options(fallback="error"))
    find = globals()[sys.argv[1]]
    step(model, 2)
    step(model, 3)
    leave(SPARE)
    rows = find(model, [500, 20_000])
    bytes_held = _native.core().pool_bytes()
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    for ours, eager in zip(step(model, rows), step(net(), rows), strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)
    print(rows, bytes_held)
