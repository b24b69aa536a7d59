"""Fake kernels of our own before torch's; patches.py puts both around what fake tensors compute.

Results of operators that torch decomposes into hundreds where sizes are symbols: a grid_sample
alone made a capture seconds longer, and a deformable attention has dozens. Sizes that torch's
kernels compare and its fake ones do not: so a capture is for sizes with the same answer, and a
trace raises where a kernel would. Strides that torch's kernels give and its fake ones do not.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import guard_or_false

from ... import devices
from ...torch_internals.tracing import FakeTensor
from ...translate.memory import memory_order
from .fake_results import RESULTS

_aten = torch.ops.aten


def _grid_sampler_2d(x: Tensor, grid: Tensor, *_: Any) -> Tensor:
    """x (N, C, H, W), grid (N, h, w, 2): (N, C, h, w), contiguous. `torch.grid_sampler` has checked
    all but the dtypes."""
    if x.dtype != grid.dtype:
        raise RuntimeError(f"grid_sampler(): input is {x.dtype}, grid {grid.dtype}")
    return x.new_empty((*x.shape[:2], *grid.shape[1:3]))


def _grid_sampler(x: Any, grid: Any, *rest: Any) -> Tensor:
    with x.fake_mode:
        return _grid_sampler_2d(x, grid, *rest)


_RESULTS = {**RESULTS, _aten.grid_sampler_2d.default: _grid_sampler}


def _is_of(mode: Any, x: Any) -> bool:
    return not isinstance(x, Tensor) or isinstance(x, FakeTensor) and x.fake_mode is mode


def computed_directly(dispatch: Callable) -> Callable:
    """FakeTensorMode.dispatch, with the results of such operators from their operands' sizes."""

    def dispatched(mode: Any, op: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        result = _RESULTS.get(op)
        if result is not None and all(_is_of(mode, x) for x in args):
            found = result(*args, **(kwargs or {}))
            if found is not None:
                return found
        return dispatch(mode, op, types, args, kwargs)

    return dispatched


def _sizes_of_source(_x: Any, _dim: int, index: Tensor, src: Tensor, *_: Any, **_named: Any):
    """Of a larger src, torch's backward raises."""
    for size, wanted in zip(src.shape, index.shape, strict=False):
        guard_or_false(size == wanted)


def _sizes_left(x: Tensor, pads: list, *_: Any) -> None:
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
_COMPARE: dict[Any, Callable] = dict.fromkeys(_SCATTERS, _sizes_of_source)
_COMPARE[_aten.constant_pad_nd.default] = _sizes_left


def compared(dispatch: Callable) -> Callable:
    """FakeTensorMode.dispatch, which compares these sizes first."""

    def dispatched(mode: Any, op: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        compare = _COMPARE.get(op)
        if compare is not None:
            compare(*args)
        return dispatch(mode, op, types, args, kwargs)

    return dispatched


# Whether the result may be channels last, as the operand is; else it is contiguous.
_CONTIGUOUS = {
    _aten.native_batch_norm.default: True,
    _aten._native_batch_norm_legit.default: True,
    _aten._native_batch_norm_legit.no_stats: True,
    _aten._native_batch_norm_legit_no_training.default: True,
    _aten.log_sigmoid_forward.default: False,
    _aten.rrelu_with_noise.default: False,
    _aten.rrelu_with_noise_functional.default: False,
}
_CHANNELS_LAST = ((0, 2, 3, 1), (0, 2, 3, 4, 1))


def as_kernels_give(dispatch: Callable) -> Callable:
    """FakeTensorMode.dispatch, with the first result of such an op on a CPU as its kernel's."""

    def dispatched(mode: Any, op: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
        found = dispatch(mode, op, types, args, kwargs)
        last = _CONTIGUOUS.get(op)
        if last is None or devices.of(args[:1]) != devices.HOST:
            return found
        first, *rest = found if isinstance(found, (list, tuple)) else [found]
        given, made = memory_order(args[0]), memory_order(first)
        if made == () or last and given in _CHANNELS_LAST:
            return found
        contiguous = {"memory_format": torch.contiguous_format}
        first = dispatch(mode, _aten.clone.default, types, (first,), contiguous)
        return (first, *rest) if isinstance(found, (list, tuple)) else first

    return dispatched
