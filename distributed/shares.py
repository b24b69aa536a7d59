"""The memory of a rank for each ZeRO stage: parameters, gradients, optimizer states. Called by
predict.py.

Stages are those of Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion
Parameter Models", SC20, section 5. What torch holds beside the shares is added.
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
    """`states`: bytes of its optimizer states. `block`: number of the unit that fully_shard gathers
    at once, an entry of a ModuleList or Sequential; 0: it is in none."""

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
    """Bytes of the rank that has most. activations: the plan's arena; None where eager ran."""

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
    """The most that one of `world` ranks holds at a time.

    P, G and S are the bytes of all parameters, gradients and states. P/W is the share of rank 0,
    which has the most rows of the first axis. B is the block with most bytes.
    Stage 0: P, G, S.
    Stage 1: P, G, and the largest part of S: whole parameters, the largest first, each given to the
        rank that has fewest elements.
    Stage 2: P + P/W, G/W + the gradients of B, S/W.
    Stage 3: P/W + what is in no block + two blocks of B's size (one is used while the next is
        gathered), G/W + the gradients of B, S/W.
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
    """Rank 0's share of n bytes that are split as the parameter is."""
    if not parameter.sizes or parameter.sizes[0] == 0:
        return n
    return n * -(-parameter.sizes[0] // world) // parameter.sizes[0]


def _dealt(trained: Sequence[Parameter], world: int) -> int:
    """Bytes of the rank with most states, where ZeroRedundancyOptimizer gives out parameters."""
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
