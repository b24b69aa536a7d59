"""The table ATen op -> rule, and the inverses of views. The family files fill it on import."""

import functools
from collections.abc import Callable

import torch

from ..torch_internals.tracing import OpOverload

RULES: dict[str, Callable] = {}
# Of ops on complex numbers: rules that say them with pairs of real ones, where these are known.
ON_PAIRS: dict[str, Callable] = {}
# View op -> function (t, base, new_view, *args) giving the base with the view's elements replaced.
INVERSES: dict[str, Callable] = {}


def aten(*names: str) -> Callable:
    """Registers a rule for the ATen ops `names`; that for `add.Tensor` serves `add_.Tensor`."""

    def register(rule: Callable) -> Callable:
        for name in names:
            if name in RULES:
                raise ValueError(f"[aten] {name} has two rules: {RULES[name]} and {rule}")
            RULES[name] = rule
        return rule

    return register


def on_pairs(*names: str) -> Callable:
    """Registers a rule for the ATen ops `names` on complex numbers."""

    def register(rule: Callable) -> Callable:
        ON_PAIRS.update(dict.fromkeys(names, rule))
        return rule

    return register


def wide(rule: Callable) -> Callable:
    """A rule of several ops where torch has one kernel: halves are computed with in float32 and
    rounded once, at the end."""

    @functools.wraps(rule)
    def widened(t, *args, **kwargs):
        before, t.is_wide = t.is_wide, True
        try:
            outs = rule(t, *map(t.widened, args), **kwargs)
        finally:
            t.is_wide = before
        if isinstance(outs, list):
            return [t.cast(y, t.out_dtype(i)) for i, y in enumerate(outs)]
        return outs if outs is NotImplemented else t.cast(outs, t.out_dtype())

    return widened


def inverse(*names: str) -> Callable:
    """Registers how a write through the view ops `names` reaches their base."""

    def register(function: Callable) -> Callable:
        INVERSES.update(dict.fromkeys(names, function))
        return function

    return register


def functional_op(name: str, original: OpOverload) -> OpOverload:
    """The operator `name` of the namespace of `original`; that itself where there is none."""
    base, _, overload = name.partition(".")
    ops = getattr(torch.ops, original.namespace)
    packet = getattr(ops, base, None)
    found = getattr(packet, overload, None)
    return found or getattr(getattr(ops, f"{base}_functional", None), overload, original)
