"""Warnings while forward is learnt from: this thread's are hidden, other threads' are theirs."""

import contextlib
import threading
import warnings
from collections.abc import Iterator


class _OfThisThread:
    """Stands for the text of a filter of warnings: it is like those of the thread that made it."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def match(self, _text: str) -> bool:
        return threading.get_ident() == self._thread


@contextlib.contextmanager
def hidden() -> Iterator[None]:
    """Within, this thread's warnings are not told."""
    with warnings.catch_warnings():
        warnings.filters.insert(0, ("ignore", _OfThisThread(), Warning, None, 0))
        yield
