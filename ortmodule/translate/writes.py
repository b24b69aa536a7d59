"""In-place ops as functional ones, and what a write to a tensor must not reach.

Called by translator.py for each op that writes to its arguments, and by rules that update one.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from .emit import WITH_GRADIENT
from .refs import Ref, any_tainted
from .registry import INVERSES, RULES
from .results import flows_to, link_of


def is_written(argument: Any) -> bool:
    """Whether an operator writes to this argument of its schema."""
    return argument.alias_info is not None and argument.alias_info.is_write


def call_in_place(t: Any, name: str, written: list[int], args: Sequence, kwargs: dict) -> Any:
    """The running op, which writes to its arguments `written`, by its functional form."""
    if written != [0] or not isinstance(args[0], Ref):
        t.refuse(f"{name} writes to its arguments {written}, expected one tensor, the first")
    ref, name = args[0], functional_name(name)
    if name.startswith("resize"):
        t.refuse("forward changes a tensor's size in place")
    if name == "detach.default":
        if ref.tainted:
            ref.look_through(link_of(t, name, (), {}, None))
        return ref
    if name in INVERSES and name != "copy.default":
        ref.look_through(link_of(t, name, tuple(t.read(args[1:])), t.read(kwargs), None))
        return ref
    before = ref.read(t)
    functional = _overload(name, t.target)
    if functional is t.target and name not in RULES:
        t.refuse(f"{t.target} writes in place and has no functional form")
    t.target = functional
    value = t.apply(name, args, kwargs)
    value = value[0] if isinstance(value, (list, tuple)) else value
    tainted = before.dtype in WITH_GRADIENT and any_tainted((args, kwargs)) and flows_to(t, 0)
    write(t, ref, t.fit(value, list(before.dims), before.dtype), tainted)
    return ref


def write(t: Any, ref: Ref, value: Any, tainted: bool) -> None:
    """Makes `value` that of `ref`; tainted: a gradient flows to it. Refuses what eager would not do
    to memory that others see."""
    source = ref.storage.source
    if tainted and t.no_grad_depth:
        value, tainted = t.stop(value), False
    tainted = tainted and t.grad_enabled
    if tainted and ref.is_detached:
        t.refuse("forward writes what has a gradient to a detached tensor")
    if source is not None and source.role == "body":
        t.refuse(f"forward writes in place to {source.name}")
    if source is not None and source.role == "parameter":
        t.refuse(f"forward writes in place to the parameter {source.name}")
    if source is not None and source.role == "user" and source.requires_grad:
        t.refuse(f"forward writes in place to {source.name}, which requires grad")
    own = any(ref.storage is made for made in t.storages_in_region)
    if ref.storage.tainted and not (ref.tainted and (own or not t.no_grad_depth)):
        t.refuse("forward writes, without gradients, to a tensor that has one")
    if ref.key in t.unlinked:
        t.refuse("forward writes to memory that two tensors share in a way that is not tracked")
    ref.write(t, value, tainted)


def functional_name(name: str) -> str:
    """add_.Tensor -> add.Tensor; __iand__.Tensor -> __and__.Tensor."""
    base, _, overload = name.partition(".")
    if base.startswith("__i") and base.endswith("__"):
        return f"__{base[3:]}.{overload}"
    return f"{base.removesuffix('_')}.{overload}"


def _overload(name: str, original: OpOverload) -> OpOverload:
    base, _, overload = name.partition(".")
    ops = getattr(torch.ops, original.namespace)
    packet = getattr(ops, base, None)
    found = getattr(packet, overload, None)
    return found or getattr(getattr(ops, f"{base}_functional", None), overload, original)
