"""Numbers among the arguments that are others from call to call, as symbols of a capture.

An integer is the size of a tensor without elements (one of two, for each sign), a float the element
of one of float64: so the graph takes tensors alone. A number is captured by its value until another
one has come.
"""

import dataclasses
from typing import Any

import torch

from .. import _native
from . import tree
from .call import Call

# What a size may be; torch makes captures of their own for 0 and 1.
_LEAST, MOST = 2, 1 << 31


def carrier(number: int | float) -> torch.Tensor:
    """The tensor that stands for a number in a graph."""
    if isinstance(number, float):
        return torch.tensor(number, dtype=torch.float64)
    return torch.empty((0, max(number, 0), max(-number, 0)), dtype=torch.bool)


def number_of(tensor: torch.Tensor) -> Any:
    """The number that a tensor stands for; of a traced tensor a symbol."""
    return tensor.size(1) - tensor.size(2) if tensor.dim() else tensor.item()


class Varying:
    """What is known of calls that are alike but for their numbers, which the first had as here."""

    def __init__(self, numbers: list[int | float]):
        self._first = [tree.Const(number) for number in numbers]
        self._varying: set[int] = set()
        self._fixed: set[int] = set()  # no capture holds these as symbols

    def generalise(self, call: Call, numbers: list[int | float]) -> Call:
        """The call with what varies as symbols, where that may be."""
        for place, (first, number) in enumerate(zip(self._first, numbers, strict=True)):
            if first != tree.Const(number):
                self._varying.add(place)
        chosen = [k for k in sorted(self._varying - self._fixed) if may_vary(numbers[k])]
        if not chosen:
            return call
        values = [numbers[place] for place in chosen]
        tensors = [*call.tensors, *map(carrier, values)]
        spec = tree.with_symbols(call.spec, chosen)
        key = spec, _native.torch_bridge().Signature(tensors)
        return dataclasses.replace(
            call, tensors=tensors, spec=spec, key=key, numbers=values, places=chosen, plain=call
        )

    def learn(self, call: Call, dims: list[list] | None) -> None:
        """What a capture of the call took its numbers to be, `dims` of its tensors; None: there is
        none with these as symbols."""
        if dims is None:
            self._fixed.update(call.places)
            return
        for place, sizes in zip(call.places, dims[-len(call.places) :], strict=True):
            if sizes and all(isinstance(size, int) for size in sizes):
                self._fixed.add(place)


def may_vary(number: int | float, least: int = _LEAST) -> bool:
    """Whether a symbol may stand for it. None does for a NaN: to a trace it is equal to itself."""
    if isinstance(number, float):
        return number == number
    return least <= abs(number) < MOST
