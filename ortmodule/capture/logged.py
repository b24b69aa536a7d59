"""Messages that forward logs while it is learnt from: a capture would log none at later calls."""

import contextlib
import logging
from collections.abc import Callable, Iterator

from ..errors import NotCapturable, WarmUp
from ..guards import observation
from ..python_ops import functions
from ..torch_internals.replace import put_for_this_thread

# These log what happens in a trace, not in forward.
_TRACING = ("torch", "ortmodule")


@contextlib.contextmanager
def refused(refuse: Callable[[NotCapturable], None]) -> Iterator[None]:
    """Within, `refuse` is given what a user's code logs in this thread, and no handler is. If it
    comes once, it comes in the call that eager then makes. What a package logs is told, as its
    warnings are."""

    def heard(record: logging.LogRecord) -> bool:
        if observation.kind_of_file(record.pathname) != observation.OWN:
            return True
        if not functions.is_inside():  # it comes when the Function runs
            place = {"file": record.pathname, "line": record.lineno}
            refuse(WarmUp("forward logs a message", **place))
        return False

    with _handled_if(heard):
        yield


def told_before() -> contextlib.AbstractContextManager:
    """Within, this thread logs nothing: its messages were told in the fake run."""
    return _handled_if(lambda _record: False)


@contextlib.contextmanager
def _handled_if(heard: Callable[[logging.LogRecord], bool]) -> Iterator[None]:
    def make(original: Callable) -> Callable:
        def handle(logger: logging.Logger, record: logging.LogRecord) -> None:
            if record.name.partition(".")[0] in _TRACING or heard(record):
                original(logger, record)

        return handle

    with contextlib.ExitStack() as stack:
        put_for_this_thread(stack, logging.Logger, "callHandlers", make)
        yield
