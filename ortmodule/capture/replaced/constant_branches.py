"""Comparisons whose answer no value can change, as whether a number from [0, 1) is below 0.

transformers' layerdrop asks one for each layer, and a branch on it would be one on data. Entered
around a fake run and a trace; the draw itself stays.
"""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_DRAWS = {torch.rand, torch.rand_like}
# By name: whether it holds for the numbers of [0, 1), where `c` decides; None where it does not.
_ANSWERS = {
    "lt": lambda c: False if c <= 0 else True if c >= 1 else None,
    "le": lambda c: False if c < 0 else True if c >= 1 else None,
    "gt": lambda c: True if c < 0 else False if c >= 1 else None,
    "ge": lambda c: True if c <= 0 else False if c >= 1 else None,
}


class ConstantBranches(TorchFunctionMode):
    """Such a comparison gives a constant tensor."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn: dict[int, torch.Tensor] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        answer = _ANSWERS.get(getattr(func, "__name__", "").strip("_"))
        if answer is not None and len(args) == 2 and not kwargs and id(args[0]) in self._drawn:
            known = answer(args[1]) if type(args[1]) in (int, float) else None
            if known is not None:
                return torch.tensor(known, device=args[0].device).expand(args[0].shape)
        result = func(*args, **kwargs)
        if func in _DRAWS and result.dtype in (torch.float32, torch.float64):
            self._drawn[id(result)] = result
        return result
