"""What processes do together beside training.

Messages are JSON: what comes from another process is data, never code.
"""

import json
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.checkpoint.api import CheckpointException


def timeout_of(group: dist.ProcessGroup) -> Any:
    """The time after which a process group's operations fail; None: torch's own."""
    device = next(iter(group._device_types))
    return getattr(getattr(group._get_backend(device), "options", None), "_timeout", None)


def meet(group: dist.ProcessGroup, where: str) -> None:
    """Waits for every rank of a group at `where`, a name that is used once; raises RuntimeError
    naming those that do not come in the group's time."""
    timeout = timeout_of(group) or distributed_c10d.default_pg_timeout
    ranks = dist.get_process_group_ranks(group)
    store = dist.PrefixStore(f"ortmodule/{group.group_name}", distributed_c10d._get_default_store())
    wait_for(store, ranks, dist.get_rank(), where, timeout)


def wait_for(store: dist.Store, ranks: list[int], own: int, where: str, timeout: timedelta) -> None:
    """Says in a store that rank `own` is at `where`, and waits for the others, as `meet`."""
    keys = {rank: f"{where}/{rank}" for rank in ranks}
    store.set(keys[own], "")
    try:
        store.wait(list(keys.values()), timeout)
    except RuntimeError as error:
        absent = ", ".join(str(rank) for rank, key in keys.items() if not store.check([key]))
        raise RuntimeError(f"rank {absent} did not come to {where} in {timeout}") from error


class Everyone:
    """The processes of `group` (None: all); one process alone where torch.distributed is not
    initialised. apart: over a Gloo group of their own, for threads beside training."""

    def __init__(self, group: dist.ProcessGroup | None = None, apart: bool = False):
        if group is dist.GroupMember.NON_GROUP_MEMBER:
            raise ValueError(f"rank {dist.get_rank()} is not in the group that is to talk")
        self.alone = not dist.is_initialized()
        self.group = None if self.alone else _talking(group or dist.group.WORLD, apart)
        self.rank = 0 if self.alone else dist.get_rank(self.group)
        self.count = 1 if self.alone else dist.get_world_size(self.group)

    def exchange(self, value: Any) -> list[Any]:
        """Each rank's value, which JSON can hold."""
        if self.alone:
            return [value]
        own = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.count)]
        dist.all_gather(sizes, torch.tensor([len(own)]), group=self.group)
        longest = max(int(size) for size in sizes)
        texts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.count)]
        padded = torch.nn.functional.pad(own, (0, longest - len(own)))
        dist.all_gather(texts, padded, group=self.group)
        return [
            json.loads(text[: int(size)].numpy().tobytes())
            for text, size in zip(texts, sizes, strict=True)
        ]

    def gather(self, what: str, action: Callable[[], Any], only: int | None = None) -> list[Any]:
        """What `action` gives on each rank, or on rank `only`. Raises RuntimeError on all where
        one fails: "[Checkpointer] rank 1 cannot write ...: No space left on device"."""
        error, value = None, None
        if only is None or only == self.rank:
            try:
                value = action()
            except (Exception, CheckpointException) as raised:  # that one is no Exception
                error = _cause(raised)
        answers = self.exchange([error, value])
        for rank, (failed, _) in enumerate(answers):
            if failed is not None:
                raise RuntimeError(f"[Checkpointer] rank {rank} {what}: {failed}")
        return [answer for _, answer in answers]

    def do(self, what: str, action: Callable[[], Any], only: int | None = None) -> None:
        """As `gather`, for what it does."""
        self.gather(what, lambda: (action(), None)[1], only)

    def apart(self, function: Callable, *args: Any, **options: Any) -> Any:
        """Calls one of torch.distributed.checkpoint's, which talks over this group."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")
            return function(*args, process_group=self.group, no_dist=self.alone, **options)

    def first(self, action: Callable[[], Any]) -> Any:
        """What `action` gives on rank 0."""
        return self.gather("cannot look at the folder", action, only=0)[0]

    def agreed(self, action: Callable[[], str | None]) -> str | None:
        """The first complaint of any rank."""
        return next(filter(None, self.gather("cannot look at the folder", action)), None)


def _talking(group: dist.ProcessGroup, apart: bool) -> dist.ProcessGroup:
    """The group itself where it takes tensors on the CPU, or another of its ranks."""
    if not apart and torch.device("cpu") in group._device_types:
        return group
    ranks = dist.get_process_group_ranks(group)
    # Torch names a group that its members make alone by how many groups each of them is in.
    local = len(ranks) < dist.get_world_size()
    return dist.new_group(
        ranks, timeout=timeout_of(group), backend="gloo", use_local_synchronization=local
    )


def _cause(error: BaseException) -> str:
    """In one line: of torch.distributed.checkpoint's, which has those of all ranks, the first."""
    failures = getattr(error, "failures", None)
    if failures:
        error = next(iter(failures.values()))[0]
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
