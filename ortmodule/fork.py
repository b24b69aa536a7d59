"""Locks of a process that may fork: no other thread holds one of them while it does.

Otherwise a child could wait for ever, and would have torch as a capture had changed it. A fork
waits for them for half a minute at most, as their holder may wait for the forking thread itself.
Those that are still held then are free in the child.
"""

import os
import threading
import time
import weakref
from typing import Any

_ALL: weakref.WeakSet = weakref.WeakSet()
_LONGEST_SECONDS = 30.0


class _Held(threading.local):
    """By this thread, for its fork."""

    def __init__(self):
        self.locks: list = []


_HELD = _Held()


def guarded(lock: Any) -> Any:
    """The lock, a threading.Lock or RLock, which is then one of these."""
    _ALL.add(lock)
    return lock


def _take_all() -> None:
    """Whoever has one may wait for another, so nothing is held while one is waited for."""
    until = time.monotonic() + _LONGEST_SECONDS
    while not _try_all(list(_ALL)) and time.monotonic() < until:
        time.sleep(0.001)


def _try_all(locks: list) -> bool:
    _HELD.locks = held = []
    for lock in locks:
        if not lock.acquire(blocking=False):
            _give_back()
            return False
        held.append(lock)
    return True


def _give_back() -> None:
    for lock in _HELD.locks:
        lock.release()
    _HELD.locks = []


def _renew() -> None:
    """In the child, where no other thread is left to give one back."""
    _give_back()
    for lock in list(_ALL):
        if lock.acquire(blocking=False):
            lock.release()
        else:
            lock._at_fork_reinit()


os.register_at_fork(before=_take_all, after_in_parent=_give_back, after_in_child=_renew)
