"""Training in several processes: torch.distributed is the engine, what it has is not written again.

DataParallel is torch's DDP over an ORTModule, with gradients written where they are reduced;
Checkpointer saves and loads a run; `init` is init_process_group under any launcher. `ort_mpi` is a
backend of torch's over MPI.
"""

from .checkpointer import Checkpointer
from .data_parallel import DataParallel
from .mpi import init
from .mpi import register as _register_mpi

__all__ = ["Checkpointer", "DataParallel", "init"]

_register_mpi()
