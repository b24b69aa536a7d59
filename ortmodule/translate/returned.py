"""What forward returned: values of the graph, the call's own tensors, and views of either.

Called by translator.py after the last node. In eager a returned view shares memory with an input or
with another output; such a one is not computed but made by the same view ops when the call returns.
"""

import collections
import dataclasses
from collections.abc import Sequence, Set
from typing import Any

import torch
from torch import fx

from ..records.ports import Input, View
from ..records.sizes import dim_of, late_names
from .emit import WITH_GRADIENT
from .memory import memory_order
from .refs import CUT_OFF, Link, Ref

# Links that may stand for a node of another op.
_WITHOUT_ARGUMENTS = {"detach.default": torch.detach, "alias.default": torch.ops.aten.alias.default}
# What takes another tensor for its sizes, as what takes sizes.
_OF_SIZES = {
    "view_as.default": torch.ops.aten.view.default,
    "reshape_as.default": torch.ops.aten.reshape.default,
    "expand_as.default": torch.ops.aten.expand.default,
}


@dataclasses.dataclass(slots=True)
class Returned:
    """A returned tensor: `views` of the graph's `value`, or of the call's own tensor `source`.

    `requires_grad`: whether a gradient flows to the value. `memory`: equal for values that are to
    become one output of the graph. `own`: the value of the view itself, where another output was
    computed from it. `order`: the value's axes are the tensor's in this order, that in which
    eager's lies in memory; none: as they are.
    """

    value: Any = None
    memory: int | None = None
    source: Input | None = None
    requires_grad: bool = False
    views: tuple[View, ...] = ()
    own: Any = None
    order: tuple[int, ...] = ()

    @property
    def dims(self) -> list:
        """The tensor's."""
        order = self.order or range(self.value.rank)
        return [dim for _, dim in sorted(zip(order, self.value.dims, strict=True))]


def returned(
    t: Any, outputs: Sequence[Ref], traced: Sequence[Any], share_memory: bool,
    through: Sequence[Set[int]],
) -> list[Returned]:  # fmt: skip
    """The outputs in order; `traced`: torch's own; `through`: which others the gradient of each
    passes."""
    if share_memory:
        _check_memory(t, outputs)
    shared = collections.Counter(id(ref.storage) for ref in outputs)
    results = []
    for ref, val in zip(outputs, traced, strict=True):
        source = ref.storage.source
        views = _views(t, ref.links) if share_memory or not ref.links else None
        order = memory_order(val) if share_memory else ()
        shares = source is not None or shared[id(ref.storage)] > 1
        is_leaf = ref.storage.tainted and any(link.name == CUT_OFF for link in ref.links)
        if share_memory and views is None and (is_leaf or shares and _is_late(ref.links)):
            t.refuse("forward returns a view of what it shares, of a size that depends on data")
        if share_memory and views is not None and source is not None:
            results.append(Returned(source=source, requires_grad=source.requires_grad, views=views))
        elif (
            share_memory
            and views is not None
            and (is_leaf or shared[id(ref.storage)] > 1 or order is None)
        ):
            base = memory_order(ref.storage.traced)
            results.append(_in_order(t, ref.storage.value, ref.storage.tainted, base, val))
            results[-1].memory, results[-1].views = id(ref.storage), views
        else:
            results.append(_in_order(t, ref.read(t), ref.tainted, order, val))
    for i in _on_the_way(results, through):
        results[i].own = outputs[i].read(t)
    return results


def _on_the_way(results: Sequence[Returned], through: Sequence[Set[int]]) -> list[int]:
    """The views that another's gradient passes, and those whose own passes one."""
    passed = {k for others in through for k in others if results[k].views}
    return [i for i, found in enumerate(results)
            if found.views and (i in passed or (through and through[i] & passed))]  # fmt: skip


def _check_memory(t: Any, outputs: Sequence[Ref]) -> None:
    """Refuses a copy of what shares memory in eager in a way that no link tells."""
    times = collections.Counter(ref.key for ref in outputs)
    if any(k in t.unlinked and (times[k] > 1 or k in t.outside) for k in times):
        t.refuse("forward returns memory that two tensors share in a way that is not tracked")


def _in_order(t: Any, value: Any, tainted: bool, order: tuple | None, traced: Any) -> Returned:
    if order is None:
        t.refuse(f"forward returns a tensor of strides {traced.stride()}, which leave gaps")
    requires_grad = tainted and value.dtype in WITH_GRADIENT
    value = t.transpose(value, order) if order else value
    return Returned(value, requires_grad=requires_grad, order=order)


def _is_late(links: Sequence[Link]) -> bool:
    """Whether a view has a size that depends on data."""
    return any(late_names(dim_of(d)) for link in links for d in _first(link).shape)


def _first(link: Link) -> torch.Tensor:
    val = link.node.meta["val"]
    return val if isinstance(val, torch.Tensor) else val[link.index]


def _views(t: Any, links: Sequence[Link]) -> tuple[View, ...] | None:
    """The links as ops to apply; None when one takes another tensor, or a size that no call tells
    beforehand."""
    views = []
    for link in links:
        if link.name == CUT_OFF:
            continue
        if link.name in _WITHOUT_ARGUMENTS:
            views.append(View(_WITHOUT_ARGUMENTS[link.name], (), {}, graded=link.graded))
            continue
        if link.name in _OF_SIZES:
            sizes = [dim_of(size) for size in link.node.meta["val"].shape]
            if any(map(late_names, sizes)) or not all(map(t.is_told, link.node.meta["val"].shape)):
                return None
            views.append(View(_OF_SIZES[link.name], (sizes,), {}, graded=link.graded))
            continue
        packet, _, overload = link.name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet, None), overload, None)
        try:
            args, kwargs = fx.map_arg((link.node.args[1:], link.node.kwargs), lambda n: _size(t, n))
        except _NoSize:
            return None
        if op is None:
            return None
        views.append(View(op, tuple(args), dict(kwargs), link.index, link.graded))
    return tuple(views)


class _NoSize(Exception):
    """An argument is neither a constant nor a size that follows from a call's."""


def _size(t: Any, node: fx.Node) -> Any:
    value = node.meta.get("val")
    if not isinstance(value, torch.SymInt) or not t.is_told(value) or late_names(dim_of(value)):
        raise _NoSize
    return dim_of(value)
