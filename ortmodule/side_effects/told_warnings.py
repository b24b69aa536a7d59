"""Warnings while forward is learnt from: what was told before stays told, and other threads' are
theirs.

Python forgets what it has told whenever the filters change, in all modules.
"""

import contextlib
import sys
import threading
import warnings
from collections.abc import Iterator


class _Probe(Warning):
    """Given to nobody."""


class _OfThisThread:
    """Stands for the text of a filter of warnings: it is like those of the thread that made it."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def match(self, _text: str) -> bool:
        return threading.get_ident() == self._thread


@contextlib.contextmanager
def hidden() -> Iterator[None]:
    """Within, this thread's warnings are not told."""
    with warnings.catch_warnings():
        warnings.filters.insert(0, ("ignore", _OfThisThread(), Warning, None, 0))
        yield


@contextlib.contextmanager
def told_stays_told() -> Iterator[None]:
    """What was told before, or is told within, is told no second time for filters that changed
    within."""
    version = _version()
    told = [(r, dict(r)) for r in _registries() if r.get("version") == version]
    try:
        yield
    finally:
        now = _version()
        for registry, before in told:
            registry.update(before)
        for registry in _registries() if now != version else ():
            if version <= registry.get("version", -1):
                registry["version"] = now


def _registries() -> list[dict]:
    """Where Python notes what it told, and under which version of the filters, by modules."""
    modules = list(sys.modules.values())
    found = (getattr(m, "__dict__", {}).get("__warningregistry__") for m in modules)
    return [r for r in (warnings.onceregistry, *found) if isinstance(r, dict)]


def _version() -> int:
    """Which Python counts up as filters change."""
    filters, ignored = warnings.filters, ("ignore", None, _Probe, None, 0)
    filters.insert(0, ignored)  # by itself it is no change that counts
    registry: dict = {}
    try:
        warnings.warn_explicit("", _Probe, "", 0, registry=registry)
    finally:
        filters.remove(ignored)
    return registry["version"]
