"""Fake results of operators that torch decomposes into hundreds where sizes are symbols.

patches.py puts it around what fake tensors compute. A grid_sample alone made a capture seconds
longer, and a deformable attention has dozens.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..torch_internals.tracing import FakeTensor

_aten = torch.ops.aten


def _grid_sampler_2d(x: Tensor, grid: Tensor, *_: Any) -> Tensor:
    """x (N, C, H, W), grid (N, h, w, 2): (N, C, h, w), contiguous. `torch.grid_sampler` has checked
    all but the dtypes."""
    if x.dtype != grid.dtype:
        raise RuntimeError(f"grid_sampler(): input is {x.dtype}, grid {grid.dtype}")
    return x.new_empty((*x.shape[:2], *grid.shape[1:3]))


_RESULTS: dict[Any, Callable[..., Tensor]] = {_aten.grid_sampler_2d.default: _grid_sampler_2d}


def computed_directly(dispatch: Callable) -> Callable:
    """FakeTensorMode.dispatch, with the results of such operators from their operands' sizes."""

    def dispatched(mode: Any, op: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        result = _RESULTS.get(op)
        if result is None or not all(isinstance(x, FakeTensor) for x in args[:2]):
            return dispatch(mode, op, types, args, kwargs)
        with mode:
            return result(*args)

    return dispatched
