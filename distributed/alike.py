"""Whether all processes train the same: versions and captured graphs, before the first reduce.

A rank with another graph would give others its gradients in another order, or wait for ever.
"""

import re

import torch
from torch import nn

from ortmodule import ORTModule, __version__

from .everyone import Everyone

# A line of a graph's text: what a node is, its attributes, its type and module, its place.
_NODE = re.compile(r"  (?:.* = )?(\S+?)\((.*?)\)(?: \{.*\})?  # (\w*).*?(?:; (\S*))?(?: \(.*\))?$")


def fingerprint(model: nn.Module) -> list[str]:
    """A line for each node of each graph captured so far: op, operands, dtype, module. Sizes are
    left out: a rank may have others."""
    lines = []
    for m in model.modules():
        if isinstance(m, ORTModule):
            for text in m._ortmodule.graphs():
                nodes = filter(None, map(_NODE.match, text.splitlines()))
                lines += [f"{op}({operands}) {dtype}, at {at or 'the module'}"
                          for op, operands, dtype, at in map(re.Match.groups, nodes)]  # fmt: skip
    return lines


def check(model: nn.Module, everyone: Everyone) -> None:
    """Raises RuntimeError on all ranks where one has another version or graph than rank 0."""
    own = {"ortmodule": __version__, "torch": torch.__version__, "graph": fingerprint(model)}
    first, *others = everyone.exchange(own)
    for rank, found in enumerate(others, start=1):
        for package in ("ortmodule", "torch"):
            if found[package] != first[package]:
                raise RuntimeError(
                    f"[DataParallel] rank {rank} runs {package} {found[package]}, rank 0 runs "
                    f"{first[package]}"
                )
        difference = _difference(first["graph"], found["graph"])
        if difference is not None:
            raise RuntimeError(
                f"[DataParallel] rank {rank} captured another graph than rank 0: {difference}"
            )


def _difference(first: list[str], other: list[str]) -> str | None:
    """The first node that differs. What runs eagerly has none, and reduces the same gradients."""
    if not first or not other:
        return None
    for number, (a, b) in enumerate(zip(first, other, strict=False)):
        if a != b:
            return f"node {number} is {b}, there {a}"
    if len(first) != len(other):
        return f"{len(other)} nodes, there {len(first)}"
    return None
