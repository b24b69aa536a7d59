"""Sizes that torch's kernels compare, and its fake ones do not.

patches.py puts it around what fake tensors compute, so that a capture is for sizes with the same
answer, and a trace raises where a kernel would.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false

_aten = torch.ops.aten


def _alike(_x: Any, _dim: int, index: torch.Tensor, src: torch.Tensor, *_: Any, **_named: Any):
    """Of a larger src, torch's backward raises."""
    for size, wanted in zip(src.shape, index.shape, strict=False):
        guard_or_false(size == wanted)


def _left(x: torch.Tensor, pads: list, *_: Any) -> None:
    """Negative numbers are cut off before the others are added."""
    for size, before, after in zip(reversed(x.shape), pads[0::2], pads[1::2], strict=False):
        cut = sum(number for number in (before, after) if guard_or_false(number < 0))
        if guard_or_false(size + cut < 0):
            raise RuntimeError("narrow(): length must be non-negative.")


_SCATTERS = (
    _aten.scatter.src, _aten.scatter.reduce, _aten.scatter_.src, _aten.scatter_.reduce,
    _aten.scatter_add.default, _aten.scatter_add_.default, _aten.scatter_reduce.two,
    _aten.scatter_reduce_.two,
)  # fmt: skip
_COMPARE: dict[Any, Callable] = dict.fromkeys(_SCATTERS, _alike)
_COMPARE[_aten.constant_pad_nd.default] = _left


def compared(dispatch: Callable) -> Callable:
    """FakeTensorMode.dispatch, which compares these sizes first."""

    def dispatched(mode: Any, op: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        compare = _COMPARE.get(op)
        if compare is not None:
            compare(*args)
        return dispatch(mode, op, types, args, kwargs)

    return dispatched
