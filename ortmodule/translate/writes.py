"""In-place ops as functional ones, and what a write to a tensor must not reach.

Called by translator.py for each op that writes to its arguments, and by rules that update one.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ..errors import NeedsExactSizes
from ..torch_internals.tracing import FakeTensorMode, OpOverload
from .emit import FLOATING, WITH_GRADIENT, dtype_name
from .memory import lie_alike, memory_order, overlap
from .opaque import sample
from .provenance import traced_value
from .refs import Ref, Storage, any_tainted, leaves
from .refused import backward_raises
from .registry import RULES, functional_op
from .results import flows_to, link_of


def is_written(argument: Any) -> bool:
    """Whether an operator writes to this argument of its schema."""
    return argument.alias_info is not None and argument.alias_info.is_write


def call_in_place(t: Any, name: str, written: list[int], args: Sequence, kwargs: dict) -> Any:
    """The running op, which writes to its arguments `written`, by its functional form."""
    if torch.Tag.inplace_view in t.target.tags:
        return _seen_anew(t, functional_name(name), args, kwargs)
    if all(t.target._schema.arguments[i].is_out for i in written):
        return _into_outs(t, written, args, kwargs)
    if written != [0] or not isinstance(args[0], Ref):
        t.refuse(f"{name} writes to its arguments {written}, expected one tensor, the first")
    has_gradient = t.grad_enabled and not t.no_grad_depth and any_tainted(args[0])
    if has_gradient and backward_raises(name, args, kwargs):
        t.refuse("torch has no backward in place for a negative slope")
    ref, name = args[0], functional_name(name)
    functional = functional_op(name, t.target)
    if functional is t.target and name not in RULES:
        t.refuse(f"{t.target} writes in place and has no functional form")
    _check_apart(t, ref, t.node.args[0], (t.node.args[1:], t.node.kwargs), (args[1:], kwargs))
    before = ref.read(t)
    t.target = functional
    value = t.apply(name, args, kwargs)
    value = value[0] if isinstance(value, (list, tuple)) else value
    tainted = before.dtype in WITH_GRADIENT and any_tainted((args, kwargs)) and flows_to(t, 0)
    write(t, ref, t.fit(value, list(before.dims), before.dtype), tainted)
    return ref


def _seen_anew(t: Any, name: str, args: Sequence, kwargs: dict) -> Ref:
    """What changes a tensor's metadata in place: the same memory, seen through one more view."""
    ref = args[0]
    if name.startswith("resize"):
        return _resized(t, ref)
    if name == "detach.default":
        if ref.tainted:
            ref.look_through(link_of(t, name, (), {}, None))
        return ref
    if name not in RULES:
        t.refuse(f"{t.target} changes what a tensor is, and has no translation")
    t.target = functional_op(name, t.target)
    t.apply(name, args, kwargs)  # refuses what it does of a view
    ref.look_through(link_of(t, name, tuple(t.read(args[1:])), t.read(kwargs), None))
    ref.storage.fixed = True
    return ref


def _resized(t: Any, ref: Ref) -> Ref:
    """The elements as they lie in memory, in another size; new ones hold anything in eager."""
    old, dims = ref.read(t), t.out_dims()
    if t.node.kwargs.get("memory_format") not in (None, torch.contiguous_format):
        t.refuse("forward gives a tensor another size in another order of memory")
    if old.dims == dims:
        return ref
    if not all(isinstance(dim, int) for dim in (*old.dims, *dims)):
        t.refuse(
            "forward gives a tensor another size, and sizes are not known", kind=NeedsExactSizes
        )
    order = memory_order(traced_value(t.node.args[0]))
    if order is None:
        t.refuse("forward gives another size to a tensor whose elements do not lie side by side")
    flat = t.op("Reshape", t.transpose(old, order) if order else old, t.ints([-1]))
    room = math.prod(dims) - math.prod(old.dims)
    if room > 0:
        flat = t.concat([flat, t.full([room], 0, old.dtype)], 0)
    _renew(t, ref, t.reshape(t.slice(flat, 0, 0, math.prod(dims)), dims))
    ref.storage.fixed = room < 0  # eager's still holds the rest
    return ref


def _renew(t: Any, ref: Ref, value: Any) -> None:
    """Other memory for a tensor whose own nothing else shows."""
    if ref.storage.source is not None or ref.storage.fixed or ref.storage.tainted:
        t.refuse("forward changes the size of memory that holds more than the tensor shows")
    ref.renew(Storage(value, traced=t.out()))
    t.storages_in_region.append(ref.storage)


