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
# In a graph's first line: name, dtype, sizes and role; a size that is no number is any.
_INPUT = re.compile(r"%([^,]+): (\w+)\[([^\]]*)\] (\w+)")
_ANY_SIZE = re.compile(r"[^,\s]*[^\d,\s][^,\s]*")


def fingerprint(model: nn.Module) -> list[dict[str, list[str]]]:
    """Of each graph captured so far: what parameters it reads, which sizes its inputs have, and a
    line for each node: op, dtype, module. What is named by a process is left out."""
    return [
        _facts_of(text)
        for m in model.modules()
        if isinstance(m, ORTModule)
        for text in m._ortmodule.graphs()
    ]


def _facts_of(text: str) -> dict[str, list[str]]:
    head, *lines = text.splitlines()
    inputs = _INPUT.findall(head)
    return {
        "parameters": [f"{n} of {dtype}" for n, dtype, _, role in inputs if role == "parameter"],
        "sizes": [_ANY_SIZE.sub("n", sizes) for *_, sizes, role in inputs if role == "user"],
        "nodes": list(filter(None, map(_line_of, lines))),
    }


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


def _difference(first: list[dict], other: list[dict]) -> str | None:
    """How two that differ do so. A rank may have captured more than another, as when it has
    evaluated before; what runs eagerly has no graph, and reduces the same gradients."""
    ours = [b for b in other if not any(_apart(a, b) is None for a in first)]
    theirs = [a for a in first if not any(_apart(a, b) is None for b in other)]
    return _apart(theirs[0], ours[0]) if ours and theirs else None


def _apart(first: dict, other: dict) -> str | None:
    """Graphs of a single row, or of none, are captured in another form: there only what parameters
    they read is compared."""
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
