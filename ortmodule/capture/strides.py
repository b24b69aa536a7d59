"""How results lie in memory where a kernel of torch's gives other strides than a trace of it does.

patches.py puts it around what fake tensors compute; a trace keeps the order of the operand's axes.
"""

from collections.abc import Callable
from typing import Any

import torch

from .. import devices
from ..translate.memory import memory_order

_aten = torch.ops.aten
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
