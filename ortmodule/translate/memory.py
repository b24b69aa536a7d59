"""How a traced tensor's elements lie in its memory, and whether those of two overlap."""

from collections.abc import Sequence

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ..records.sizes import hint_of


def memory_order(tensor: torch.Tensor | None) -> tuple[int, ...] | None:
    """A tensor's axes from the outermost in memory to the innermost; () where that is their own
    order, None where its elements do not lie side by side."""
    if tensor is None or tensor.layout != torch.strided:
        return ()
    sizes = [hint_of(size) for size in tensor.shape]
    strides = [hint_of(stride) for stride in tensor.stride()]
    own = tuple(range(len(sizes)))
    if 0 in sizes:
        return ()
    by_stride = tuple(sorted(own, key=lambda axis: (-strides[axis], -sizes[axis])))
    for ones in (True, False):
        for order in (own, by_stride):
            if _side_by_side(sizes, strides, order, ones):
                return order if order != own else ()
    return None


def _side_by_side(sizes: list[int], strides: list[int], order: Sequence[int], ones: bool) -> bool:
    """`ones`: whether the strides of axes of one element count too."""
    expected = 1
    for axis in reversed(order):
        if (sizes[axis] != 1 or ones) and strides[axis] != expected:
            return False
        expected *= sizes[axis]
    return True


def lie_alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one memory show the same elements in the same order, at any sizes."""
    lies = zip((*a.shape, *a.stride()), (*b.shape, *b.stride()), strict=False)
    starts = a.storage_offset() == b.storage_offset()
    return a.dim() == b.dim() and _known(starts) and all(_known(x == y) for x, y in lies)


def overlap(a: torch.Tensor, b: torch.Tensor) -> bool | None:
    """Whether an element of one memory is in both tensors; None where sizes decide it that are not
    known."""
    if any(isinstance(n, int) and n == 0 for x in (a, b) for n in x.shape):
        return False
    (axes, start), (others, other) = (_from_the_widest(x) for x in (a, b))
    while axes and others and all(_known(x == y) for x, y in zip(axes[0], others[0], strict=True)):
        ends = start + _reach(axes[1:]), other + _reach(others[1:])
        if not all(_known(end - n < axes[0][0]) for end in ends for n in (start, other)):
            break  # what lies within one step of the widest axis does not lie within one alone
        axes, others = axes[1:], others[1:]
    ends = start + _reach(axes), other + _reach(others)
    if _known(ends[0] < other) or _known(ends[1] < start):
        return False
    numbers = (start, other, *(n for axis in (*axes, *others) for n in axis))
    met = _meet(axes, hint_of(start), others, hint_of(other))
    return met or (False if all(isinstance(n, int) for n in numbers) else None)


def _meet(axes: list, start: int, others: list, other: int) -> bool:
    """Whether they do at the sizes of the first call."""
    axes, others = ([(hint_of(step), hint_of(n)) for step, n in x] for x in (axes, others))
    shown = torch.zeros(
        1 + max(start + _reach(axes), other + _reach(others)), dtype=torch.bool, device="cpu"
    )
    shown.as_strided([n for _, n in axes], [step for step, _ in axes], start).fill_(True)
    return bool(shown.as_strided([n for _, n in others], [s for s, _ in others], other).any())


def _known(condition: bool | torch.SymBool) -> bool:
    return statically_known_true(condition)


def _from_the_widest(tensor: torch.Tensor) -> tuple[list[tuple], int]:
    """(step, size) of each axis in the order of memory, but of those of one element; the first
    element's place."""
    axes = zip(tensor.stride(), tensor.shape, strict=True)
    axes = [(step, n) for step, n in axes if not (isinstance(n, int) and n == 1)]
    return sorted(axes, key=lambda axis: -hint_of(axis[0])), tensor.storage_offset()


def _reach(axes: Sequence[tuple]) -> int:
    return sum((n - 1) * step for step, n in axes)
