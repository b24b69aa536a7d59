"""CUDA's double, in the place of the driver and the libraries: a device `cuda` without a GPU."""

import ctypes
import importlib.util
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
    os.environ.setdefault("ORTMODULE_CACHE", "off")  # the user's folder
    return ctypes.CDLL(str(built / "cuda_double.so"))


_double = _load()
_double.cuda_double_compared.restype = ctypes.c_bool
_double.cuda_double_compiled.restype = _double.cuda_double_texts.restype = ctypes.c_size_t
_double.cuda_double_text.restype = ctypes.c_char_p
_double.cuda_double_text.argtypes = [ctypes.c_size_t]


def use(kind: int = CUDA) -> None:
    """From now on the provider `cuda` runs on the double."""
    _double.cuda_double_use(kind)


def use_without_runs(nvrtc: str | None = None, arch: int = 90) -> None:
    """As `use`, but nothing is run: texts are compiled by NVRTC, or noted where none is named.

    What is copied to the host is zeros. In a process of its own: devices are what they were first.
    """
    path = nvrtc.encode() if nvrtc else None
    _double.cuda_double_use_without_runs(CUDA, path, arch)


def nvrtc() -> str | None:
    """NVRTC's library, beside torch or in the toolkit; None where there is none."""
    spec = importlib.util.find_spec("nvidia")
    found = spec.submodule_search_locations if spec else ()
    folders = [pathlib.Path(f) / "cu13" / "lib" for f in found]
    for folder in [*folders, pathlib.Path("/usr/local/cuda/lib64")]:
        if (folder / "libnvrtc.so.13").exists():
            return str(folder / "libnvrtc.so.13")
    return None


def compiled() -> int:
    """Texts that were compiled in this process, not those found on disk."""
    return _double.cuda_double_compiled()


def texts() -> list[str]:
    """Those that were compiled or noted without runs, since they were last asked for."""
    found = [_double.cuda_double_text(i).decode() for i in range(_double.cuda_double_texts())]
    _double.cuda_double_forget_texts()
    return found


def compared() -> bool:
    """Whether the provider's declarations were compared with NVIDIA's headers."""
    return _double.cuda_double_compared()


def launches() -> int:
    """Kernels that were launched so far."""
    return _double.cuda_double_launches()


def products() -> int:
    """Products that were queued so far."""
    return _double.cuda_double_products()
