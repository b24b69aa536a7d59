"""Messages that forward logs while it is learnt from: a capture would log none at later calls."""

import contextlib
import logging
from collections.abc import Callable, Iterator

from ..errors import NotCapturable, WarmUp
from ..places import caller_place
from ..python_ops import functions
from ..torch_internals.replace import put_for_this_thread

# These log what happens in a trace, not in forward.
_TRACING = ("torch", "ortmodule")


@contextlib.contextmanager
def refused(refuse: Callable[[NotCapturable], None]) -> Iterator[None]:
    """Within, `refuse` is given what this thread logs, and no handler is. A message that comes once
    comes in the call that eager then makes."""

    def make(original: Callable) -> Callable:
        def handle(logger: logging.Logger, record: logging.LogRecord) -> None:
            if record.name.partition(".")[0] in _TRACING:
                original(logger, record)
            elif not functions.is_inside():  # it comes when the Function runs
                refuse(WarmUp("forward logs a message", **caller_place()))

        return handle

    with contextlib.ExitStack() as stack:
        put_for_this_thread(stack, logging.Logger, "callHandlers", make)
        yield
