"""What forward raises past `except Exception` while it is learnt from, as SystemExit."""

import contextlib
import dis
import signal
import traceback
from collections.abc import Iterator

from ..errors import let_go
from .budget import ends_work


class Ended(Exception):
    """Forward raised an error that is no Exception; eager's call raises it if it does so there."""


@contextlib.contextmanager
def as_error() -> Iterator[None]:
    """Within, what forward raises is an Exception; what a user or a signal's handler raises in it
    from outside, and the end of a budget, stay."""
    try:
        yield
    except Exception:
        raise
    except BaseException as raised:
        if ends_work(raised) or _from_outside(raised):
            raise
        error = Ended(type(raised).__name__)
        let_go(raised)
    else:
        return
    raise error


def _from_outside(error: BaseException) -> bool:
    """Whether it comes from a handler of a signal; Python's own raises at any instruction."""
    frames = list(traceback.walk_tb(error.__traceback__))
    handlers = {getattr(signal.getsignal(s), "__code__", None) for s in signal.valid_signals()}
    if handlers & {frame.f_code for frame, _ in frames}:
        return True
    if not isinstance(error, KeyboardInterrupt):
        return False
    last = error.__traceback__
    while last.tb_next is not None:
        last = last.tb_next
    at = (i for i in dis.get_instructions(last.tb_frame.f_code) if i.offset == last.tb_lasti)
    return not any(i.opname in ("RAISE_VARARGS", "RERAISE") for i in at)
