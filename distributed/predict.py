"""`python -m ortmodule.distributed.predict module:function --world 2,4,8`: time and memory of a
data parallel step, without the machines.

One process measures its steps, and when DDP's reducer would reduce which bytes (observe.py). The
rest is arithmetic (timeline.py, shares.py).
"""

import argparse
import functools
import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ortmodule import ORTModule, optim

from . import link as links
from .data_parallel import DataParallel
from .mpi import init, place
from .observe import WARM, Observer, check_model, group_of_one
from .shares import STAGES, Memory, memory, parameters_of
from .timeline import Alone, Link, Timeline, simulate

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Prediction:
    """For each number of ranks a step, and the memory of each ZeRO stage. str() is a table."""

    alone: Alone
    link: Link
    timelines: tuple[Timeline, ...]
    memories: tuple[Memory, ...]

    def of(self, world: int) -> Timeline:
        return next(timeline for timeline in self.timelines if timeline.world == world)

    def gradients(self) -> str:
        """A line for each gradient, in the order in which they lie in the buckets."""
        lines = [
            f"{'bucket':>6} {'bytes':>12} {'ready':>10}  ms from the backward's start, gradient"
        ]
        for k, bucket in enumerate(self.alone.buckets):
            for g in bucket.gradients:
                lines.append(f"{k:6} {g.bytes:12} {_ms(g.ready):>10}  {g.name}")
        return "\n".join(lines)

    def __str__(self) -> str:
        alone = self.alone
        lines = [
            f"one process: forward {_ms(alone.forward)}, backward {_ms(alone.backward)} in "
            f"{len(alone.segments)} segments, optimizer {_ms(alone.optimizer)}, step "
            f"{_ms(alone.step)} ms",
            f"link: latency {self.link.latency * 1e6:.1f} us, bandwidth "
            f"{self.link.bandwidth / 1e9:.3g} GB/s, a reduce takes {self.link.processor:.0%} of a "
            "rank's processors",
            "",
            f"{'bucket':>6} {'bytes':>12}  gradients",
        ]
        for k, bucket in enumerate(alone.buckets):
            names = [gradient.name for gradient in bucket.gradients]
            shown = names[0] if len(names) == 1 else f"{names[0]} ... {names[-1]}"
            lines.append(f"{k:6} {bucket.bytes:12}  {len(names)}: {shown}")
        for timeline in self.timelines:
            lines += ["", *self._of_world(timeline)]
        return "\n".join(lines)

    def _of_world(self, timeline: Timeline) -> list[str]:
        ranks = f"{timeline.world} rank{'s' * (timeline.world > 1)}"
        lines = [
            f"{ranks}: step {_ms(timeline.step)} ms, each at "
            f"{self.alone.step / timeline.step:.1%} of one's speed; {_ms(timeline.exposed)} ms of "
            f"the reduces ({timeline.exposed_share:.1%}) after the backward's end at "
            f"{_ms(timeline.backward)} ms",
            f"{'bucket':>6} {'ready':>10} {'start':>10} {'end':>10}  ms from the backward's start",
        ]
        for k, r in enumerate(timeline.reduces):
            lines.append(f"{k:6} {_ms(r.ready):>10} {_ms(r.start):>10} {_ms(r.end):>10}")
        heads = ("ZeRO", "parameters", "gradients", "states", "plan", "total")
        lines.append("{:>6} {:>12} {:>12} {:>12} {:>12} {:>12}  bytes a rank, by".format(*heads))
        for m in self.memories:
            if m.world == timeline.world:
                plan = "unknown" if m.activations is None else m.activations
                lines.append(
                    f"{m.stage:6} {m.parameters:12} {m.gradients:12} {m.states:12} {plan:>12} "
                    f"{m.total:12}  {STAGES[m.stage]}"
                )
        return lines


def predict(
    model: nn.Module,
    inputs: Any,
    *,
    worlds: Sequence[int] = (2,),
    link: Link | None = None,
    optimizer: MakeOptimizer | None = None,
    rounds: int = 5,
    **options: Any,
) -> Prediction:
    """Predicts a step of DataParallel(model) for each number of ranks in `worlds`.

    model: as for DataParallel, on the CPU. inputs: those of one rank: a tuple of arguments, a dict
        of keywords, one tensor, or a function that calls the model it is given. What the model or
        the function gives is the loss, or has it as `loss` or as first item.
    link: between ranks; None: Link(), a fast network.
    optimizer: makes one from the parameters; None: ortmodule.optim.AdamW. Its steps are made, so
        its learning rate should be 0.
    rounds: the number of steps that are measured, after a few that are not; times are medians.
    options: those of DataParallel, as bucket_cap_mb.

    Where torch.distributed is initialised all ranks call this together and make their steps at the
    same time, so that the times include what they share (memory bandwidth, power). Every rank is
    taken to be as fast as this one, for each number of ranks. Gradients are cleared and random
    states put back; buffers stay as the steps leave them.
    Errors: ValueError for a world below 1, rounds below 1, a model without gradients or loss.
    """
    _check_counts(worlds, rounds)
    check_model(model)
    link = link or Link()
    make = optimizer or functools.partial(optim.AdamW, lr=0.0)
    alone, arena, made = _measured(model, inputs, make, rounds, options)
    parameters = parameters_of(model, lambda p: _states(made, p))
    return Prediction(
        alone,
        link,
        tuple(simulate(alone, link, world) for world in worlds),
        tuple(memory(parameters, w, stage, arena or None) for w in worlds for stage in STAGES),
    )


