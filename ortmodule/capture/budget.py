"""How long the traces of one capture may take: sympy may never end.

Most traces take 3 to 10 ms for each call of torch that forward makes. One with symbols in whose
formulas sympy drowns takes 35 and more; it is given up between two calls as soon as it shows.
"""

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

_GRACE = 2.0  # seconds after its end in which a trace that calls torch ends by itself
_PATIENCE = 2.0  # seconds before the pace of a trace is looked at
_PACE = 0.025  # seconds for each call of torch, beyond which a trace with symbols is given up


class TooSlow(BaseException):
    """A trace with symbols takes too long a call; no handler of Exception swallows it."""


def pace() -> Callable[[int], None]:
    """For this thread's trace that begins now: told before each call of torch how many it has made,
    raises TooSlow."""
    began = time.thread_time()

    def look(made: int) -> None:
        if time.thread_time() - began > max(_PATIENCE, _PACE * made):
            raise TooSlow

    return look


class OutOfTime(Exception):
    """A trace took too long."""


class _OutOfTime(BaseException):
    """Raised in the tracing thread; no handler of Exception swallows it."""


def ends_work(error: BaseException) -> bool:
    """Whether a trace is given up by it."""
    return isinstance(error, (TooSlow, _OutOfTime))


class Budget:
    """`seconds` of this thread's processor time, for all traces of a capture together."""

    def __init__(self, seconds: float):
        self.seconds = self._left = seconds
        self._until = 0.0

    def run(self, work: Callable[[], Any], last: bool) -> Any:
        """work(), or OutOfTime where it takes longer than what is left; half of that where another
        trace may come after it."""
        began = time.thread_time()
        seconds = max(self._left if last else self._left / 2, 0.0)
        self._until = began + seconds
        try:
            return _within(work, seconds + _GRACE)
        finally:
            self._left -= time.thread_time() - began

    def look(self) -> None:
        """Ends work between two calls of torch. An error from outside may meet code of torch in C++
        that lets none through, which ends the process: only work that calls nothing gets one."""
        if time.thread_time() > self._until:
            raise _OutOfTime


def _within(work: Callable[[], Any], seconds: float) -> Any:
    """work(), or OutOfTime where it takes longer.

    No context manager: the error could come between the end of its body and its own `finally`.
    """
    thread, lock = ctypes.c_ulong(threading.get_ident()), threading.Lock()
    raise_in, ended, given_up = ctypes.pythonapi.PyThreadState_SetAsyncExc, [], []

    clock = time.pthread_getcpuclockid(threading.get_ident())
    until, timers = time.clock_gettime(clock) + seconds, []

    def watch():
        with lock:
            if ended:
                return
            left = until - time.clock_gettime(clock)
            if left > 0:  # others had the processor
                wait(left)
            else:
                given_up.append(True)
                raise_in(thread, ctypes.py_object(_OutOfTime))

    def wait(seconds: float):
        timers[:] = [threading.Timer(seconds, watch)]
        timers[0].daemon = True
        timers[0].start()

    result = None
    try:
        try:
            wait(seconds)
            result = work()
        finally:
            with lock:
                ended.append(True)
                if given_up:
                    raise_in(thread, None)  # where it has not come yet
                for timer in timers:
                    timer.cancel()
    except _OutOfTime:
        given_up.append(True)
    if given_up:
        raise OutOfTime
    return result
