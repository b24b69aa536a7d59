"""What torch logs of a call that it refuses while it is traced is not for the user.

The caller gets eager's own exception, or none where parts or eager serve the call. Entered by
stages.py and fallback.py.
"""

import contextlib
import logging
import threading
from collections.abc import Iterator

_LOGGERS = (
    "torch._subclasses.fake_tensor",
    "torch.fx.experimental.symbolic_shapes",
    "torch._dynamo.variables.tensor",
)
_HERE = threading.local()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Within, this thread's records of these loggers are dropped, but where TORCH_LOGS asks for
    them."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_unless_quiet)  # which it has once
    before = getattr(_HERE, "quiet", False)
    _HERE.quiet = True
    try:
        yield
    finally:
        _HERE.quiet = before


def _unless_quiet(record: logging.LogRecord) -> bool:
    asked = logging.getLogger(record.name).isEnabledFor(logging.INFO)
    return asked or not getattr(_HERE, "quiet", False)
