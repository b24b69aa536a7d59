"""Warnings while forward is learnt from: they are told once, for the user's line, after it; what
was told before stays told, and other threads' are theirs.

Python forgets what it has told whenever the filters change, in all modules.
"""

import contextlib
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..places import PACKAGE, TORCH


class _Probe(Warning):
    """Given to nobody."""


class _OfThisThread:
    """Stands for the text of a filter of warnings: it is like those of the thread that made it."""

    def __init__(self) -> None:
        self.thread: int | None = threading.get_ident()

    def match(self, _text: str = "") -> bool:
        return threading.get_ident() == self.thread


@contextlib.contextmanager
def _filtered(action: str) -> Iterator[_OfThisThread]:
    """Within, a filter is the first for this thread's warnings."""
    mine = _OfThisThread()
    with warnings.catch_warnings():
        warnings.filters.insert(0, (action, mine, Warning, None, 0))
        try:
            yield mine
        finally:
            mine.thread = None  # another thread may set the filters back to these


@contextlib.contextmanager
def hidden() -> Iterator[None]:
    """Within, this thread's warnings are not told."""
    with _filtered("ignore"):
        yield


class Kept(NamedTuple):
    """A warning that is to be told: as `warnings.warn_explicit` takes it."""

    message: Warning
    category: type[Warning]
    filename: str
    lineno: int
    module: str | None
    registry: dict | None


@contextlib.contextmanager
def kept_back(found: list[Kept]) -> Iterator[None]:
    """Within, this thread's warnings go to `found` in place of what is there, whatever the filters
    say."""
    show = warnings.showwarning
    found.clear()

    def keep(message: Any, category: Any, filename: str, lineno: int, *more: Any) -> None:
        if mine.match():
            found.append(_of_users_line(message, category, filename, lineno))
        else:
            show(message, category, filename, lineno, *more)

    with _filtered("always") as mine:
        warnings.showwarning = keep
        yield


def tell(found: list[Kept]) -> None:
    """As the filters say, and so may raise one."""
    for warning in found:
        warnings.warn_explicit(*warning)


def _of_users_line(message: Warning, category: type, filename: str, lineno: int) -> Kept:
    """A warning for a caller's line meets what stands in between while a call is learnt from."""
    frame, ours = sys._getframe(2), (PACKAGE, TORCH, warnings.__file__)
    is_ours = filename.startswith(PACKAGE)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(ours) if is_ours else file == filename:
            registry = frame.f_globals.setdefault("__warningregistry__", {})
            line = frame.f_lineno if is_ours else lineno
            return Kept(message, category, file, line, frame.f_globals.get("__name__"), registry)
        frame = frame.f_back
    return Kept(message, category, filename, lineno, None, None)


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
