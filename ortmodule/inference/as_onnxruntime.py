"""as_onnxruntime: this package under the name onnxruntime, for scripts as they are."""

import importlib
import importlib.machinery
import sys
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import PUBLIC, errors, values

_NAME = "onnxruntime"
# Libraries compare it: the names are those of this release.
_VERSION = "1.31.1"
_OURS = ("as_onnxruntime", "BoundRun")
_ERRORS = (
    "DeviceReset",
    "EPFail",
    "EngineError",
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NotFound",
    "NotImplemented",
    "RuntimeException",
)
_IN_CAPI = ("onnxruntime_inference_collection", "onnxruntime_pybind11_state", "_pybind_state")


def as_onnxruntime() -> types.ModuleType:
    """Makes `import onnxruntime` give this engine, from now on in this process.

    Call it before a script's own import: an Error where onnxruntime was imported already. What an
    installed onnxruntime has in Python (onnxruntime.quantization, .transformers, .tools) stays
    importable, and runs on this engine.
    """
    loaded = sys.modules.get(_NAME)
    if loaded is not None:
        if getattr(loaded, "__ortmodule__", False):
            return loaded
        raise errors.Error("onnxruntime was imported already: call as_onnxruntime() before that")
    folder = _installed()
    public = _values(name for name in PUBLIC if name not in _OURS)
    theirs = {name: getattr(errors, name) for name in _ERRORS}
    capi = {**public, **theirs, "OrtValueVector": values.OrtValueVector}
    top = _module(_NAME, [str(folder)] if folder else [], public)
    top.__version__, top.__ortmodule__ = _VERSION, True
    top.__file__ = str(folder / "__init__.py") if folder else __file__  # libraries look beside it
    top.capi = _module(f"{_NAME}.capi", [], {})
    for name in _IN_CAPI:
        setattr(top.capi, name, _module(f"{_NAME}.capi.{name}", None, capi))
    top.backend = _backend()
    return top


def _installed() -> Path | None:
    """The folder of an installed onnxruntime, which is not loaded for that."""
    found = importlib.machinery.PathFinder.find_spec(_NAME)
    return Path(found.origin).parent if found and found.origin else None


def _values(names: Iterable[str]) -> dict[str, Any]:
    package = importlib.import_module(__package__)
    return {name: getattr(package, name) for name in names}


def _module(name: str, path: list[str] | None, members: dict[str, Any]) -> types.ModuleType:
    """A module of these members, found by its name from now on; `path`: of a package."""
    module = types.ModuleType(name, f"ortmodule, by the name {name}.")
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=path is not None)
    if path is not None:
        module.__path__ = module.__spec__.submodule_search_locations = path
    vars(module).update(members)
    sys.modules[name] = module
    return module


def _backend() -> types.ModuleType:
    """onnxruntime.backend, which needs onnx: its functions load it when they are called."""

    def of(name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            return getattr(importlib.import_module("ortmodule.backend"), name)(
                *arguments, **options
            )

        return call

    named = {"run": "run_model"}
    names = ("prepare", "run", "is_compatible", "supports_device")
    return _module(f"{_NAME}.backend", None, {name: of(named.get(name, name)) for name in names})
