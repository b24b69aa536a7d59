"""Whether a module in parts is quicker than in eager: both are timed in turns, in the user's loop.

fallback.py asks for the way of each call, once no call makes new parts any more.
"""

import contextlib
import statistics
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn

from ..torch_internals.autograd import set_version_counter
from ..torch_internals.layers import NormBase

# So many calls in a row have made nothing new before any is timed; or, where something new is made
# all the time, so many in all.
_SETTLED, _NEVER = 8, 48
# Calls of one way in a row, and how many of each way are timed.
_TURN, _TIMED = 3, 12
# Below this share of eager's speed parts are not worth their while.
_SLOW = 0.95


class Times(NamedTuple):
    """Milliseconds from the start of a call to the start of the next one, medians."""

    parts: float
    eager: float


class Pace:
    """The way of each call of one module: `in_eager(made)`, where `made` counts what was made anew
    so far (captures, cuts). A step is what lies between two calls, so a backward counts as well.

    Eager's calls draw other random numbers, so nothing is timed where algorithms have to be
    deterministic, nor in a job of several processes, whose steps would differ; nor once several
    threads have called, as nothing lies between two calls then.
    """

    def __init__(self):
        self.times: Times | None = None
        self._quiet, self._made, self._seen = 0, -1, 0
        self._threads: set[int] = set()
        self._timed: dict[bool, list[float]] = {False: [], True: []}
        self._latest: tuple[float, bool] | None = None
        self._calls = 0

    def leaves_to_eager(self) -> bool:
        """Whether it was found that eager is quicker."""
        return self.times is not None and self.times.eager < _SLOW * self.times.parts

    def words(self) -> str:
        """What was found."""
        return (
            f"in parts a step took {self.times.parts:.3g} ms, in eager {self.times.eager:.3g}: the "
            "module runs in eager"
        )

    def in_eager(self, made: int) -> bool:
        """Whether the call that begins now is eager's."""
        if self.times is not None:
            return self.leaves_to_eager()
        self._seen += 1
        self._threads.add(threading.get_ident())
        self._quiet = self._quiet + 1 if made == self._made else 0
        self._made = made
        settled = self._quiet > _SETTLED or self._seen > _NEVER
        if not settled or len(self._threads) > 1 or not _may_choose():
            self._latest = None
            return False
        return self._turn()

    def _turn(self) -> bool:
        now = time.perf_counter()
        if self._latest is not None:
            start, eager = self._latest
            self._timed[eager].append(1e3 * (now - start))
        if min(map(len, self._timed.values())) >= _TIMED:
            self.times = Times(*(statistics.median(self._timed[way]) for way in (False, True)))
            return self.leaves_to_eager()
        eager = self._calls // _TURN % 2 == 1
        self._calls += 1
        self._latest = time.perf_counter(), eager
        return eager


@contextlib.contextmanager
def as_eager_leaves_statistics(module: nn.Module) -> Iterator[None]:
    """Eager's batch norm changes its running statistics without a new version of theirs. The graph
    of an eager call in between has saved them and would take a new one for a user's write."""
    norms = (m for m in module.modules() if isinstance(m, NormBase))
    kept = [t for m in norms for t in (m.running_mean, m.running_var) if t is not None]
    before = [t._version for t in kept]
    try:
        yield
    finally:
        set_version_counter(tuple(kept), tuple(before))


def _may_choose() -> bool:
    distributed = torch.distributed
    alone = not (distributed.is_available() and distributed.is_initialized())
    return alone and not torch.are_deterministic_algorithms_enabled()
