"""What torch and Python do for a trace that nobody reads: left out while a module is captured.

patches.py and stages.py enter it. The graph is the same.
"""

import contextlib
import gc
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from ..fork import guarded
from ..places import PACKAGE, TORCH
from ..torch_internals.tracing import proxy_tensor, tracebacks

# New objects between two runs of the garbage collector: a trace makes many, and few of them cycles.
_SELDOM = 200_000


def leave_out(replace: Callable[[Any, str, Callable], None]) -> None:
    """Facts of each node beside its value, which asks symbols how the result lies in memory; the
    text of the source lines of frames that no node keeps."""
    for home, name, new in (
        (proxy_tensor, "_extract_tensor_metadata", _nothing),
        (tracebacks, "_extract_symbolized_tb", _frames),
    ):
        if hasattr(home, name):  # a torch without it does not do it
            replace(home, name, lambda _, new=new: new)


class _Collector:
    """The process's garbage collector, which captures on several threads slow down together."""

    def __init__(self):
        self._lock, self._captures = guarded(threading.Lock()), 0
        self._before = self._ours = gc.get_threshold()

    def enter(self) -> None:
        with self._lock:
            self._captures += 1
            if self._captures > 1:
                return
            self._before = first, *rest = gc.get_threshold()
            self._ours = (max(_SELDOM, first) if first else 0, *rest)  # 0: somebody turned it off
            gc.set_threshold(*self._ours)

    def leave(self) -> None:
        with self._lock:
            self._captures -= 1
            if self._captures == 0 and gc.get_threshold() == self._ours:  # forward may set another
                gc.set_threshold(*self._before)


_COLLECTOR = _Collector()


@contextlib.contextmanager
def collected_seldom() -> Iterator[None]:
    """Within, the garbage collector runs seldom."""
    _COLLECTOR.enter()
    try:
        yield
    finally:
        _COLLECTOR.leave()


def _nothing(*_args: Any) -> None:
    return None


def _frames(found: list[dict], skip: int) -> traceback.StackSummary:
    """Of a traceback, the outermost frame first, without torch's and ours, of which a node's stack
    has a hundred, but for forward's, which torch looks for, and the last. A line is read where it
    is asked for."""
    frames = found[skip:][::-1]
    kept = [f for f in frames[:-1] if f["name"] == "forward" or _is_others(f["filename"])]
    return traceback.StackSummary(
        traceback.FrameSummary(f["filename"], f["line"], f["name"], lookup_line=False)
        for f in (*kept, *frames[-1:])
    )


def _is_others(file: str) -> bool:
    return not file.startswith((PACKAGE, TORCH))
