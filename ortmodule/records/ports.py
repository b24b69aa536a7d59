"""How a captured graph meets the world: its inputs, outputs and write-backs.

Built by naming.py, translate/ and outputs.py; read by a Capture when it returns tensors, and by its
runner.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..torch_internals.trees import tree_map
from .sizes import Dim


@dataclasses.dataclass(slots=True)
class Input:
    """One input of the graph, in the graph's order.

    role "user": `index` is the tensor's place in the flat list of the call's tensors. "parameter"
    and "buffer": `tensor` is the module's own tensor (a buffer may also be a plain tensor
    attribute). "key": the random key, uint64 [1].
    """

    role: str
    name: str
    dtype: str
    dims: list[Dim]
    index: int | None = None
    tensor: torch.Tensor | None = None
    requires_grad: bool = False

    @property
    def source(self) -> int | torch.Tensor | None:
        """A tensor of the call's, by its place, or the module's own."""
        return self.index if self.role == "user" else self.tensor

    def of(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
        """What it is in a call with these tensors."""
        return tensors[self.index] if self.role == "user" else self.tensor


@dataclasses.dataclass(slots=True)
class Placeholder:
    """What a graph input of the exported program is: an Input of ours, or a constant tensor.

    Placeholders of the same tensor share one `memory` key and become one input.
    """

    memory: int
    input: Input | None = None
    constant: torch.Tensor | None = None


@dataclasses.dataclass(slots=True)
class View:
    """One view op of torch's, to be applied anew: `args` and `kwargs` may hold sizes as Dims.

    `index`: which of several results, as of a split. `graded`: whether gradients were on; a view
    that was made without is a leaf, which requires grad if its base does.
    """

    op: Any
    args: tuple
    kwargs: dict
    index: int | None = None
    graded: bool = True

    def apply(
        self, base: torch.Tensor, number: Callable[[Any], Any], siblings: dict[tuple, Any]
    ) -> torch.Tensor:
        """The view of `base`; `number` gives a Dim's value. `siblings`: results of a call of the
        module, as views by one op have one node of autograd."""
        if self.index is None:
            return self._made(base, number)
        key = base, self.op, repr((self.args, self.kwargs)), self.graded
        if key not in siblings:
            siblings[key] = self._made(base, number)
        return siblings[key][self.index]

    def _made(self, base: torch.Tensor, number: Callable[[Any], Any]) -> Any:
        args, kwargs = tree_map(number, (self.args, self.kwargs))
        with contextlib.nullcontext() if self.graded else torch.no_grad():
            return self.op(base, *args, **kwargs)


@dataclasses.dataclass(slots=True)
class Output:
    """One tensor that the module returned, each distinct tensor once.

    Either the graph's output number `output`, or, where it is one of the call's own tensors,
    `source`: the user tensor of that index in the call's flat list, or a parameter, buffer or
    tensor attribute. Seen through `views`: what shares memory in eager does here. `own`: the
    graph's output that has the view's gradient, where another output was computed from the view.
    """

    output: int | None = None
    source: int | torch.Tensor | None = None
    requires_grad: bool = False
    views: tuple[View, ...] = ()
    own: int | None = None

    @property
    def numbers(self) -> list[int]:
        """Of the graph's outputs that it is made of."""
        return [n for n in (self.output, self.own) if n is not None]

    @property
    def differentiated(self) -> int | None:
        """The graph's output whose node of autograd is its own; None for a view of another's."""
        return self.own if self.views else self.output


@dataclasses.dataclass(slots=True)
class WriteBack:
    """After a run, graph output `output` is copied into `target`.

    `target` is a buffer or tensor attribute of the module, or the index of a user tensor. `bumps`:
    whether its version tells of it; `read_there`: whether it was forward's own code that wrote, so
    that eager's backward reads what is there when it runs.
    """

    output: int
    target: int | torch.Tensor
    name: str
    bumps: bool = True
    read_there: bool = False


@dataclasses.dataclass(slots=True)
class Assigned:
    """After a run, graph output `output` is the buffer `key` of a module: a tensor of its own."""

    output: int
    registry: dict[str, torch.Tensor | None]
    key: str
