"""Numbers beside halves: torch computes with them in float32, not in the half."""

from collections.abc import Callable
from typing import Any

import torch

from ..torch_internals.asked import asked
from .emit import OddNumber
from .registry import wide

# Whose kernels round a number to the tensor's dtype first: what adds, compares, clamps or fills.
# Where the rounding decides on which side of a step a value lies, the tests ask torch for each.
_ROUNDED = {
    "add", "sub", "subtract", "rsub", "addr", "eq", "ne", "lt", "le", "gt", "ge",
    "not_equal", "less", "less_equal", "greater", "greater_equal", "clamp", "clamp_min",
    "clamp_max", "clip", "hardtanh", "hardshrink",
    "masked_fill", "where", "fill", "full_like", "full", "nan_to_num", "index_fill", "pad",
    "constant_pad_nd", "scatter", "fmod", "remainder", "pow",
}  # fmt: skip


@asked
def _softshrink_rounds() -> bool:
    """Whether torch's kernel rounds its number to the half first: it does so after torch 2.11."""
    one = torch.ones(1, dtype=torch.bfloat16, device="cpu")
    return not torch.nn.functional.softshrink(one, 0.999).any()


def _rounds(name: str) -> bool:
    return name in _ROUNDED or (name == "softshrink" and _softshrink_rounds())


def ruled(t: Any, name: str, rule: Callable, args: list, kwargs: dict) -> Any:
    """What the rule gives; again in float32 where it makes a value of a number that is no half."""
    before, t.rounds_numbers = t.rounds_numbers, _rounds(name.partition(".")[0])
    try:
        return rule(t, *args, **kwargs)
    except OddNumber:
        t.rounds_numbers = True
        return wide(rule)(t, *args, **kwargs)
    finally:
        t.rounds_numbers = before
