"""Names of onnxruntime's that exist here to raise one error that says why."""

from typing import Any, NoReturn

from .errors import Fail


def _refuse(what: str) -> NoReturn:
    raise Fail(f"{what} is not supported")


class LoraAdapter:
    """Adapters of weights: ortmodule.lora merges them while a model is trained."""

    def Load(self, path: Any) -> None:  # noqa: N802
        """A Fail."""
        _refuse("an adapter in onnxruntime's format")


class AdapterFormat:
    """A file of adapters."""

    def __init__(self, adapter: Any = None):
        _refuse("an adapter in onnxruntime's format")

    @staticmethod
    def read_adapter(file_path: Any) -> NoReturn:
        """A Fail."""
        _refuse("an adapter in onnxruntime's format")


class ModelCompiler:
    """Models compiled into a file: plans are made when a session is opened."""

    def __init__(self, *arguments: Any, **options: Any):
        _refuse("compiling a model into a file")


class SparseTensor:
    """Sparse values: a model's own are read and become dense."""

    @staticmethod
    def sparse_coo_from_numpy(*parts: Any) -> NoReturn:
        """A Fail."""
        _refuse("a sparse value, in coordinates, as an input")

    @staticmethod
    def sparse_csr_from_numpy(*parts: Any) -> NoReturn:
        """A Fail."""
        _refuse("a sparse value, in compressed rows, as an input")


class OrtEpContextData:
    """A compiled part of a model."""

    def __init__(self, *_parts: Any):
        _refuse("a compiled part of a model")


class OrtEpContextDataBuffer:
    """A compiled part of a model."""

    def __init__(self, *_parts: Any):
        _refuse("a compiled part of a model")


class OrtSyncStream:
    """A queue of a device: the cpu has none."""

    def __init__(self, *_parts: Any):
        _refuse("a queue of a device, on the cpu,")


def register_execution_provider_library(registration_name: str, library_path: Any) -> None:
    """A Fail."""
    _refuse(f"library '{library_path}' of an execution provider")


def unregister_execution_provider_library(registration_name: str) -> None:
    """A Fail."""
    raise Fail(f"no library was registered as '{registration_name}'")
