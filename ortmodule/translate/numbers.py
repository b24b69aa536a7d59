"""Python numbers beside halves: torch computes with them in float32, not in the half."""

from typing import Any

import torch

from .emit import HALVES, is_value
from .refs import leaves

# Whose kernels round a number to the tensor's dtype first: what compares, clamps or fills.
_ROUNDED = {
    "eq", "ne", "lt", "le", "gt", "ge", "clamp", "clamp_min", "clamp_max", "clip", "hardtanh",
    "masked_fill", "where", "fill", "full_like", "full", "nan_to_num", "index_fill", "pad",
    "constant_pad_nd", "scatter", "fmod", "remainder", "floor_divide",
}  # fmt: skip


def has_odd_number(name: str, args: Any, kwargs: dict) -> bool:
    """Whether a float among the arguments is none of the halves that it meets."""
    if name.partition(".")[0] in _ROUNDED:
        return False
    given = leaves((args, kwargs))
    halves = {getattr(torch, x.dtype) for x in given if is_value(x) and x.dtype in HALVES}
    numbers = [x for x in given if isinstance(x, (int, float)) and not isinstance(x, bool)]
    return any(torch.tensor(x, dtype=half).item() != x for half in halves for x in numbers)
