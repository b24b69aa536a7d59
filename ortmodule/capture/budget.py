"""How long the traces of one capture may take: sympy may never end."""

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any


class OutOfTime(Exception):
    """A trace took too long."""


class _OutOfTime(BaseException):
    """Raised in the tracing thread from outside; no handler of Exception swallows it."""


class Budget:
    """`seconds` of this thread's processor time, for all traces of a capture together."""

    def __init__(self, seconds: float):
        self.seconds = self._left = seconds

    def run(self, work: Callable[[], Any], last: bool) -> Any:
        """work(), or OutOfTime where it takes longer than what is left; half of that where another
        trace may come after it."""
        began = time.thread_time()
        try:
            return _within(work, max(self._left if last else self._left / 2, 0.0))
        finally:
            self._left -= time.thread_time() - began


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
        pass
    if given_up:
        raise OutOfTime
    return result
