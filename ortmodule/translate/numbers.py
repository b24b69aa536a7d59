"""Numbers beside halves: torch computes with them in float32, not in the half."""

from collections.abc import Callable
from typing import Any

from .emit import OddNumber
from .registry import wide

# Whose kernels round a number to the tensor's dtype first: what compares, clamps or fills.
_ROUNDED = {
    "eq", "ne", "lt", "le", "gt", "ge", "clamp", "clamp_min", "clamp_max", "clip", "hardtanh",
    "masked_fill", "where", "fill", "full_like", "full", "nan_to_num", "index_fill", "pad",
    "constant_pad_nd", "scatter", "fmod", "remainder", "floor_divide",
}  # fmt: skip


def ruled(t: Any, name: str, rule: Callable, args: list, kwargs: dict) -> Any:
    """What the rule gives; again in float32 where it makes a value of a number that is no half."""
    before, t.rounds_numbers = t.rounds_numbers, name.partition(".")[0] in _ROUNDED
    try:
        return rule(t, *args, **kwargs)
    except OddNumber:
        t.rounds_numbers = True
        return wide(rule)(t, *args, **kwargs)
    finally:
        t.rounds_numbers = before
