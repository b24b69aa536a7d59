"""CUDA's double, in the place of the driver and the libraries: a device `cuda` without a GPU."""

import ctypes
import os
import pathlib

import far  # noqa: F401  (its memory and its streams)

from ortmodule import _native

ROOT = pathlib.Path(__file__).parents[2]

CUDA, PRIVATE_USE = 1, 2  # ort::DeviceKind


def _load() -> ctypes.CDLL:
    _native.core()
    built = ROOT / "build" / "current"
    # Texts that were compiled for the host stay beside what was built.
    os.environ.setdefault("ORT_CUDA_DOUBLE_FOLDER", str(built / "cuda_texts"))
    return ctypes.CDLL(str(built / "cuda_double.so"))


_double = _load()
_double.cuda_double_compared.restype = ctypes.c_bool


def use(kind: int = CUDA) -> None:
    """From now on the provider `cuda` runs on the double."""
    _double.cuda_double_use(kind)


def compared() -> bool:
    """Whether the provider's declarations were compared with NVIDIA's headers."""
    return _double.cuda_double_compared()


def launches() -> int:
    """Kernels that were launched so far."""
    return _double.cuda_double_launches()


def products() -> int:
    """Products that were queued so far."""
    return _double.cuda_double_products()
