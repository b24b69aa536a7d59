"""Errors by onnxruntime's kinds: each is ortmodule's Error too, which is a RuntimeError.

The engine raises InvalidArgument, InvalidProtobuf, InvalidGraph and NotImplemented itself; its
other errors become a Fail where a session is opened or run.
"""

import contextlib
from collections.abc import Iterator

from .. import _native

_core = _native.core()

Error = _core.Error
InvalidArgument = _core.InvalidArgument
InvalidGraph = _core.InvalidGraph
InvalidProtobuf = _core.InvalidProtobuf
NotImplemented = _core.NotImplemented


class Fail(Error):
    """Everything that has no kind of its own."""


class NoSuchFile(Error):
    """The model's file is not there."""


class ModelLoadCanceled(Error):
    """Opening was cancelled: SessionOptions.set_load_cancellation_flag."""


class MissingInput(InvalidArgument, ValueError):
    """The feed lacks an input: a ValueError there."""


class NotFound(Error):
    """Never raised here."""


class NoModel(Error):
    """Never raised here."""


class EngineError(Error):
    """Never raised here."""


class RuntimeException(Error):
    """Never raised here."""


class ModelLoaded(Error):
    """Never raised here."""


class EPFail(Error):
    """Never raised here."""


class ModelRequiresCompilation(Error):
    """Never raised here."""


class DeviceReset(Error):
    """Never raised here."""


def kinded(error: Error) -> Error:
    """The error with a kind: what has none is a Fail there."""
    return Fail(*error.args) if type(error) in (Error, _core.NotAccepted) else error


@contextlib.contextmanager
def by_kind() -> Iterator[None]:
    """What the engine raises within has a kind."""
    try:
        yield
    except Error as error:
        raise kinded(error) from error.__cause__
