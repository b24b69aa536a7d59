"""Warnings that the user's own code gives while forward is learnt from: a capture would not."""

import contextlib
import sys
import types
import warnings
from collections.abc import Callable, Iterator

from ..errors import NeedsCut
from ..guards import observation
from ..python_ops import functions

_WARN = frozenset({"warn", "warn_explicit"})


class _Telling:
    """Stands for the text of a filter of warnings, which each warning is compared with first: it
    is like none, so that the filters of the user's are asked next."""

    def __init__(self, told: Callable[[types.FrameType], None] | None):
        self.told = told

    def match(self, _text: str) -> None:
        if self.told is not None:
            self.told(sys._getframe(1))


@contextlib.contextmanager
def refused(refuse: Callable[[NeedsCut], None]) -> Iterator[None]:
    """Within, `refuse` is given the line of the user's code that warns, whether a filter hides it
    or not. Torch's warnings, and those of a Function's own Python, come again at each call."""

    def told(frame: types.FrameType) -> None:
        code = frame.f_code
        facts = observation.facts_of(code)
        warns = _WARN & (facts.globals.keys() | facts.attributes.keys())
        own = observation.kind_of_file(code.co_filename) == observation.OWN
        if warns and own and not functions.is_inside():
            place = {"file": code.co_filename, "line": frame.f_lineno}
            refuse(NeedsCut("forward warns", **place))

    telling = _Telling(told)
    with warnings.catch_warnings():  # which also has what was told before told anew
        warnings.filters.insert(0, ("ignore", telling, Warning, None, 0))
        try:
            yield
        finally:
            telling.told = None  # forward may have kept the list of filters
