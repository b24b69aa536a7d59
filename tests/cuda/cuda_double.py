"""CUDA's double, in the place of the driver and the libraries: a device `cuda` without a GPU."""

import contextlib
import ctypes
import enum
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
_double.cuda_double_compared.restype = _double.cuda_double_in_foreign.restype = ctypes.c_bool
_double.cuda_double_compiled.restype = _double.cuda_double_texts.restype = ctypes.c_size_t
_double.cuda_double_launched.restype = ctypes.c_bool
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
    """Those that were compiled or noted since they were forgotten."""
    return [_double.cuda_double_text(i).decode() for i in range(_double.cuda_double_texts())]


def forget_texts() -> None:
    """From now on texts and their launches are noted anew."""
    _double.cuda_double_forget_texts()


@contextlib.contextmanager
def foreign_context():
    """Within it the thread's context is somebody else's, and is so again when a call returns."""
    _double.cuda_double_enter_foreign()
    yield
    if not _double.cuda_double_in_foreign():
        raise RuntimeError("the context that was current before a call is not so after it")


class Fault(enum.IntEnum):
    """A kind of calls of which one goes wrong: it does nothing, or too early."""

    NONE = 0
    CONTEXT = 1  # the current one is not set
    RELEASE = 2  # memory goes before the work that was queued earlier
    SYNCHRONIZE = 3
    FILL = 4
    COPY = 5


def fault(kind: Fault, at: int = 0) -> None:
    """The at-th call of the kind goes wrong; counts start anew."""
    _double.cuda_double_fault(kind, at)


def calls(kind: Fault) -> int:
    """Of the kind, since a fault was chosen."""
    return _double.cuda_double_calls(kind)


def launched(kernel: str, text: str) -> bool:
    """Whether this kernel of a text ran since texts were forgotten."""
    return _double.cuda_double_launched(kernel.encode(), text.encode())


def replace(text: str, by: str) -> None:
    """This one text is compiled as the other."""
    _double.cuda_double_replace(text.encode(), by.encode())


def compared() -> bool:
    """Whether the provider's declarations were compared with NVIDIA's headers."""
    return _double.cuda_double_compared()


def launches(kernel: str | None = None) -> int:
    """Kernels that were launched so far, or those of one name in its text."""
    if kernel is None:
        return _double.cuda_double_launches()
    return _double.cuda_double_launches_of(kernel.encode())


def products() -> int:
    """Products that were queued so far."""
    return _double.cuda_double_products()
