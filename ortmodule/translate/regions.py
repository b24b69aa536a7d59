"""Regions of a traced graph, inlined: gradients off, or autocast on or off, for a while; control
flow is bodies.py's."""

from collections.abc import Sequence
from typing import Any

from torch import fx

from .bodies import emit_control, is_control
from .refs import CUT_OFF, Link, Ref


def region(t: Any, target: Any, args: Sequence[Any]) -> list[Any]:
    """wrap_with_set_grad_enabled and wrap_with_autocast, inlined; control flow."""
    name = target.name()
    if name == "wrap_with_set_grad_enabled":
        enabled, body, *inner = args
        return _grad_region(t, enabled, body, inner)
    if name == "wrap_with_autocast":
        device, dtype, enabled, _cache, body, *inner = args
        with t.autocast.region(device, dtype, enabled):
            return list(t.run(body, inner))
    if is_control(target):
        return emit_control(t, name, args)
    return t.refuse(f"forward uses the control flow op {name}")


def _grad_region(t: Any, enabled: bool, body: fx.GraphModule, inner: Sequence[Any]) -> list[Any]:
    if enabled:
        if t.no_grad_depth or not t.grad_enabled:
            t.refuse("forward enables gradients where they are disabled around it")
        return list(t.run(body, inner))
    outer, t.storages_in_region = t.storages_in_region, []
    t.no_grad_depth += 1
    try:
        outs = list(t.run(body, inner))
    finally:
        t.no_grad_depth -= 1
        made, t.storages_in_region = t.storages_in_region, outer
    for out in outs:
        if isinstance(out, Ref) and out.tainted and out.storage in made:
            out.storage.value = t.stop(out.storage.value)
            out.storage.version += 1
            out.storage.tainted = False
    kept = {id(a) for a in inner}
    return [_cut_off(t, o) if _needs_cut(o, kept) else o for o in outs]


def _cut_off(t: Any, ref: Ref) -> Ref:
    link = Link(CUT_OFF, t.node, None, (), {}, None)
    return Ref(ref.storage, (*ref.links, link), ref.key)


def _needs_cut(out: Any, kept: set[int]) -> bool:
    return isinstance(out, Ref) and id(out) not in kept and out.tainted
