"""Checks before the first reduce that all ranks have the same versions and captured graphs.

A rank with another graph would reduce its gradients in another order, or wait for ever.
"""

import hashlib
import re

import torch
from torch import nn

from ortmodule import ORTModule, __version__

from .everyone import Everyone

# Python inside a graph (ortmodule/steps.py) is an operator whose number each process counts itself.
_NUMBER = re.compile(r"\.n\d+$")


def fingerprint(model: nn.Module) -> list[str]:
    """A line for each node of each graph captured so far: op, dtype, module. Sizes are left out, as
    ranks may have other batches, and so are names that a process gives by itself."""
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
    """`%7 = Op(%5) {...}  # float32[3]; module (file:line)` becomes `Op of float32, at module`;
    None for a line that has no node."""
    node, _, facts = text.partition("  # ")
    if not facts:
        return None
    op = _NUMBER.sub("", node.partition("(")[0].rpartition(" ")[2])
    types, _, where = facts.partition("; ")
    at = where.partition(" ")[0]
    return f"{op} of {types.partition('[')[0]}, at {'the module' if not at or ':' in at else at}"


def check(model: nn.Module, everyone: Everyone) -> None:
    """Raises RuntimeError on all ranks where two have other versions or graphs.

    Ranks tell a digest of their graphs; the lines are sent only where digests differ.
    """
    lines = fingerprint(model)
    own = {
        "ortmodule": __version__, "torch": torch.__version__, "graph": _digest(lines),
        "communicates": communicates(model),
    }  # fmt: skip
    first, *others = found = everyone.exchange(own)
    for rank, other in enumerate(others, start=1):
        for package in ("ortmodule", "torch"):
            if other[package] != first[package]:
                raise RuntimeError(
                    f"[DataParallel] rank {rank} runs {package} {other[package]}, rank 0 runs "
                    f"{first[package]}"
                )
        if first["communicates"] != other["communicates"]:
            inside, eager = (rank, 0) if other["communicates"] else (0, rank)
            raise RuntimeError(
                f"[DataParallel] rank {inside} communicates in its graph, rank {eager} in eager, "
                "whose backward has another order"
            )
    if len({rank["graph"] for rank in found} - {None}) > 1:
        _tell_difference(everyone.exchange(lines))


def _digest(lines: list[str]) -> str | None:
    """None of a rank that runs eagerly: it has no graph, and reduces the same gradients."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest() if lines else None


def _tell_difference(graphs: list[list[str]]) -> None:
    """Raises RuntimeError for the first rank whose graph is not that of the first that has one."""
    first = next(rank for rank, graph in enumerate(graphs) if graph)
    for rank, graph in enumerate(graphs):
        if graph and graph != graphs[first]:
            difference = _difference(graphs[first], graph)
            raise RuntimeError(
                f"[DataParallel] rank {rank} captured another graph than rank {first}: {difference}"
            )


def _difference(first: list[str], other: list[str]) -> str:
    """The first node that differs, or the numbers of nodes."""
    for number, (a, b) in enumerate(zip(first, other, strict=False)):
        if a != b:
            return f"node {number} is {b}, there {a}"
    return f"{len(other)} nodes, there {len(first)}"
