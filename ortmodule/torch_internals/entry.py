"""What is needed of torch's internals, name by name, and what stands for one that is not there."""

import importlib
import sys
from typing import Any, NamedTuple, NoReturn

import torch

from ..errors import NotCapturable


class Entry(NamedTuple):
    """A name of torch's, what of ours needs it, the file here that has it, and whether this torch
    has it."""

    path: str
    used_for: str
    room: str
    is_there: bool


ENTRIES: list[Entry] = []


def need(path: str, used_for: str) -> Any:
    """What torch has at this dotted path, noted; where it has nothing, a stand-in that refuses."""
    room = sys._getframe(1).f_globals["__name__"].rpartition(".")[2]
    try:
        found = _found(path)
    except (ImportError, AttributeError):
        ENTRIES.append(Entry(path, used_for, room, False))
        return _Missing("Missing", (), {"_path": path, "_used_for": used_for})
    ENTRIES.append(Entry(path, used_for, room, True))
    return found


def gone(room: str) -> NotCapturable | None:
    """Why nothing that needs all names of this file can be; None: this torch has them."""
    missing = (e for e in ENTRIES if e.room == room and not e.is_there)
    return next((_refusal(e.path, e.used_for) for e in missing), None)


def _found(path: str) -> Any:
    """The longest part of the path that can be imported, and its attributes from there on."""
    parts = path.split(".")
    for k in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:k]))
        except ModuleNotFoundError:
            continue
        for name in parts[k:]:
            value = getattr(value, name)
        return value
    raise ImportError(path)


class _Missing(type):
    """The class of a name that this torch lacks: nothing is an instance of it, and whoever calls it
    or asks it for something is refused."""

    def __getattr__(cls, name: str) -> NoReturn:
        cls._refuse()

    def __call__(cls, *_args: Any, **_kwargs: Any) -> NoReturn:
        cls._refuse()

    def _refuse(cls) -> NoReturn:
        raise _refusal(cls._path, cls._used_for)


def _refusal(path: str, used_for: str) -> NotCapturable:
    return NotCapturable(f"torch {torch.__version__} has no {path}, which {used_for} need")
