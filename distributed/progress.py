"""Progress: one line of rank 0's for all ranks."""

import time

import torch
import torch.distributed as dist


class Progress:
    """Prints loss and throughput of all ranks every `every` steps, on rank 0 alone.

    `step(loss, samples)`, loss a mean over this rank's samples: a line has the mean over the
    samples of all ranks since the line before, and their number a second. start: steps made before.
    """

    def __init__(self, every: int = 10, start: int = 0):
        if every < 1:
            raise ValueError(f"[Progress] every is {every}, expected 1 or more")
        self.every, self.steps = every, start
        self._sums = torch.zeros(2, dtype=torch.float64)
        self._since = time.perf_counter()

    def step(self, loss: float | torch.Tensor, samples: int) -> str | None:
        """Notes a step; gives the line where one was due."""
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
    on_device = sums.cuda() if dist.get_backend() == "nccl" else sums
    dist.all_reduce(on_device)
    return on_device.cpu()
