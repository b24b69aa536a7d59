"""Progress: rank 0 prints a line of loss and throughput for all ranks."""

import time

import torch
import torch.distributed as dist

from .everyone import takes_cpu_tensors


class Progress:
    """Prints loss and throughput of all ranks every `every` steps, on rank 0 alone.

    All ranks call `step(loss, samples)` after each step; loss is a mean over this rank's samples. A
    line has the mean over the samples of all ranks since the last line, and samples per second.
    start: the number of steps made before, as Checkpointer.load() gives it.
    """

    def __init__(self, every: int = 10, start: int = 0):
        if every < 1:
            raise ValueError(f"[Progress] every is {every}, expected 1 or more")
        self.every, self.steps = every, start
        self._sums = torch.zeros(2, dtype=torch.float64)
        self._since = time.perf_counter()

    def step(self, loss: float | torch.Tensor, samples: int) -> str | None:
        """Counts a step. Gives the line, on all ranks, where one is due."""
        self.steps += 1
        if samples:  # a mean over none is NaN
            self._sums += torch.tensor([float(loss) * samples, samples], dtype=torch.float64)
        if self.steps % self.every:
            return None
        sums, self._sums = self._sums, torch.zeros_like(self._sums)
        ranks = dist.get_world_size() if dist.is_initialized() else 1
        if ranks > 1:
            sums = _summed(sums)
        seconds = time.perf_counter() - self._since
        self._since = time.perf_counter()
        line = (
            f"step {self.steps}: loss {sums[0] / sums[1]:.4f}, "
            f"{sums[1] / seconds:,.0f} samples/s on {ranks} rank{'s' if ranks > 1 else ''}"
        )
        if ranks == 1 or dist.get_rank() == 0:
            print(line, flush=True)
        return line


def _summed(sums: torch.Tensor) -> torch.Tensor:
    on_device = sums if takes_cpu_tensors(dist.group.WORLD) else sums.cuda()
    dist.all_reduce(on_device)
    return on_device.cpu()
