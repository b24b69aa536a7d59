"""The engine's sessions of one model: one for each set of initializers that runs feed."""

import threading
import weakref
from collections.abc import Callable
from typing import Any

from ..fork import guarded

_MOST = 4  # each has weights and plans of its own


class Opened:
    """Of the sessions to which initializers are fed, the latest few are kept."""

    def __init__(self) -> None:
        self._lock = guarded(threading.Lock())
        self._kept: dict[frozenset[str], Any] = {}  # the latest last
        self._all: weakref.WeakSet = weakref.WeakSet()  # those that a run still has, too

    def get(self, fed: frozenset[str], open_: Callable[[frozenset[str]], Any]) -> Any:
        """The session to which these are inputs: opened where it is not kept."""
        with self._lock:
            session = self._kept.pop(fed, None)
            if session is not None:
                self._kept[fed] = session
                return session
        return self._keep(fed, open_(fed))

    def _keep(self, fed: frozenset[str], session: Any) -> Any:
        with self._lock:
            self._all.add(session)
            self._kept[fed] = session
            for oldest in list(self._kept)[:-_MOST]:
                del self._kept[oldest]
        return session

    def terminate(self) -> None:
        """Ends the runs of all, those that are no longer kept among them."""
        with self._lock:
            sessions = list(self._all)
        for session in sessions:
            session.terminate()

    def __len__(self) -> int:
        return len(self._kept)
