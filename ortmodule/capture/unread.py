"""What torch and Python do for a trace that nobody reads: left out while a module is captured.

patches.py and stages.py enter it. The graph is the same.
"""

import contextlib
import gc
import traceback
from collections.abc import Callable, Iterator
from typing import Any

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


@contextlib.contextmanager
def collected_seldom() -> Iterator[None]:
    """Within, the garbage collector runs seldom."""
    before = gc.get_threshold()
    if before[0]:  # 0: somebody turned it off
        gc.set_threshold(max(_SELDOM, before[0]), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _nothing(*_args: Any) -> None:
    return None


def _frames(found: list[dict], skip: int) -> traceback.StackSummary:
    """Of a traceback, the outermost frame first; a line is read where it is asked for."""
    return traceback.StackSummary(
        traceback.FrameSummary(f["filename"], f["line"], f["name"], lookup_line=False)
        for f in reversed(found[skip:])
    )
