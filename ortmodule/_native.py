"""Loads the extension modules: `core()` is _C (no torch), `torch_bridge()` is _torch, `optim()` is
_optim, `mpi()` is _mpi.

Called by ortmodule.inference, module.py, ortmodule.optim and ortmodule.distributed. The only place
that knows where libdnnl lies and which torch the last three were built for.
"""

import ctypes
import functools
import importlib
import importlib.metadata
import importlib.util

_DNNL_PACKAGE = "onednn-cpu-gomp"


class BuildMismatch(ImportError):
    """The bridge was built for another torch than the one in this process."""


@functools.cache
def _load_dnnl() -> None:
    """Loads libdnnl.so.3 from its package, so that ort_core's need of it is met by its soname.

    An editable install has no fixed place relative to it, and LD_LIBRARY_PATH is not ours to ask
    for. Where the package is unknown the RPATH of ort_core decides.
    """
    try:
        files = importlib.metadata.distribution(_DNNL_PACKAGE).files or []
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name == "libdnnl.so.3":
            ctypes.CDLL(str(file.locate()), mode=ctypes.RTLD_GLOBAL)
            return


def _import(name: str):
    try:
        return importlib.import_module(f"ortmodule.{name}")
    except ImportError as error:
        if importlib.util.find_spec(f"ortmodule.{name}") is None:
            raise ImportError(
                f"ortmodule is not built: ortmodule.{name} is missing; run `make` in "
                "the checkout or `pip install .`"
            ) from error
        if "libdnnl" in str(error):
            raise ImportError(
                f"oneDNN is missing ({error}); run `pip install {_DNNL_PACKAGE}==2023.2.0`"
            ) from error
        raise


@functools.cache
def core():
    """The module _C: the engine, without torch."""
    _load_dnnl()
    return _import("_C")


def _public(version: str) -> str:
    """2.11.0+cu130 -> 2.11.0: builds of one version share their headers and ABI."""
    return version.partition("+")[0]


def check_torch(built: str | None, built_abi: bool, running: str, running_abi: bool) -> None:
    """Raises BuildMismatch unless the bridge fits the torch in this process."""
    rebuild = (
        f"run `make` in the checkout, or `pip install --no-build-isolation "
        f"--force-reinstall --no-deps .`, with torch {running} installed"
    )
    if built is None:
        raise BuildMismatch(
            f"ortmodule was built without torch and cannot train next to torch {running}: {rebuild}"
        )
    if _public(built) != _public(running):
        raise BuildMismatch(
            f"ortmodule was built for torch {built} but torch {running} is "
            f"running: {rebuild}, or `pip install torch=={_public(built)}`"
        )
    if built_abi != running_abi:
        raise BuildMismatch(
            f"ortmodule was built for torch {built} with C++11 ABI {built_abi} but "
            f"torch {running} has {running_abi}: {rebuild}"
        )


@functools.cache
def torch_bridge():
    """The module _torch, after a check that it was built for this process's torch."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise ImportError(
            "ORTModule needs torch: pip install 'torch>=2.11' (InferenceSession works without)"
        ) from error
    core()
    from ortmodule import _build_info as info
    from ortmodule.torch_internals.devices import GLIBCXX_USE_CXX11_ABI

    check_torch(
        info.TORCH_VERSION,
        info.TORCH_CXX11_ABI,
        torch.__version__,
        bool(GLIBCXX_USE_CXX11_ABI),
    )
    return _import("_torch")


@functools.cache
def optim():
    """The module _optim, built for the same torch as the bridge."""
    torch_bridge()
    return _import("_optim")


@functools.cache
def mpi():
    """The module _mpi, which is only there if an MPI was where ortmodule was built."""
    torch_bridge()
    if importlib.util.find_spec("ortmodule._mpi") is None:
        raise ImportError(
            "ortmodule was built without MPI: install one (apt-get install libopenmpi-dev "
            "openmpi-bin, or libmpich-dev mpich) and run `make` in the checkout or "
            "`pip install --force-reinstall --no-deps .`"
        )
    try:
        return _import("_mpi")
    except ImportError as error:
        if "libmpi" not in str(error):
            raise
        raise ImportError(
            f"the MPI that ortmodule was built with is missing ({error}): install it or build again"
        ) from error
