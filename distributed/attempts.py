"""A store for one attempt of a torchrun job.

torchrun gives restarted workers the store of the workers before them, with the old addresses still
in it: Gloo would connect to addresses that are gone, or wait for ever. So the ranks of each attempt
agree on a name of their own, and use the store under that prefix.
"""

import os
import time
import uuid
from datetime import timedelta

import torch.distributed as dist


def store(timeout: timedelta) -> dist.Store:
    """The store that torchrun names in the environment, under a prefix of this attempt's own."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    shared = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size,
        is_master=rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
        timeout=timeout, multi_tenant=True,
    )  # fmt: skip
    return dist.PrefixStore(f"attempt/{name(shared, rank, size, timeout)}", shared)


def name(shared: dist.Store, rank: int, size: int, timeout: timedelta) -> str:
    """A name on which the ranks of this attempt agree, whatever earlier ones have left.

    Each rank writes a nonce. Rank 0 answers each nonce with its own, which is the name, until all
    ranks have acknowledged it. Raises RuntimeError naming the ranks that do not come.
    """
    nonce, deadline = uuid.uuid4().hex, time.monotonic() + timeout.total_seconds()
    if rank != 0:
        shared.set(f"nonce/{rank}", nonce)
        while True:
            answered, _, agreed = _read(shared, f"answer/{rank}").partition(":")
            if answered == nonce:
                shared.set(f"acknowledged/{agreed}/{rank}", "")
                return agreed
            _wait(deadline, timeout, [0])
    waiting = set(range(1, size))
    while waiting:
        for other in sorted(waiting):
            shared.set(f"answer/{other}", f"{_read(shared, f'nonce/{other}')}:{nonce}")
        keys = {other: f"acknowledged/{nonce}/{other}" for other in waiting}
        waiting = {other for other, key in keys.items() if not shared.check([key])}
        if waiting:
            _wait(deadline, timeout, sorted(waiting))
    return nonce


def _read(shared: dist.Store, key: str) -> str:
    return shared.get(key).decode() if shared.check([key]) else ""


def _wait(deadline: float, timeout: timedelta, ranks: list[int]) -> None:
    if time.monotonic() > deadline:
        who = ", ".join(map(str, ranks))
        raise RuntimeError(f"rank {who} did not come to this attempt of the job in {timeout}")
    time.sleep(0.01)
