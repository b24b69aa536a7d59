"""Python's floats that are inputs of a graph, or read out of tensors: what is computed with them.

A trace keeps them as expressions, which it simplifies: (x + 1e16) - 1e16 would be x. So each
enters one operation, with a plain number, and no more.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..errors import NeedsCut
from ..torch_internals.replace import put
from ..torch_internals.tracing import SymT, symbol_is_type

ARITHMETIC = (
    "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__",
    "__rtruediv__", "__float_truediv__", "__rfloat_truediv__", "__pow__", "__rpow__",
    "__float_pow__", "__rfloat_pow__", "__mod__", "__rmod__", "__floordiv__", "__rfloordiv__",
)  # fmt: skip
_KINDS = (SymT.FLOAT, SymT.UNBACKED_FLOAT)


def once(compute: Callable) -> Callable:
    """An operation of floats, for those that nothing was computed of; patches.py puts it in the
    place of SymFloat's during a capture."""

    def computed(*operands: Any) -> Any:
        if _are_computed(operands):
            raise NeedsCut("forward computes several times with a number read out of a tensor")
        return compute(*operands)

    return computed


@contextlib.contextmanager
def constants_after_one() -> Iterator[None]:
    """Within, this thread's second operation on a float has its value as a constant: Dynamo's."""
    owner = threading.get_ident()

    def after_one(compute: Callable) -> Callable:
        def computed(*operands: Any) -> Any:
            if threading.get_ident() == owner and _are_computed(operands):
                operands = [float(x) if isinstance(x, torch.SymFloat) else x for x in operands]
                return getattr(operands[0], compute.__name__)(*operands[1:])
            return compute(*operands)

        return computed

    with contextlib.ExitStack() as stack:
        for name in ARITHMETIC:
            put(stack, torch.SymFloat, name, after_one(getattr(torch.SymFloat, name)))
        yield


def _are_computed(operands: tuple) -> bool:
    """Whether a float among them is no plain symbol, or there are two."""
    exprs = [x.node.expr for x in operands if isinstance(x, torch.SymFloat)]
    read = [e for e in exprs if any(symbol_is_type(s, _KINDS) for s in e.free_symbols)]
    return len(read) > 1 or any(not expr.is_Symbol for expr in read)
