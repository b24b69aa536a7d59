"""Measures the link between Gloo processes: latency, bandwidth, processor time.

Called by predict.py's --measure and benchmarks/scaling.py.
"""

import statistics
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import multiprocessing

from .timeline import Link

_SMALL = 64  # bytes
_LARGE = (1 << 20, 4 << 20, 25 << 20)  # of DDP's first bucket to its usual one
_TIMEOUT = timedelta(minutes=2)


def measure(rounds: int = 11) -> Link:
    """The link between two processes of this machine, which are started for it, with one thread
    each. Raises torch's ProcessRaisedException with what went wrong in one of them."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        answers = context.SimpleQueue()
        multiprocessing.spawn(_measured, (f"{folder}/store", rounds, answers), nprocs=2)
        return answers.get()


def _measured(rank: int, store: str, rounds: int, answers) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=_TIMEOUT
    )
    link = measure_in(dist.group.WORLD, rounds)
    if rank == 0:
        answers.put(link)
    dist.destroy_process_group()


def measure_in(group: dist.ProcessGroup, rounds: int = 11) -> Link:
    """The link of an existing group. All its ranks call this and get the same answer.

    All-reduces of several sizes are timed in turn, and of each size the median of `rounds` counts.
    The smallest gives the latency; the slope of the others, by least squares through the smallest,
    gives the bandwidth. `processor` is the processor time over the time of the largest.
    Errors: ValueError for a group of one.
    """
    world = dist.get_world_size(group)
    if world < 2:
        raise ValueError("[predict] a link is measured between 2 or more ranks, found 1")
    times: dict[int, list[float]] = {n: [] for n in (_SMALL, *_LARGE)}
    shares = []
    tensors = {n: torch.zeros(n // 4) for n in times}
    for round_ in range(rounds + 2):  # two that warm up
        for n, tensor in tensors.items():
            dist.barrier(group)
            processor, wall = time.process_time(), time.perf_counter()
            dist.all_reduce(tensor, group=group)
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
            if round_ >= 2:
                times[n].append(wall)
                if n == _LARGE[-1]:
                    shares.append(processor / wall)
    medians = {n: statistics.median(found) for n, found in times.items()}
    found = torch.tensor([*medians.values(), statistics.median(shares)], dtype=torch.float64)
    dist.all_reduce(found, group=group)
    *seconds, share = (found / world).tolist()
    return fit(dict(zip(medians, seconds, strict=True)), world, share)


def fit(seconds: dict[int, float], world: int, processor: float) -> Link:
    """The link for which all-reduces of these bytes take these seconds. The smallest of them is
    taken to have no bytes."""
    messages = 2 * (world - 1)
    least, *others = sorted(seconds)
    rises = [(n * messages / world, seconds[n] - seconds[least]) for n in others]
    per_byte = sum(n * rise for n, rise in rises) / sum(n * n for n, _ in rises)
    return Link(seconds[least] / messages, 1 / max(per_byte, 1e-15), min(1.0, max(0.0, processor)))
