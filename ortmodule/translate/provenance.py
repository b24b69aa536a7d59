"""Where a traced node comes from: module path, file and line in the user's code; what it gave.

Used by translator.py and opaque.py for every node and every refusal.
"""

import functools
import operator
import re
from typing import Any

from torch import fx

from ..places import user_place

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
# The module is a child of the module that flattens its inputs (flat.py), under this name.
CHILD = "m"


def place_of_node(node: fx.Node) -> tuple[str | None, str | None, int | None]:
    """(module path, file, line); None where the trace does not say."""
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()))[0] if stack else None
    file, line = _place(node.stack_trace or "")
    return strip_child(path) if path is not None else None, file, line


def strip_child(path: str) -> str:
    """m.encoder.0 -> encoder.0"""
    path = path.removeprefix("L['self'].").removeprefix("_export_root.")  # the second in a body
    return "" if path == CHILD else path.removeprefix(f"{CHILD}.")


@functools.lru_cache(maxsize=4096)
def _place(trace: str) -> tuple[str | None, int | None]:
    frames = [(file, int(line)) for file, line in _FRAME.findall(trace)]
    place = user_place(frames)
    return place.get("file"), place.get("line")


def traced_value(node: fx.Node) -> Any:
    """What a node gave while it was traced."""
    if node.op == "get_attr" and "val" not in node.meta:
        return operator.attrgetter(node.target)(node.graph.owning_module)
    return node.meta.get("val")
