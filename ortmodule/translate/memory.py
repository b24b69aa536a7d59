"""How a traced tensor's elements lie in its memory."""

from collections.abc import Sequence

import torch

from ..sizes import hint_of


def memory_order(tensor: torch.Tensor | None) -> tuple[int, ...] | None:
    """A tensor's axes from the outermost in memory to the innermost; () where that is their own
    order, None where its elements do not lie side by side."""
    if tensor is None or tensor.layout != torch.strided:
        return ()
    sizes = [hint_of(size) for size in tensor.shape]
    strides = [hint_of(stride) for stride in tensor.stride()]
    own = tuple(range(len(sizes)))
    if 0 in sizes or _side_by_side(sizes, strides, own):
        return ()
    order = tuple(sorted(own, key=lambda axis: -strides[axis]))
    return order if _side_by_side(sizes, strides, order) else None


def _side_by_side(sizes: list[int], strides: list[int], order: Sequence[int]) -> bool:
    expected = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != expected:
            return False
        expected *= sizes[axis]
    return True
