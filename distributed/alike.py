"""Whether all processes train the same: versions and captured graphs, before the first reduce.

A rank with another graph would give others its gradients in another order, or wait for ever.
"""

import re

import torch
from torch import nn

from ortmodule import ORTModule, __version__

from .everyone import Everyone

# An operator that Python runs has a number that is this process's alone.
_NUMBER = re.compile(r"\.n\d+$")


def fingerprint(model: nn.Module) -> list[str]:
    """A line for each node of each graph captured so far: op, dtype, module. Sizes are left out, as
    a rank may have others, and so is what is named by a process."""
    return [
        line
        for m in model.modules()
        if isinstance(m, ORTModule)
        for text in m._ortmodule.graphs()
        for line in filter(None, map(_line_of, text.splitlines()))
    ]


def communicates(model: nn.Module) -> bool:
    """Whether a graph captured so far has collectives."""
    found = (m for m in model.modules() if isinstance(m, ORTModule))
    return any(m._ortmodule.communicates() for m in found)


def _line_of(text: str) -> str | None:
    """Of a node's line `%7 = Op(%5) {...}  # float32[3]; module (file:line)`."""
    node, _, facts = text.partition("  # ")
    if not facts:
        return None
    op = _NUMBER.sub("", node.partition("(")[0].rpartition(" ")[2])
    types, _, where = facts.partition("; ")
    at = where.partition(" ")[0]
    return f"{op} of {types.partition('[')[0]}, at {'the module' if not at or ':' in at else at}"


def check(model: nn.Module, everyone: Everyone) -> None:
    """Raises RuntimeError on all ranks where one has another version or graph than rank 0."""
    own = {
        "ortmodule": __version__, "torch": torch.__version__, "graph": fingerprint(model),
        "communicates": communicates(model),
    }  # fmt: skip
    first, *others = everyone.exchange(own)
    for rank, found in enumerate(others, start=1):
        for package in ("ortmodule", "torch"):
            if found[package] != first[package]:
                raise RuntimeError(
                    f"[DataParallel] rank {rank} runs {package} {found[package]}, rank 0 runs "
                    f"{first[package]}"
                )
        if first["communicates"] != found["communicates"]:
            inside, other = (rank, 0) if found["communicates"] else (0, rank)
            raise RuntimeError(
                f"[DataParallel] rank {inside} communicates in its graph, rank {other} in eager, "
                "whose backward has another order"
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
