"""What is set or asked for the whole process, by onnxruntime's names.

Thread pools, allocators, telemetry and libraries have no counterpart here: what sets them is taken
and has no effect.
"""

import platform
import sys
from typing import Any

from .. import _native

_AVAILABLE = ["CPUExecutionProvider"]
_MOST_SEVERE = 4


def get_available_providers() -> list[str]:
    """The names that InferenceSession takes as `providers` without a warning."""
    return list(_AVAILABLE)


def get_all_providers() -> list[str]:
    """The same: there are no others to be built in."""
    return list(_AVAILABLE)


def get_device() -> str:
    """Where sessions run."""
    return "CPU"


def get_version_string() -> str:
    """The engine's version."""
    return _native.core().version()


def get_build_info() -> str:
    """What was built."""
    return f"ortmodule {get_version_string()}, for python {platform.python_version()}"


def has_collective_ops() -> bool:
    """Sessions have none."""
    return False


def set_seed(seed: int) -> None:
    """Of what sessions draw from now on."""
    _native.core().set_seed(seed)


def set_default_logger_severity(severity: int) -> None:
    """0 to 4; without effect: the engine logs where ORTMODULE_DEBUG says so."""
    if not 0 <= severity <= _MOST_SEVERE:
        raise RuntimeError(f"severity is {severity}, expected 0 to {_MOST_SEVERE}")


def set_default_logger_verbosity(verbosity: int) -> None:
    """Without effect, as set_default_logger_severity."""


def disable_telemetry_events() -> None:
    """Without effect: there are none."""


def enable_telemetry_events() -> None:
    """Without effect: there are none."""


def preload_dlls(
    cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: Any = None
) -> None:
    """Without effect: the engine has loaded what it needs."""


def set_global_thread_pool_sizes(intra_op_num_threads: int, inter_op_num_threads: int) -> None:
    """Without effect: sessions share OpenMP's threads, as OMP_NUM_THREADS says."""


def create_and_register_allocator(memory_info: Any, arena_cfg: Any) -> None:
    """Without effect: memory is planned."""


def create_and_register_allocator_v2(
    provider_type: str, memory_info: Any, provider_options: Any, arena_cfg: Any
) -> None:
    """Without effect: memory is planned."""


def print_debug_info() -> None:
    """Prints versions."""
    print(f"ortmodule version: {get_version_string()}")
    print(f"platform: {platform.platform()}")
    print(f"python: {sys.version}")
