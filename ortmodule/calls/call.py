"""A call described: all that a capture is made from, and that an earlier one is searched by."""

import dataclasses
from typing import Any

import torch

from .. import _native
from ..errors import NeedsCut, NotCapturable
from . import tree


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """The arguments, their tensors in order, and `spec`, the tree that these came in; the
    containers of it that forward may change.

    Of a call with symbols for some numbers: `numbers`, their values, whose tensors are the last of
    `tensors`; their `places` among the call's; and `plain`, the call without.
    `key` is equal for calls that one capture may serve, whatever their sizes: the tree with its
    constants, and the facts of its tensors and of the modes around it (signature.h).
    """

    args: tuple
    kwargs: dict[str, Any]
    tensors: list[torch.Tensor]
    containers: list[Any]
    spec: Any
    key: tuple
    numbers: list[int | float] = dataclasses.field(default_factory=list)
    places: list[int] = dataclasses.field(default_factory=list)
    plain: "Call | None" = None

    def facts(self) -> "CallFacts":
        """What is kept of the call when its tensors are gone."""
        facts = [(t.shape, t.dtype, t.device, t.requires_grad) for t in self.tensors]
        return CallFacts(self.spec, facts)


@dataclasses.dataclass(frozen=True, slots=True)
class CallFacts:
    """A call's tree, and its tensors' sizes, dtypes, devices and requires_grad."""

    spec: Any
    facts: list[tuple]

    def arguments(self) -> tuple[tuple, dict[str, Any]]:
        """Arguments like the call's, of zeros."""
        args, kwargs = tree.unflatten(self.spec, [_zeros(*facts) for facts in self.facts])
        return args, kwargs


def describe(args: tuple, kwargs: dict[str, Any]) -> Call:
    """Raises NotCapturable where an argument is nothing that calls can be told apart by."""
    try:
        flattening = tree.Flattening()
        spec = flattening.spec([args, kwargs], "arguments")
    except tree.UnknownLeaf as error:
        raise NeedsCut(str(error)) from None
    tensors = flattening.tensors
    if any(tensor.is_nested for tensor in tensors):  # nothing tells its sizes
        raise NotCapturable("an argument is a nested tensor")
    key = spec, _native.torch_bridge().Signature(tensors)
    return Call(args, kwargs, tensors, flattening.containers, spec, key)


def _zeros(shape: torch.Size, dtype: torch.dtype, device: torch.device, requires_grad: bool):
    return torch.zeros(shape, dtype=dtype, device=device, requires_grad=requires_grad)
