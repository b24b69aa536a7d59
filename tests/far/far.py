"""The device `far`, loaded: its schedules, its mistakes, and what lives in its memory."""

import ctypes
import enum
import pathlib

from ortmodule import _native

ROOT = pathlib.Path(__file__).parents[2]


class Mistake(enum.IntEnum):
    """A thing that the device leaves out or does otherwise, as a wrong plan would."""

    NONE = 0
    WAIT = 1
    COPY = 2
    REORDER = 3
    UNORDERED = 4  # a reorder copies the value as it lies
    TAKEN = 5  # a kernel reads an input as if it were row-major


def _load() -> ctypes.CDLL:
    _native.core()  # the library's symbols are those of the engine that is loaded
    library = ctypes.CDLL(str(ROOT / "build" / "current" / "far.so"))
    library.far_schedule.argtypes = [ctypes.c_uint64]
    library.far_limit.argtypes = [ctypes.c_size_t]
    library.far_live.restype = ctypes.c_size_t
    library.far_mistake.argtypes = [ctypes.c_int, ctypes.c_int]
    library.far_unmark.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.far_marked.restype = ctypes.c_char_p
    return library


_far = _load()


def schedule(seed: int) -> None:
    """The order in which queued work runs from now on."""
    _far.far_schedule(seed)


def live() -> int:
    """Bytes in the device's memory, when all that was queued has run."""
    return _far.far_live()


def share(percent: int) -> None:
    """Of the nodes that the device claims, where it can."""
    _far.far_share(percent)


def layouts(percent: int) -> None:
    """Of its nodes that take and give values in the device's own orders."""
    _far.far_layouts(percent)


def limit(nbytes: int) -> None:
    """Of what may be allocated; 0: all there is."""
    _far.far_limit(nbytes)


def leave_out(mistake: Mistake, index: int = 0) -> None:
    """The index-th wait that something depends on, or copy, is left out; counts start anew."""
    _far.far_mistake(mistake, index)


def waits() -> int:
    """Of the host for the device, so far."""
    return _far.far_waits()


def late_kernels() -> int:
    """Kernels that were queued and have not run."""
    return _far.far_late_kernels()


def replays() -> int:
    """Of recordings, so far."""
    return _far.far_replays()


def met(mistake: Mistake) -> int:
    """Places at which such a mistake could have been made since leave_out."""
    return _far.far_met(mistake)


def unmark(op: str | None, port: int = 0) -> None:
    """Takes the mark `host` from an op's port; None: gives it back."""
    _far.far_unmark(op and op.encode(), port)


def marked() -> list[tuple[str, int]]:
    """The host ports, op and position, of what the device has prepared so far."""
    pairs = (line.split() for line in _far.far_marked().decode().splitlines())
    return [(op, int(port)) for op, port in pairs]
