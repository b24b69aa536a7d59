"""A store for one attempt of a torchrun job.

torchrun gives the workers that it restarts the store of those before, with what these have left in
it: Gloo then connects to addresses that are gone, or waits for ever. So each attempt agrees on a
name of its own, under which all that follows is kept.
"""

import os
import time
import uuid
from datetime import timedelta

import torch.distributed as dist


def store(timeout: timedelta) -> dist.Store:
    """The store that torchrun tells of in the environment, under a name of this attempt's."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    shared = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size,
        is_master=rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
        timeout=timeout, multi_tenant=True,
    )  # fmt: skip
    return dist.PrefixStore(f"attempt/{name(shared, rank, size, timeout)}", shared)


def name(shared: dist.Store, rank: int, size: int, timeout: timedelta) -> str:
    """A name on which the ranks that are there now agree, whatever earlier ones have left.

    Each says a word that nobody knows; rank 0 answers it with the name until all have thanked.
    Raises RuntimeError naming those that do not come.
    """
    word, deadline = uuid.uuid4().hex, time.monotonic() + timeout.total_seconds()
    if rank != 0:
        shared.set(f"word/{rank}", word)
        while True:
            answer = _read(shared, f"answer/{rank}").partition(":")
            if answer[0] == word:
                shared.set(f"thanks/{answer[2]}/{rank}", "")
                return answer[2]
            _wait(deadline, timeout, [0])
    waiting = set(range(1, size))
    while waiting:
        for other in sorted(waiting):
            shared.set(f"answer/{other}", f"{_read(shared, f'word/{other}')}:{word}")
        waiting = {other for other in waiting if not shared.check([f"thanks/{word}/{other}"])}
        if waiting:
            _wait(deadline, timeout, sorted(waiting))
    return word


def _read(shared: dist.Store, key: str) -> str:
    return shared.get(key).decode() if shared.check([key]) else ""


def _wait(deadline: float, timeout: timedelta, ranks: list[int]) -> None:
    if time.monotonic() > deadline:
        who = ", ".join(map(str, ranks))
        raise RuntimeError(f"rank {who} did not come to this attempt of the job in {timeout}")
    time.sleep(0.01)
