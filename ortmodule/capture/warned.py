"""Warnings that the user's own code gives while forward is learnt from: a capture would not."""

import contextlib
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator

from ..errors import NeedsCut, NotCapturable
from ..guards import observation
from ..python_ops import functions

_WARN = frozenset({"warn", "warn_explicit"})


class _Telling:
    """Stands for the text of a filter of warnings, which each warning is compared with first: it
    is like none, so that the filters of the user's are asked next, unless `told` hides it."""

    def __init__(self, told: Callable[[types.FrameType], bool] | None):
        self.told = told

    def match(self, _text: str) -> bool:
        return self.told is not None and self.told(sys._getframe(1))


@contextlib.contextmanager
def refused(refuse: Callable[[NotCapturable], None]) -> Iterator[None]:
    """Within, `refuse` is given the line of the user's code that warns, whether a filter hides it
    or not. Those of a Function's own Python come again at each call, torch's and packages' do not.

    A thread that runs already is none of forward's. Raises NeedsCut where forward leaves the
    filters changed.
    """
    here, others = threading.current_thread(), set(threading.enumerate())  # numbers come again

    def told(frame: types.FrameType) -> bool:
        thread = threading.current_thread()
        if functions.is_inside():
            return True  # it comes when the Function runs
        is_forwards = thread is here or thread not in others
        if not is_forwards or not _is_the_users(frame):
            return False
        kept = contextlib.nullcontext if thread is here else contextlib.suppress
        with kept(NotCapturable):  # a thread of forward's goes on
            refuse(NeedsCut("forward warns", file=frame.f_code.co_filename, line=frame.f_lineno))
        return True

    telling = _Telling(told)
    with warnings.catch_warnings():  # which also has what was told before told anew
        warnings.filters.insert(0, ("ignore", telling, Warning, None, 0))
        filters = list(warnings.filters)
        try:
            yield
        finally:
            telling.told = None  # forward may have kept the list of filters
        if warnings.filters != filters:
            raise NeedsCut("forward changes the filters of warnings")


def _is_the_users(frame: types.FrameType) -> bool:
    """Whether the user's own code, which runs in `frame`, warns: not torch, called by it."""
    code = frame.f_code
    facts = observation.facts_of(code)
    named = (frame.f_globals.get(name) for name in facts.globals)
    warns = _WARN & facts.attributes.keys() or any(
        value is warnings.warn or value is warnings.warn_explicit
        for value in (*frame.f_locals.values(), *named)
    )
    own = observation.kind_of_file(code.co_filename) == observation.OWN
    return bool(warns) and own
