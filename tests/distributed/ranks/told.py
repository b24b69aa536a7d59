"""What processes are told. Run by the processes of processes.py."""

import contextlib
import io
import math
import os

import torch.distributed as dist
from ortmodule.distributed import Progress, everyone


def progress() -> tuple[str, str]:
    """The line of a step, and what this rank printed: 1 sample of loss 0, 3 of loss 6."""
    rank, printed = dist.get_rank(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        line = Progress(every=1).step(6.0 * rank, 1 + 2 * rank)
    return line, printed.getvalue()


def progress_of_one() -> tuple[str, str]:
    """The lines of steps where rank 0 alone has samples, whose loss is a number, then none."""
    rank, progress = dist.get_rank(), Progress(every=1)
    with contextlib.redirect_stdout(io.StringIO()):
        return tuple(progress.step(loss, samples) for loss, samples in (
            (2.0, 4) if rank == 0 else (math.nan, 0), (math.nan, 1),
        ))  # fmt: skip


def alone_to_mpi(pipe) -> None:
    """Of a process that is rank 0 of 2 to torch, and the only one to MPI."""
    everyone.wait_for = lambda *_: None
    try:
        dist.init_process_group("ort_mpi", store=dist.HashStore(), rank=0, world_size=2)
    except RuntimeError as error:
        pipe.send(str(error))
    finally:
        os._exit(0)
