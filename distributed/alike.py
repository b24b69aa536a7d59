"""Checks before the first reduce that all ranks have the same versions and captured graphs.

A rank with another graph would reduce its gradients in another order, or wait for ever.
"""

import hashlib
import json
import re

import torch
from torch import nn

from ortmodule import ORTModule, __version__

from .everyone import Everyone

# Python inside a graph (ortmodule/records/steps.py) is an operator whose number each process
# counts itself.
_NUMBER = re.compile(r"\.n\d+$")
# In a graph's first line: name, dtype, sizes and role; a size that is no number is any.
_INPUT = re.compile(r"%([^,]+): (\w+)\[([^\]]*)\] (\w+)")
_ANY_SIZE = re.compile(r"[^,\s]*[^\d,\s][^,\s]*")


def fingerprint(model: nn.Module) -> list[dict[str, list[str]]]:
    """Of each graph captured so far: what parameters it reads, which sizes its inputs have, and a
    line for each node: op, dtype, module. Names that a process gives by itself are left out."""
    return [
        _facts_of(text)
        for m in model.modules()
        if isinstance(m, ORTModule)
        for text in m._ortmodule.graphs()
    ]


def communicates(model: nn.Module) -> bool:
    """Whether a graph captured so far has collectives."""
    found = (m for m in model.modules() if isinstance(m, ORTModule))
    return any(m._ortmodule.communicates() for m in found)


def _facts_of(text: str) -> dict[str, list[str]]:
    head, *lines = text.splitlines()
    inputs = _INPUT.findall(head)
    return {
        "parameters": [f"{n} of {dtype}" for n, dtype, _, role in inputs if role == "parameter"],
        "sizes": [_ANY_SIZE.sub("n", sizes) for *_, sizes, role in inputs if role == "user"],
        "nodes": list(filter(None, map(_line_of, lines))),
    }


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

    Ranks tell a digest of their graphs; the graphs' facts are sent only where digests differ.
    """
    graphs = fingerprint(model)
    own = {
        "ortmodule": __version__, "torch": torch.__version__, "graphs": _digest(graphs),
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
    if len({rank["graphs"] for rank in found} - {None}) > 1:
        _compare(everyone.exchange(graphs))


def _digest(graphs: list[dict]) -> str | None:
    """None of a rank that runs eagerly: it has no graph, and reduces the same gradients."""
    return hashlib.sha256(json.dumps(graphs).encode()).hexdigest() if graphs else None


def _compare(ranks: list[list[dict]]) -> None:
    """Raises RuntimeError for the first rank whose graphs are not those of the first that has
    one."""
    first = next(rank for rank, graphs in enumerate(ranks) if graphs)
    for rank, graphs in enumerate(ranks):
        difference = _difference(ranks[first], graphs)
        if difference is not None:
            raise RuntimeError(
                f"[DataParallel] rank {rank} captured another graph than rank {first}: {difference}"
            )


def _difference(first: list[dict], other: list[dict]) -> str | None:
    """How one graph of `other` differs from one of `first`, where each rank has one that the other
    has not. A rank may have captured more than another, as when it has evaluated before."""
    ours = [b for b in other if not any(_apart(a, b) is None for a in first)]
    theirs = [a for a in first if not any(_apart(a, b) is None for b in other)]
    return _apart(theirs[0], ours[0]) if ours and theirs else None


def _apart(first: dict, other: dict) -> str | None:
    """The first node that differs, or the numbers of nodes. Graphs of a single row, or of none, are
    captured in another form: there only what parameters they read is compared."""
    if first["sizes"] != other["sizes"]:
        reads, read = set(other["parameters"]), set(first["parameters"])
        found = [f"it reads {name}" for name in reads - read]
        found += [f"it does not read {name}" for name in read - reads]
        return min(found, default=None)
    for number, (a, b) in enumerate(zip(first["nodes"], other["nodes"], strict=False)):
        if a != b:
            return f"node {number} is {b}, there {a}"
    if len(first["nodes"]) != len(other["nodes"]):
        return f"{len(other['nodes'])} nodes, there {len(first['nodes'])}"
    return None
