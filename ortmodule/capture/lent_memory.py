"""Tensors of forward that share memory with an array of numpy's, as torch.as_tensor makes them.

Used by fake_run.py. A trace holds such a tensor as a constant: writes to it do not reach the array,
nor those to the array the tensor.
"""

import dataclasses
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import torch

from ..errors import NotCapturable
from ..interface.autograd_history import storage_key


@dataclasses.dataclass(slots=True)
class _Loan:
    tensor: torch.Tensor
    version: int
    array: np.ndarray
    elements: bytes


# from_numpy is the first of these during a capture, see patches.py.
_SHARE = (torch.as_tensor, torch.asarray)


class Loans:
    """What forward made of arrays; `note` is told of each call of torch."""

    def __init__(self):
        self._made: list[_Loan] = []

    def note(self, function: Any, args: tuple, kwargs: dict, result: Any) -> None:
        given = next(iter((*args, *kwargs.values())), None)
        if function in _SHARE and isinstance(given, np.ndarray | bytearray | memoryview):
            array = np.asarray(given)
            self._made.append(_Loan(result, result._version, array, array.tobytes()))

    def check(self, outputs: Iterable[Any], written: Collection[Any], place: dict) -> None:
        """Refuses a forward that wrote to one of both, or gives the tensor to its caller."""
        returned = set(map(storage_key, outputs))
        for loan in self._made:
            key = storage_key(loan.tensor)
            if loan.tensor._version != loan.version or key in written:
                raise NotCapturable("forward writes to the memory of a numpy array", **place)
            if loan.array.tobytes() != loan.elements:
                raise NotCapturable("forward writes to an array that a tensor shows", **place)
            if key in returned:
                raise NotCapturable("forward returns the memory of a numpy array", **place)
