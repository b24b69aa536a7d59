"""What processes print. Run by the processes of processes.py."""

import contextlib
import io

import torch.distributed as dist
from ortmodule.distributed import Progress


def progress() -> tuple[str, str]:
    """The line of a step, and what this rank printed: 1 sample of loss 0, 3 of loss 6."""
    rank, printed = dist.get_rank(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        line = Progress(every=1).step(6.0 * rank, 1 + 2 * rank)
    return line, printed.getvalue()
