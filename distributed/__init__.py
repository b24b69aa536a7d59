"""Training in several processes: torch.distributed is the engine, what it has is not written again.

DataParallel is torch's DDP over an ORTModule, with gradients written where they are reduced.
"""

from .data_parallel import DataParallel

__all__ = ["DataParallel"]
