"""Barriers and messages between ranks beside training, for checks and checkpoints.

Messages are JSON, so that what comes from another process is data, never code.
"""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.checkpoint.api import CheckpointException

from ..torch_internals.distributed import default_store, timeout_of


def takes_cpu_tensors(group: dist.ProcessGroup) -> bool:
    """Whether a group has a backend for tensors on the CPU, which NCCL is not."""
    return torch.device("cpu") in group._device_types


def meet(group: dist.ProcessGroup, where: str) -> None:
    """A barrier called `where`, a name that is used once. Raises RuntimeError naming the ranks that
    do not come within the group's timeout; torch's monitored_barrier does so on Gloo alone."""
    timeout = timeout_of(group) or distributed_c10d.default_pg_timeout
    ranks = dist.get_process_group_ranks(group)
    store = dist.PrefixStore(f"ortmodule/{group.group_name}", default_store())
    wait_for(store, ranks, dist.get_rank(), where, timeout)


def wait_for(store: dist.Store, ranks: list[int], own: int, where: str, timeout: timedelta) -> None:
    """As `meet`, among `ranks` that share a store."""
    keys = {rank: f"{where}/{rank}" for rank in ranks}
    store.set(keys[own], "")
    try:
        store.wait(list(keys.values()), timeout)
    except RuntimeError as error:
        absent = ", ".join(str(rank) for rank, key in keys.items() if not store.check([key]))
        raise RuntimeError(f"rank {absent} did not come to {where} in {timeout}") from error


class Everyone:
    """The processes of `group` (None: all); one process alone where torch.distributed is not
    initialised. apart: over a Gloo group of their own, for threads beside training. asker: whom
    errors name."""

    def __init__(
        self,
        group: dist.ProcessGroup | None = None,
        *,
        apart: bool = False,
        asker: str = "distributed",
    ):
        if group is dist.GroupMember.NON_GROUP_MEMBER:
            raise ValueError(
                f"[{asker}] rank {dist.get_rank()} is not in the group, expected one of its ranks"
            )
        self.asker = asker
        self.alone = not dist.is_initialized()
        given = group or dist.group.WORLD
        self.group = None if self.alone else _talking(given, apart)
        self._made = self.group is not given
        self.rank = 0 if self.alone else dist.get_rank(self.group)
        self.count = 1 if self.alone else dist.get_world_size(self.group)

    def close(self) -> None:
        """Lets go of a group that was made, with its threads and connections."""
        group, self.group = self.group, None
        if group is not None and self._made and dist.is_initialized():
            dist.destroy_process_group(group)

    def exchange(self, value: Any) -> list[Any]:
        """The values of all ranks, each one that JSON can hold."""
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
        """What `action` gives on each rank, or on rank `only`, None on the others. Raises
        RuntimeError on all ranks where it fails on one: "[Checkpointer] rank 1 cannot write ...: No
        space left on device"."""
        error, value = None, None
        if only is None or only == self.rank:
            try:
                value = action()
            except (Exception, CheckpointException) as raised:  # no Exception to torch
                error = _cause(raised)
        answers = self.exchange([error, value])
        for rank, (failed, _) in enumerate(answers):
            if failed is not None:
                raise RuntimeError(f"[{self.asker}] rank {rank} {what}: {failed}")
        return [answer for _, answer in answers]

    def do(self, what: str, action: Callable[[], Any], only: int | None = None) -> None:
        """As `gather`, of an action that gives nothing."""
        self.gather(what, lambda: (action(), None)[1], only)


def _talking(group: dist.ProcessGroup, apart: bool) -> dist.ProcessGroup:
    """A group of the same ranks that takes tensors on the CPU: the group itself, or a new one."""
    if not apart and takes_cpu_tensors(group):
        return group
    ranks = dist.get_process_group_ranks(group)
    # Only where it must be: torch names a group that its members make without the other ranks by
    # the number of groups that each is in, and ranks may be in different numbers of them.
    local = len(ranks) < dist.get_world_size()
    return dist.new_group(
        ranks, timeout=timeout_of(group), backend="gloo", use_local_synchronization=local
    )


def _cause(error: BaseException) -> str:
    """An error in one line: of a CheckpointException, which has those of all ranks, the first."""
    failures = getattr(error, "failures", None)
    if failures:
        error = next(iter(failures.values()))[0]
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