def _into_outs(t: Any, written: list[int], args: Sequence, kwargs: dict) -> Any:
    """torch.mul(a, b, out=c): the functional op, and its results written."""
    names = [t.target._schema.arguments[i].name for i in written]
    outs, rest = (
        [kwargs[name] for name in names],
        {k: v for k, v in kwargs.items() if k not in names},
    )
    functional = _without_outs(t.target)
    if functional is None or not all(isinstance(out, Ref) for out in outs):
        t.refuse(f"{t.target} writes to its arguments {written} and has no functional form")
    for name, out in zip(names, outs, strict=True):
        read = t.node.args, {k: v for k, v in t.node.kwargs.items() if k in rest}
        _check_apart(t, out, t.node.kwargs[name], read, (args, rest))
    t.target, traced = functional, leaves(t.node.meta["val"])
    for out, found in zip(outs, _made_by(t, functional, args, rest), strict=True):
        if dtype_name(found) != out.storage.value.dtype:
            t.refuse(f"{functional} gives {found}, and is written to another dtype")
    values = t.apply(str(functional).removeprefix("aten."), args, rest)
    values = list(values) if isinstance(values, (list, tuple)) else [values]
    for out, value, val in zip(outs, values, traced, strict=True):
        dims, before = t.dims_of(val), out.read(t)
        if list(before.dims) == dims:
            write(t, out, t.fit(value, dims, before.dtype), any_tainted((args, rest)))
        elif 0 in before.dims:  # else torch warns
            _renew(t, out, t.stop(t.fit(value, dims, before.dtype)))
        else:
            t.refuse("forward gives a tensor another size by out=")
    return outs if len(outs) > 1 else outs[0]


def _check_apart(t: Any, ref: Ref, node: fx.Node, nodes: tuple, given: tuple) -> None:
    """Refuses to write to elements that the op reads too, from its arguments `nodes`: eager raises,
    or its result is that of some order. An op of elements may read those that it writes."""
    elementwise = torch.Tag.pointwise in t.target.tags or t.target is torch.ops.aten.copy_.default
    for other, read in zip(leaves(nodes), leaves(given), strict=True):
        if not isinstance(read, Ref) or read.storage is not ref.storage:
            continue
        written, shown = traced_value(node), traced_value(other)
        if elementwise and lie_alike(written, shown):
            continue
        met = overlap(written, shown)
        if met is None:
            reason = "whether forward writes to elements that it reads depends on sizes"
            t.refuse(reason, kind=NeedsExactSizes)
        if met:
            t.refuse("forward writes to elements that it reads at other places")


def _without_outs(target: OpOverload) -> OpOverload | None:
    """The overload that takes the same arguments, and makes its results."""

    def taken(op: OpOverload) -> list:
        return [(a.name, str(a.type)) for a in op._schema.arguments if not a.is_out]

    packet = target.overloadpacket
    overloads = [getattr(packet, name) for name in packet.overloads()]
    return next((op for op in overloads if op is not target and taken(op) == taken(target)
                 and not any(a.is_out for a in op._schema.arguments)), None)  # fmt: skip


def _made_by(t: Any, functional: OpOverload, args: Sequence, kwargs: dict) -> list[torch.dtype]:
    """The dtypes of what an op makes of itself."""
    t.given = args, kwargs
    with FakeTensorMode():
        args, kwargs = t.traced_arguments(lambda val, _: sample(val, False, []))
        return [found.dtype for found in leaves(functional(*args, **kwargs))]


def write(t: Any, ref: Ref, value: Any, tainted: bool) -> None:
    """Makes `value` that of `ref`; tainted: a gradient flows to it. Refuses what eager would not do
    to memory that others see."""
    if tainted and t.no_grad_depth:
        value, tainted = t.stop(value), False
    tainted = tainted and t.grad_enabled
    if tainted and ref.is_detached:
        t.refuse("forward writes what has a gradient to a detached tensor")
    if ref.key in t.unlinked:
        t.refuse("forward writes to memory that two tensors share in a way that is not tracked")
    source = ref.storage.source
    if source is not None and (source.role in ("body", "parameter") or source.requires_grad):
        _write_to_given(t, ref, value, tainted)
        return
    own = any(ref.storage is made for made in t.storages_in_region)
    if ref.storage.tainted and not (ref.tainted and (own or not t.no_grad_depth)):
        t.refuse("forward writes, without gradients, to a tensor that has one")
    ref.write(t, value, tainted)


def _write_to_given(t: Any, ref: Ref, value: Any, tainted: bool) -> None:
    """A parameter, or an argument that requires grad: without gradients it takes another value, and
    those of what reads it later are its own all the same."""
    source, before = ref.storage.source, ref.storage.value
    if source.role == "body" or tainted or (ref.tainted and not t.no_grad_depth):
        wanting = ", which requires grad" if source.role == "user" else ""
        what = "the parameter " if source.role == "parameter" else ""
        t.refuse(f"forward writes in place to {what}{source.name}{wanting}")
    if t.autocast.has_cast(before):
        t.refuse(f"forward writes in place to {source.name}, of which autocast keeps a cast")
    ref.write(t, value, tainted=False)
    if ref.storage.tainted:
        if before.dtype not in FLOATING:
            t.refuse(f"forward writes in place to the complex numbers of {source.name}")
        one = t.scalar(1.0, before.dtype)
        ref.storage.value = t.ort("WithSlope", before, t.stop(ref.storage.value), one)
        ref.forget()


def functional_name(name: str) -> str:
    """add_.Tensor -> add.Tensor; __iand__.Tensor -> __and__.Tensor."""
    base, _, overload = name.partition(".")
    if base.startswith("__i") and base.endswith("__"):
        return f"__{base[3:]}.{overload}"
    return f"{base.removesuffix('_')}.{overload}"
