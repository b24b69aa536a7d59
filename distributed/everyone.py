"""Steps that all processes take together: where one fails, all raise one error that names it."""

import warnings
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException


class Everyone:
    """The processes of `group` (None: all), over a Gloo group of their own; one process alone
    where torch.distributed is not initialised."""

    def __init__(self, group: dist.ProcessGroup | None):
        self.alone = not dist.is_initialized()
        self.group = None
        if not self.alone:
            ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
            self.group = dist.new_group(ranks, backend="gloo")
        self.rank = 0 if self.alone else dist.get_rank(self.group)
        self.count = 1 if self.alone else dist.get_world_size(self.group)

    def gather(self, what: str, action: Callable[[], Any], only: int | None = None) -> list[Any]:
        """What `action` gives on each rank, or on rank `only`. Raises RuntimeError where one
        fails: "[Checkpointer] rank 1 cannot write ...: No space left on device"."""
        error, value = None, None
        if only is None or only == self.rank:
            try:
                value = action()
            except (Exception, CheckpointException) as raised:  # that one is no Exception
                error = f"{_cause(raised)}"
        answers = [(error, value)]
        if not self.alone:
            answers = [None] * self.count
            dist.all_gather_object(answers, (error, value), group=self.group)
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


def _cause(error: BaseException) -> str:
    """In one line: of torch.distributed.checkpoint's, which has those of all ranks, the first."""
    failures = getattr(error, "failures", None)
    if failures:
        error = next(iter(failures.values()))[0]
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
