"""Training in several processes, on top of torch.distributed.

DataParallel is torch's DDP over an ORTModule, with gradients written where they are reduced.
Checkpointer saves and loads a run, Progress prints its loss and throughput. `init` is
init_process_group under any launcher. `ort_mpi` is a backend of torch.distributed over MPI, which
importing this package registers.
"""

import importlib
import importlib.util

from .._lazy import lazily

_HOMES = {
    "Checkpointer": "checkpointer",
    "DataParallel": "data_parallel",
    "Progress": "progress",
    "init": "mpi",
}
__all__ = list(_HOMES)

__getattr__, __dir__ = lazily(__name__, _HOMES)

if importlib.util.find_spec("torch") is not None:  # without it dir() still lists the names
    importlib.import_module(".mpi", __name__).register()
