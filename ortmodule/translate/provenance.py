"""Where a traced node comes from: module path, file and line in the user's code; what it gave.

Used by translator.py and opaque.py for every node and every refusal.
"""

import operator
from typing import Any

from torch import fx

from ..places import traced_place

# The module is a child of the module that flattens its inputs (flat_module.py), under this name.
CHILD = "m"


def place_of_node(node: fx.Node) -> tuple[str | None, str | None, int | None]:
    """(module path, file, line); None where the trace does not say."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()))[0] if stack else None
    place = traced_place(node.stack_trace or "")
    path = strip_child(path) if path is not None else None
    return path, place.get("file"), place.get("line")


def strip_child(path: str) -> str:
    """m.encoder.0 -> encoder.0"""
    path = path.removeprefix("L['self'].").removeprefix("_export_root.")  # the second in a body
    return "" if path == CHILD else path.removeprefix(f"{CHILD}.")


def traced_value(node: fx.Node) -> Any:
    """What a node gave while it was traced."""
    if node.op == "get_attr" and "val" not in node.meta:
        return operator.attrgetter(node.target)(node.graph.owning_module)
    return node.meta.get("val")
