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
from ..records.autograd_history import storage_key


@dataclasses.dataclass(slots=True)
class _Shared:
    """A tensor and its array, each as it was when the tensor was made."""

    tensor: torch.Tensor
    version: int
    array: np.ndarray
    elements: bytes


# from_numpy is the first of these during a capture, see patches.py.
_SHARE = (torch.as_tensor, torch.asarray)


class ArrayMemory:
    """What forward made of arrays; `note` is told of each call of torch."""

    def __init__(self):
        self._shared: list[_Shared] = []

    def note(self, function: Any, args: tuple, kwargs: dict, result: Any) -> None:
        if function not in _SHARE:
            return
        for given in (*args, *kwargs.values()):
            if isinstance(given, np.ndarray | bytearray | memoryview):
                array = np.asarray(given)
                self._shared.append(_Shared(result, result._version, array, array.tobytes()))

    def check(self, outputs: Iterable[Any], written: Collection[Any], place: dict) -> None:
        """Refuses a forward that wrote to one of both, or gives the tensor to its caller."""
        returned = set(map(storage_key, outputs))
        for shared in self._shared:
            key = storage_key(shared.tensor)
            if shared.tensor._version != shared.version or key in written:
                raise NotCapturable("forward writes to a tensor that shares a numpy array", **place)
            if shared.array.tobytes() != shared.elements:
                raise NotCapturable("forward writes to a numpy array that a tensor shares", **place)
            if key in returned:
                raise NotCapturable("forward returns a tensor that shares a numpy array", **place)
