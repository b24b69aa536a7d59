"""What forward returned: values of the graph, the call's own tensors, and views of either.

Called by translator.py after the last node. In eager a returned view shares memory with an input or
with another output; such a one is not computed but made by the same view ops when the call returns.
"""

import collections
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ..interface import Input, View
from ..sizes import dim_of
from .emit import FLOATING
from .refs import Link, Ref


@dataclasses.dataclass(slots=True)
class Returned:
    """A returned tensor: `views` of the graph's `value`, or of the call's own tensor `source`.

    `requires_grad`: whether a gradient flows to the value. `memory`: equal for values that are to
    become one output of the graph.
    """

    value: Any = None
    memory: int | None = None
    source: Input | None = None
    requires_grad: bool = False
    views: tuple[View, ...] = ()


def returned(t: Any, outputs: Sequence[Ref], share_memory: bool) -> list[Returned]:
    """The outputs in order."""
    shared = collections.Counter(id(ref.storage) for ref in outputs)
    results = []
    for ref in outputs:
        source = ref.storage.source
        views = _views(ref.links) if share_memory or not ref.links else None
        if views is not None and source is not None:
            results.append(Returned(source=source, requires_grad=source.requires_grad, views=views))
        elif views is not None and share_memory and shared[id(ref.storage)] > 1:
            value = ref.storage.value
            tainted = ref.storage.tainted and value.dtype in FLOATING
            results.append(Returned(value, id(ref.storage), requires_grad=tainted, views=views))
        else:
            value = ref.read(t)
            tainted = ref.tainted and value.dtype in FLOATING
            results.append(Returned(value, requires_grad=tainted))
    return results


def _views(links: Sequence[Link]) -> tuple[View, ...] | None:
    """The links as ops to apply; None when one takes another tensor."""
    views = []
    for link in links:
        if link.name == "detach.default":
            views.append(View(torch.detach, (), {}))
            continue
        packet, _, overload = link.name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet, None), overload, None)
        try:
            args, kwargs = fx.map_arg((link.node.args[1:], link.node.kwargs), _size)
        except _NoSize:
            return None
        if op is None:
            return None
        views.append(View(op, tuple(args), dict(kwargs), link.index))
    return tuple(views)


class _NoSize(Exception):
    """An argument is neither a constant nor a size."""


def _size(node: fx.Node) -> Any:
    value = node.meta.get("val")
    if not isinstance(value, torch.SymInt):
        raise _NoSize
    return dim_of(value)
