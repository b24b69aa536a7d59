"""Training in several processes: torch.distributed is the engine, what it has is not written again.

DataParallel is torch's DDP over an ORTModule, with gradients written where they are reduced;
Checkpointer saves and loads a run.
"""

from .checkpointer import Checkpointer
from .data_parallel import DataParallel

__all__ = ["Checkpointer", "DataParallel"]
