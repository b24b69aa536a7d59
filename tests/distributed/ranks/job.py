"""A job for torchrun that notes its losses, and kills itself where it is told to; a pair of
processes.py runs the same without kills.

KILLS in the environment: for each attempt "rank:step:place". The losses go to FOLDER/losses.
"""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from compositions import Net
from ortmodule.distributed import Checkpointer, DataParallel, init, manifest
from ortmodule.optim import AdamW

STEPS, EVERY = 12, 2


def plan() -> tuple[int, str] | None:
    """Whom this attempt kills, when and where."""
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    kills = os.environ.get("KILLS", "").split()
    if attempt >= len(kills):
        return None
    rank, step, place = kills[attempt].split(":")
    return (int(step), place) if int(rank) == dist.get_rank() else None


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def run(folder: Path) -> None:
    torch.manual_seed(0)
    model = DataParallel(Net(), bucket_cap_mb=0.001)
    optimizer = AdamW(model.parameters(), lr=0.01)
    checkpointer = Checkpointer(
        folder / "steps", model=model, optimizer=optimizer, asynchronous=True
    )
    torch.manual_seed(7 + dist.get_rank())
    start = checkpointer.load() or 0
    kill = plan()
    for step in range(start, STEPS):
        if kill == (step, "forward"):
            die()
        if kill == (step, "backward"):
            model.module.blocks[1].up.weight.register_hook(die)
        if kill == (step, "writing"):
            manifest.of_rank = die
        if kill == (step, "renaming"):
            manifest.complete = die
        optimizer.zero_grad()
        loss = model(torch.randn(6, 7)).square().mean()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            with open(folder / "losses", "a") as file:
                file.write(f"{step} {loss.item().hex()}\n")
        if (step + 1) % EVERY == 0:
            checkpointer.save(step + 1)
    checkpointer.close()


def main() -> None:
    init("gloo")
    torch.set_num_threads(1)
    run(Path(os.environ["FOLDER"]))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
