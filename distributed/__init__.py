"""Training in several processes: torch.distributed is the engine, what it has is not written again.

DataParallel is torch's DDP over an ORTModule, with gradients written where they are reduced;
Checkpointer saves and loads a run, Progress tells of it; `init` is init_process_group under any
launcher. `ort_mpi` is a backend of torch's over MPI. Without torch there are but the names.
"""

import importlib
import importlib.util

_HOMES = {
    "Checkpointer": "checkpointer",
    "DataParallel": "data_parallel",
    "Progress": "progress",
    "init": "mpi",
}
__all__ = list(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module 'ortmodule.distributed' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


if importlib.util.find_spec("torch") is not None:
    importlib.import_module(".mpi", __name__).register()
