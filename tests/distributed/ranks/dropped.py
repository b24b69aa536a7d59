"""One rank of two that lie in namespaces of the network; the link is gone after the second step.

    python dropped.py RANK ADDRESS FOLDER

It says "ready" in FOLDER, waits there for "dropped", and prints what the next step told.
"""

import datetime
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from faults import model_of, step, told


def main(rank: int, address: str, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://{address}:29500", rank=rank, world_size=2,
        timeout=datetime.timedelta(seconds=8),
    )  # fmt: skip
    model = model_of()
    for _ in range(2):
        step(model)
    (folder / f"ready{rank}").touch()
    while not (folder / "dropped").exists():
        time.sleep(0.05)
    print(told(lambda: step(model)), flush=True)
    os._exit(0)  # the groups are beyond repair


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
