"""A small BERT trained by several processes, from where its last checkpoint is:

    torchrun --nproc-per-node 2 --max-restarts 3 examples/10_torchrun.py
    mpirun -n 2 python examples/10_torchrun.py --backend ort_mpi
    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint <host>:29400 \\
        examples/10_torchrun.py

Without a launcher it is one process. The global batch is the same for any number of them.
"""

import argparse
import pathlib
import sys

import topics
import torch
import torch.distributed as dist
from ortmodule.distributed import Checkpointer, DataParallel, Progress, init
from ortmodule.optim import AdamW
from torch.utils.data import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

OUT = pathlib.Path(__file__).resolve().parent.parent / "out"
BATCH = 16  # of all processes together


class Rows(torch.utils.data.Dataset):
    def __init__(self, data: dict):
        self.data = data

    def __len__(self) -> int:
        return len(self.data["labels"])

    def __getitem__(self, row: int) -> dict:
        return {name: column[row] for name, column in self.data.items()}


def train(args: argparse.Namespace) -> DataParallel:
    """Trains up to `args.steps`."""
    train_data, _ = topics.split()
    sampler = DistributedSampler(Rows(train_data), drop_last=True)
    own = BATCH // dist.get_world_size()
    loader = StatefulDataLoader(Rows(train_data), batch_size=own, sampler=sampler, drop_last=True)
    model = DataParallel(topics.small_model())
    optimizer = AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, args.steps)
    checkpointer = Checkpointer(
        args.folder, model=model, optimizer=optimizer, scheduler=scheduler, loader=loader
    )
    step = checkpointer.load() or 0
    progress = Progress(args.every, step)
    while step < args.steps:
        sampler.set_epoch(step * BATCH // len(train_data["labels"]))
        for batch in loader:
            optimizer.zero_grad()
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            scheduler.step()
            progress.step(loss.detach(), own)
            step += 1
            if step % args.every == 0:
                checkpointer.save(step)
            if step == args.steps:
                break
    checkpointer.close()
    return model


def main() -> int | str:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--folder", default=str(OUT / "torchrun"))
    parser.add_argument("--backend", default=None if torch.cuda.is_available() else "gloo")
    args = parser.parse_args()
    init(args.backend)
    model = train(args)
    report, first = model.module.explain(), dist.get_rank() == 0
    if first:
        print(report.line())
        share = topics.accuracy(model.module, topics.split()[1], 64)
        print(f"accuracy {share:.1%} on sentences held back")
    dist.barrier()
    dist.destroy_process_group()
    return "\n".join(map(str, report.fallbacks)) if report.fallbacks else 0


if __name__ == "__main__":
    sys.exit(main())
