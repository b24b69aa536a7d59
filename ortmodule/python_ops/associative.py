"""Whether the operator of a scan is associative: tried on numbers, as its traced graph says.

control_flow.py asks: torch combines neighbours in a tree, a graph of ours one after the other.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ..records.sizes import hint_of
from ..torch_internals.modes import DisableTorchFunction, disable_current_modes
from ..torch_internals.tracing import FakeTensor

_TRIES = 4


def is_associative(graph: fx.GraphModule, sizes: dict[fx.Node, Any]) -> bool:
    """graph: gives (a b) for the tensors of a, those of b, and numbers, `sizes`."""
    with disable_current_modes(), DisableTorchFunction(), torch.no_grad():
        return all(_holds(graph, sizes, seed) for seed in range(_TRIES))


def _holds(graph: fx.GraphModule, sizes: dict[fx.Node, Any], seed: int) -> bool:
    run = _Tried(graph, seed)
    rows = [n for n in graph.graph.nodes if n.op == "placeholder" and n not in sizes]
    rows = rows[: len(rows) // 2]
    a, b, c = ([run.drawn(n.meta["val"]) for n in rows] for _ in range(3))
    numbers = [hint_of(size) for size in sizes.values()]
    left = run.run(*run.run(*a, *b, *numbers), *c, *numbers)
    right = run.run(*a, *run.run(*b, *c, *numbers), *numbers)
    return all(_close(x, y) for x, y in zip(left, right, strict=True))


def _close(x: torch.Tensor, y: torch.Tensor) -> bool:
    close = 1e-3 if x.dtype in (torch.float32, torch.float64) else 0.1
    return torch.allclose(x, y, rtol=close, atol=close, equal_nan=True)


class _Tried(fx.Interpreter):
    """Runs a graph on numbers; what it reads of the program around it is drawn too, once."""

    def __init__(self, graph: fx.GraphModule, seed: int):
        super().__init__(graph)
        self._generator = torch.Generator().manual_seed(seed)
        self._constants: dict[str, torch.Tensor] = {}

    def drawn(self, like: Any) -> Any:
        """Numbers between 0 and 1, or small integers."""
        shape = [hint_of(size) for size in like.shape]
        if like.is_floating_point() or like.is_complex():
            return torch.rand(shape, generator=self._generator).to(like.dtype)
        return torch.randint(0, 4, shape, generator=self._generator).to(like.dtype)

    def get_attr(self, target: Any, args: Sequence, kwargs: dict) -> Any:
        found = super().get_attr(target, args, kwargs)
        if not isinstance(found, FakeTensor):
            return found
        if target not in self._constants:
            self._constants[target] = self.drawn(found)
        return self._constants[target]
