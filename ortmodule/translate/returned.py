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
from ..sizes import dim_of, hint_of, late_names
from .emit import WITH_GRADIENT
from .refs import Link, Ref

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
    become one output of the graph. `order`: the value's axes are the tensor's in this order, that
    in which eager's lies in memory; none: as they are.
    """

    value: Any = None
    memory: int | None = None
    source: Input | None = None
    requires_grad: bool = False
    views: tuple[View, ...] = ()
    order: tuple[int, ...] = ()

    @property
    def dims(self) -> list:
        """The tensor's."""
        order = self.order or range(self.value.rank)
        return [dim for _, dim in sorted(zip(order, self.value.dims, strict=True))]


def returned(
    t: Any, outputs: Sequence[Ref], traced: Sequence[Any], share_memory: bool
) -> list[Returned]:
    """The outputs in order; `traced`: torch's own."""
    if share_memory:
        _check_memory(t, outputs)
    shared = collections.Counter(id(ref.storage) for ref in outputs)
    results = []
    for ref, val in zip(outputs, traced, strict=True):
        source = ref.storage.source
        views = _views(ref.links) if share_memory or not ref.links else None
        order = memory_order(val) if share_memory else ()
        shares = source is not None or shared[id(ref.storage)] > 1
        if share_memory and views is None and shares and _is_late(ref.links):
            t.refuse("forward returns a view of what it shares, of a size that depends on data")
        if views is not None and source is not None:
            results.append(Returned(source=source, requires_grad=source.requires_grad, views=views))
        elif share_memory and views is not None and (shared[id(ref.storage)] > 1 or order is None):
            base = memory_order(ref.storage.traced)
            results.append(_in_order(t, ref.storage.value, ref.storage.tainted, base, val))
            results[-1].memory, results[-1].views = id(ref.storage), views
        else:
            results.append(_in_order(t, ref.read(t), ref.tainted, order, val))
    return results


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


def memory_order(tensor: torch.Tensor | None) -> tuple[int, ...] | None:
    """A tensor's axes from the outermost in memory to the innermost; () where that is their own
    order, None where its elements do not lie side by side."""
    if tensor is None or tensor.layout != torch.strided:
        return ()
    sizes = [hint_of(size) for size in tensor.shape]
    strides = [hint_of(stride) for stride in tensor.stride()]
    own = tuple(range(len(sizes)))
    if 0 in sizes or _side_by_side(sizes, strides, own):
        return ()
    order = tuple(sorted(own, key=lambda axis: -strides[axis]))
    return order if _side_by_side(sizes, strides, order) else None


def _side_by_side(sizes: list[int], strides: list[int], order: Sequence[int]) -> bool:
    expected = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != expected:
            return False
        expected *= sizes[axis]
    return True


def _is_late(links: Sequence[Link]) -> bool:
    """Whether a view has a size that depends on data."""
    return any(late_names(dim_of(d)) for link in links for d in _first(link).shape)


def _first(link: Link) -> torch.Tensor:
    val = link.node.meta["val"]
    return val if isinstance(val, torch.Tensor) else val[link.index]


def _views(links: Sequence[Link]) -> tuple[View, ...] | None:
    """The links as ops to apply; None when one takes another tensor, or a size that no call tells
    beforehand."""
    views = []
    for link in links:
        if link.name in _WITHOUT_ARGUMENTS:
            views.append(View(_WITHOUT_ARGUMENTS[link.name], (), {}))
            continue
        if link.name in _OF_SIZES:
            sizes = [dim_of(size) for size in link.node.meta["val"].shape]
            if any(map(late_names, sizes)):
                return None
            views.append(View(_OF_SIZES[link.name], (sizes,), {}))
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
    """An argument is neither a constant nor a size that follows from a call's."""


def _size(node: fx.Node) -> Any:
    value = node.meta.get("val")
    if not isinstance(value, torch.SymInt):
        raise _NoSize
    size = dim_of(value)
    if late_names(size):
        raise _NoSize
    return size
