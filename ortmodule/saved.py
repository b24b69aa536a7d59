"""What eager's autograd would keep for the backward of each tensor that a module returned.

capture.py asks while forward is traced: the traced tensors have eager's own autograd graph. Writing
to such a tensor before the backward is an error in eager, and so it is here; writing to any other
is none.
"""

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing


def storage_key(tensor: Any) -> int | None:
    """Equal for tensors that share memory, and so their version; None for what has no memory."""
    if not isinstance(tensor, torch.Tensor):
        return None
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return None


def seen_as_they_are() -> contextlib.AbstractContextManager:
    """Around the traced forward: a user's hooks on saved tensors are for the real ones alone."""
    return torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)


def saved_storages(outputs: Sequence[torch.Tensor]) -> list[set[int]] | None:
    """For each output the storages that the nodes behind it saved; None where it is not known."""
    if not _known(outputs):
        return None
    saved: dict[Any, set[int]] = {}
    with disable_proxy_modes_tracing():  # looking compares sizes, which is no part of forward
        return [_behind(output.grad_fn, saved) for output in outputs]


def _known(outputs: Sequence[torch.Tensor]) -> bool:
    """An op of ours that stands for torch's (markers.py) has no backward to look at."""
    return not any("NotImplemented" in node.name() for o in outputs for node in _nodes(o.grad_fn))


def _nodes(root: Any) -> list[Any]:
    found, waiting = {root: None}, [root]
    while waiting:
        node = waiting.pop()
        for following, _ in node.next_functions if node is not None else ():
            if following is not None and following not in found:
                found[following] = None
                waiting.append(following)
    return [node for node in found if node is not None]


def _behind(root: Any, saved: dict[Any, set[int]]) -> set[int]:
    keys: set[int] = set()
    for node in _nodes(root):
        if node not in saved:
            saved[node] = _saved_by(node)
        keys |= saved[node]
    return keys


@functools.cache
def _names(kind: type) -> list[str]:
    """The attributes of a kind of node that hold saved tensors; what else is saved are numbers."""
    return [name for name in dir(kind) if name.startswith("_raw_saved_")]


def _saved_by(node: Any) -> set[int]:
    """As packed: to unpack one makes a traced tensor of it, which takes far longer than a look."""
    keys = set()
    for name in _names(type(node)):
        value = getattr(node, name)
        for saved in value if isinstance(value, (list, tuple)) else [value]:
            keys.add(storage_key(saved.data))
    return keys - {None}
