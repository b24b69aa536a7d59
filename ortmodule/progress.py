"""A line on stderr about what takes longer than two seconds, as a first call does."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

_AFTER_SECONDS = 2.0
_HERE = threading.local()


@contextlib.contextmanager
def told(what: str) -> Iterator[None]:
    """Within, `what` is said once it has taken two seconds, and at its end how long it took. What
    begins within it is part of it."""
    if getattr(_HERE, "telling", False):
        yield
        return
    began, said = time.perf_counter(), threading.Event()

    def say() -> None:
        said.set()
        print(f"ortmodule: {what} ...", file=sys.stderr, flush=True)

    timer = threading.Timer(_AFTER_SECONDS, say)
    timer.daemon, _HERE.telling = True, True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _HERE.telling = False
        if said.is_set():
            seconds = time.perf_counter() - began
            print(f"ortmodule: {what} took {seconds:.1f} s", file=sys.stderr, flush=True)
