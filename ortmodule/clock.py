"""Which share of the time of a module's calls is the engine's; for Options(profile=True)."""

import contextlib
import threading
import time
from collections.abc import Iterator

_HERE = threading.local()


class Clock:
    """`seconds` of the calls that made no captures, and `inside`, those of them in the engine."""

    def __init__(self) -> None:
        self.seconds = self.inside = 0.0

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Around a call of the module."""
        inside, made = _of("inside"), _of("made")
        began = time.perf_counter()
        yield
        if _of("made") == made:
            self.seconds += time.perf_counter() - began
            self.inside += _of("inside") - inside

    def outside_share(self) -> float | None:
        """None: nothing was timed."""
        return 1 - self.inside / self.seconds if self.seconds else None


@contextlib.contextmanager
def engine() -> Iterator[None]:
    """Around a run of the engine."""
    began = time.perf_counter()
    try:
        yield
    finally:
        _HERE.inside = _of("inside") + time.perf_counter() - began


def made() -> None:
    """A capture is made, or a module cut: such a call tells nothing of later ones."""
    _HERE.made = _of("made") + 1


def _of(name: str) -> float:
    return getattr(_HERE, name, 0)
