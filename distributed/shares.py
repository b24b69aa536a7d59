"""What a rank keeps by ZeRO stage: parameters, gradients, optimizer states. Called by predict.py.

Stages are those of Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion
Parameter Models", SC20, section 5, with what torch's ways to them keep beside the shares.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

STAGES = {
    0: "DataParallel",
    1: "DataParallel, ZeroRedundancyOptimizer",
    2: "fully_shard(reshard_after_forward=False)",
    3: "fully_shard",
}


@dataclass(frozen=True)
class Parameter:
    """`states`: bytes of its optimizer states; `block`: the unit that fully_shard gathers at once,
    0 for what is in no entry of a ModuleList or Sequential."""

    sizes: tuple[int, ...]
    itemsize: int
    trained: bool
    states: int = 0
    block: int = 0

    @property
    def numel(self) -> int:
        return torch.Size(self.sizes).numel()

    @property
    def bytes(self) -> int:
        return self.numel * self.itemsize


@dataclass(frozen=True)
class Memory:
    """Bytes of the rank that has most. activations: the plan's arena, the stash in it, None where
    eager ran."""

    world: int
    stage: int
    parameters: int
    gradients: int
    states: int
    activations: int | None = None

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.states + (self.activations or 0)


def memory(
    parameters: Sequence[Parameter], world: int, stage: int, activations: int | None = None
) -> Memory:
    """What one of `world` ranks keeps at once.

    P, G and S are the bytes of parameters, gradients and states, /W the shares: rows of the first
    axis, the first rank's being the largest. B: of the block with most.
    0: P + G + S. 1: P + G + S's largest part, whole parameters dealt out largest first to whom has
    fewest. 2: P + P/W, G/W + B's gradients, S/W. 3: P/W + what is in no block + two of B (one is
    used while the next is gathered), G/W + B's gradients, S/W.
    Errors: ValueError for another stage, or a world below 1.
    """
    if world < 1:
        raise ValueError(f"[predict] world is {world}, expected 1 or more ranks")
    if stage not in STAGES:
        raise ValueError(f"[predict] stage is {stage}, expected one of {[*STAGES]}")
    trained = [p for p in parameters if p.trained]
    whole, gradients = sum(p.bytes for p in parameters), sum(p.bytes for p in trained)
    if stage == 0:
        states = sum(p.states for p in trained)
        return Memory(world, stage, whole, gradients, states, activations)
    if stage == 1:
        return Memory(world, stage, whole, gradients, _dealt(trained, world), activations)
    shares = sum(_first(p, world, p.bytes) for p in parameters)
    if stage == 2:
        gathered = whole
    else:
        gathered = min(whole, _in(parameters, 0) + 2 * _largest(parameters))
    return Memory(
        world, stage, shares + gathered,
        sum(_first(p, world, p.bytes) for p in trained) + max(_largest(trained), _in(trained, 0)),
        sum(_first(p, world, p.states) for p in trained),
        activations,
    )  # fmt: skip


def _first(parameter: Parameter, world: int, n: int) -> int:
    """Of n bytes that lie as the parameter: those of rank 0."""
    if not parameter.sizes or parameter.sizes[0] == 0:
        return n
    return n * -(-parameter.sizes[0] // world) // parameter.sizes[0]


def _dealt(trained: Sequence[Parameter], world: int) -> int:
    """The largest part of the states, as ZeroRedundancyOptimizer deals parameters out."""
    counts, states = [0] * world, [0] * world
    for parameter in sorted(trained, key=lambda p: p.numel, reverse=True):
        rank = counts.index(min(counts))
        counts[rank] += parameter.numel
        states[rank] += parameter.states
    return max(states)


def _in(parameters: Sequence[Parameter], block: int) -> int:
    return sum(p.bytes for p in parameters if p.block == block)


def _largest(parameters: Sequence[Parameter]) -> int:
    return max((_in(parameters, block) for block in {p.block for p in parameters} - {0}), default=0)


def parameters_of(
    model: nn.Module, states_of: Callable[[nn.Parameter], int] = lambda _: 0
) -> list[Parameter]:
    """A module's parameters, each once. A block is an entry of an outermost ModuleList or
    Sequential."""
    block_of: dict[nn.Parameter, int] = {}
    blocks = 0
    for module in model.modules():
        if isinstance(module, (nn.ModuleList, nn.Sequential)):
            for entry in module:
                blocks += 1
                for parameter in entry.parameters():
                    block_of.setdefault(parameter, blocks)
    return [
        Parameter(tuple(p.shape), p.element_size(), p.requires_grad, states_of(p), block)
        for p, block in ((p, block_of.get(p, 0)) for p in model.parameters())
    ]
