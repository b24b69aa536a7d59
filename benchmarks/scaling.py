"""Two ranks of one thread on Gloo: DDP(eager), DDP(ORTModule), DataParallel without and with the
optimizer attached, a predicted step.

    python benchmarks/scaling.py [--model bert] [--batch 4] [--rounds 10] [--optimizer SGD]

Steps of all are interleaved in one run; so are those of one process that the prediction is made of,
which both ranks make at once, each by itself. The link is measured before and after. Figures are of
rank 0; a step is timed from a barrier to its end.
"""

import argparse
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
from compare import processor, spread
from models import MODELS
from ortmodule.distributed import DataParallel
from ortmodule.distributed.link import measure_in
from ortmodule.distributed.observe import WARM, Observer, group_of_one
from ortmodule.distributed.timeline import Link, simulate
from torch import multiprocessing
from torch.nn.parallel import DistributedDataParallel

from ortmodule import ORTModule

ENGINES = {
    "DDP(eager)": DistributedDataParallel,
    "DDP(ORTModule)": lambda module: DistributedDataParallel(ORTModule(module)),
    "DataParallel": DataParallel,
    "attached": DataParallel,
}


def workload(given: argparse.Namespace):
    torch.manual_seed(0)
    return MODELS[given.model](batch=given.batch)


def optimizer_of(model: torch.nn.Module, given: argparse.Namespace) -> torch.optim.Optimizer:
    return getattr(torch.optim, given.optimizer)(model.parameters(), lr=1e-4, fused=True)


def stepper(engine: str, given: argparse.Namespace):
    """A function that makes one step."""
    module, loss_of = workload(given)
    model = ENGINES[engine](module)
    optimizer = optimizer_of(model, given)
    if engine == "attached":
        model.attach(optimizer)

    def step():
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()

    return step


def rank_main(rank: int, store: str, given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    links = [measure_in(dist.group.WORLD)]
    steps = {engine: stepper(engine, given) for engine in ENGINES}
    with group_of_one() as group:
        module, loss_of = workload(given)
        model = DataParallel(module, process_group=group, check_alike=False)
        observer = Observer(model, loss_of, optimizer_of(model, given))
        seconds = interleave(steps | {"alone": observer.step}, given.rounds)
        links.append(measure_in(dist.group.WORLD))
        if rank == 0:
            report(seconds, observer, links, given)
    dist.destroy_process_group()


def interleave(steps: dict, rounds: int) -> dict[str, list[float]]:
    """Seconds a step of each, in rounds whose order turns."""
    engines = list(steps)
    seconds = {engine: [] for engine in engines}
    for turn in range(-WARM, rounds):
        k = turn % len(engines)
        for engine in engines[k:] + engines[:k]:
            dist.barrier()
            begin = time.perf_counter()
            steps[engine]()
            if turn >= 0:
                seconds[engine].append(time.perf_counter() - begin)
    return seconds


def report(seconds: dict, observer: Observer, links: list[Link], given) -> None:
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    print(f"{given.model}, batch {given.batch} a rank, {given.optimizer}, {given.rounds} rounds")
    print(f"{processor()}, {os.cpu_count()} cores, torch {torch.__version__}, load {load}")
    for when, link in zip(("before", "after"), links, strict=True):
        print(
            f"link {when}: latency {link.latency * 1e6:.0f} us, bandwidth "
            f"{link.bandwidth / 1e9:.2f} GB/s, processor {link.processor:.0%}"
        )
    for engine, found in seconds.items():
        print(f"{engine:16} {_spread([s * 1e3 for s in found], '.1f')} ms a step")
    ours = seconds["DataParallel"]
    for engine in ("DDP(eager)", "DDP(ORTModule)", "attached", "alone"):
        ratios = [a / b for a, b in zip(seconds[engine], ours, strict=True)]
        print(f"{engine} over DataParallel: {_spread(ratios, '.3f')}")
    alone, measured = observer.alone(), statistics.median(ours)
    for when, link in zip(("before", "after"), links, strict=True):
        found = simulate(alone, link, 2)
        print(
            f"predicted with the link {when}: {found.step * 1e3:.1f} ms ({found.exposed * 1e3:.1f} "
            f"exposed), {found.step / measured:.3f} of the measured {measured * 1e3:.1f}"
        )


def _spread(values: list[float], form: str) -> str:
    found = spread(values)
    low, high = found["quartiles"]
    return f"{found['median']:{form}} ({low:{form}} to {high:{form}})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="bert")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--optimizer", default="SGD", help="of torch.optim, fused")
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(rank_main, (f"{folder}/store", parser.parse_args()), nprocs=2)


if __name__ == "__main__":
    main()