def _check_counts(worlds: Sequence[int], rounds: int) -> None:
    for world in worlds:
        if world < 1:
            raise ValueError(f"[predict] world is {world}, expected 1 or more ranks")
    if rounds < 1:
        raise ValueError(f"[predict] rounds is {rounds}, expected 1 or more")


def _measured(
    model: nn.Module, inputs: Any, make: MakeOptimizer, rounds: int, options: dict[str, Any]
) -> tuple[Alone, int, torch.optim.Optimizer]:
    """A step of one rank, the bytes of its plans' arenas, and the optimizer that stepped."""
    with group_of_one() as group, torch.random.fork_rng(devices=[]):
        parallel = DataParallel(model, process_group=group, check_alike=False, **options)
        made = make(p for p in model.parameters() if p.requires_grad)
        observer = Observer(parallel, inputs, made)
        for _ in range(WARM + rounds):
            if dist.get_world_size() > 1:
                dist.barrier()
            observer.step()
        alone = observer.alone()
        reports = [m.explain() for m in parallel.modules() if isinstance(m, ORTModule)]
        made.zero_grad()
        del parallel, observer
        gc.collect()  # its reducer's hooks are on the parameters
    arena = sum(r.arena_bytes + sum(p.arena_bytes for p in r.parts) for r in reports)
    return alone, arena, made


def _states(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> int:
    values = optimizer.state.get(parameter, {}).values()
    return sum(value.nbytes for value in values if isinstance(value, torch.Tensor))


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"


def load(name: str) -> tuple[nn.Module, Any]:
    """What `module:function` gives: a model and its inputs. Raises ValueError with the reason where
    there is no such function or it gives something else."""
    module, _, function = name.partition(":")
    if not module or not function:
        raise ValueError(f"[predict] {name!r} is no function, expected module:function")
    sys.path[:0] = [os.getcwd()]
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ModuleNotFoundError as error:
        raise ValueError(f"[predict] {name!r}: {error}") from error
    finally:
        del sys.path[0]
    if not callable(found):
        raise ValueError(f"[predict] {name!r}: module {module} has no function {function}")
    given = found()
    if not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[0], nn.Module):
        kind = type(given).__name__
        raise ValueError(f"[predict] {name} gave a {kind}, expected (module, inputs)")
    return given


def optimizer_of(name: str) -> MakeOptimizer:
    """ortmodule's optimizer of that name, else torch's, at learning rate 0."""
    for home in (optim, torch.optim):
        found = getattr(home, name, None)
        if isinstance(found, type) and issubclass(found, torch.optim.Optimizer):
            return functools.partial(found, lr=0.0)
    raise ValueError(f"[predict] {name!r} is no optimizer of ortmodule.optim or torch.optim")


def _worlds(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ortmodule.distributed.predict",
        description="A data parallel step for some numbers of ranks, from one process's step. "
        "Under torchrun or mpirun it is measured while all ranks make one.",
    )
    add = parser.add_argument
    add("function", help="module:function, which gives (model, inputs)")
    add("--world", type=_worlds, default=[2], help="ranks, as 2,4,8")
    add("--latency", type=float, default=Link.latency, help="of the link, seconds a message")
    add("--bandwidth", type=float, default=Link.bandwidth, help="of the link, bytes a second")
    add(
        "--processor", type=float, default=Link.processor,
        help="share of a rank's processors that a reduce takes while under way: 0 for network "
        "cards and GPUs, up to 1 for Gloo with a rank a core",
    )  # fmt: skip
    add("--measure", action="store_true", help="take the three from this machine's Gloo")
    add("--threads", type=int, help="of a rank")
    add("--optimizer", default="AdamW", help="of ortmodule.optim or torch.optim")
    add("--bucket-cap-mb", type=float, help="as DDP's")
    add("--gradients", action="store_true", help="list each, with the time when it is ready")
    add("--rounds", type=int, default=5, help="steps that are measured")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.threads:
        torch.set_num_threads(given.threads)
    launched = place() is not None or "RANK" in os.environ
    try:
        if launched:
            init("gloo")
        if given.measure:
            link = links.measure_in(dist.group.WORLD) if launched else links.measure()
        else:
            link = Link(given.latency, given.bandwidth, given.processor)
        model, inputs = load(given.function)
        found = predict(
            model, inputs, worlds=given.world, link=link, optimizer=optimizer_of(given.optimizer),
            rounds=given.rounds, bucket_cap_mb=given.bucket_cap_mb,
        )  # fmt: skip
    except ValueError as error:
        parser.error(str(error))
    if not launched or dist.get_rank() == 0:
        print(found, *[found.gradients()] * given.gradients, sep="\n\n")
    if launched:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
