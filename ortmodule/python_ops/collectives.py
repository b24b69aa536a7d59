"""What stands for torch's differentiable collectives during a capture: ops without their Python.

patches.py has functions.py call these for the autograd.Functions of torch.distributed.nn.functional
and of the functional collectives; translate/collective.py has the rules.
"""

import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist

from ..errors import NeedsCut
from ..places import caller_place
from ..torch_internals.distributed import (
    c10d_functional,
    functional_collectives,
    group_size_by_name,
)

_NAMESPACE = "ortmodule_collective"


@functools.cache
def _library() -> torch.library.Library:
    """Ops for traces alone: they have the shapes, and nothing that runs."""
    library = torch.library.Library(_NAMESPACE, "FRAGMENT")
    for schema, fake in (
        ("all_reduce(Tensor x, str op, str group)", _in_order),
        ("reduce_scatter(Tensor x, str op, str group)", _part),
        ("broadcast(Tensor x, int root, str group)", lambda x, *_: torch.empty_like(x)),
    ):
        library.define(f"{schema} -> Tensor")
        name = f"{_NAMESPACE}::{schema.partition('(')[0]}"
        torch.library.register_fake(name, fake, lib=library)
    return library


def _in_order(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _part(x: torch.Tensor, _op: str, group: str) -> torch.Tensor:
    size = group_size_by_name(group)
    return x.new_empty((x.shape[0] // size, *x.shape[1:]))


def stand_ins() -> dict[type, Callable]:
    """What is called for a Function's `apply`, where there are groups."""
    if not dist.is_initialized():
        return {}
    found: dict[type, Callable] = {}
    if waiting := getattr(functional_collectives(), "_FromTorchTensor", None):  # torch 2.11's
        found[waiting] = c10d_functional().wait_tensor
    if differentiable := sys.modules.get("torch.distributed.nn.functional"):
        _library()
        found |= {
            differentiable._AllReduce: _all_reduce,
            differentiable._AllGather: _all_gather,
            differentiable._Reduce_Scatter: _reduce_scatter,
            differentiable._Broadcast: _broadcast,
        }
    return found


def replace_refusals(replace: Callable) -> None:
    """Torch's own refusal to trace those of torch.distributed.nn.functional: ours stand there."""
    differentiable = sys.modules.get("torch.distributed.nn.functional")
    if hasattr(differentiable, "_not_supported_under_compile"):  # after torch 2.11
        name = "_not_supported_under_compile"
        replace(differentiable, name, lambda _: lambda *_args, **_kwargs: None)


def check_in_place(function: Any, tensors: Iterable[Any]) -> None:
    """Refuses one of torch.distributed's collectives, which write in place, where autograd sees it:
    traced it has a gradient, in eager the history of what it writes to stays as it was."""
    if not dist.is_initialized() or not torch.is_grad_enabled():
        return
    if function not in functional_collectives().traceable_collective_remaps:
        return
    if any(isinstance(tensor, torch.Tensor) and tensor.requires_grad for tensor in tensors):
        name = f"torch.distributed.{function.__name__}"
        reason = f"{name} is given a tensor that requires grad, and torch has no gradient for it"
        raise NeedsCut(reason, **caller_place())


def _all_reduce(op: Any, group: Any, x: torch.Tensor) -> torch.Tensor:
    return torch.ops.ortmodule_collective.all_reduce(x, _name_of(op), _named(group))


def _all_gather(group: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    size, name = dist.get_world_size(group), _named(group)
    ranks = c10d_functional().all_gather_into_tensor(x.unsqueeze(0), size, name)
    return tuple(of_rank.clone() for of_rank in ranks.unbind(0))


def _reduce_scatter(op: Any, group: Any, out: torch.Tensor, *parts: torch.Tensor) -> torch.Tensor:
    name = _named(group)
    sums = torch.ops.ortmodule_collective.reduce_scatter(torch.stack(parts), _name_of(op), name)
    found = sums.squeeze(0)
    if out.is_contiguous():  # it is written too
        out.copy_(found.detach())
    return found


def _broadcast(source: int, group: Any, x: torch.Tensor) -> torch.Tensor:
    name = _named(group)
    root = dist.get_group_rank(group or dist.group.WORLD, source)
    if root != source:
        raise NeedsCut(
            f"forward broadcasts from rank {source}, which is rank {root} of the group: torch "
            "takes the one for the other in the gradient",
            **caller_place(),
        )
    return torch.ops.ortmodule_collective.broadcast(x, root, name)


def _named(group: Any) -> str:
    group = dist.group.WORLD if group is None else group
    if not isinstance(group, dist.ProcessGroup):
        raise NeedsCut(f"forward communicates in {group}, expected a group", **caller_place())
    return group.group_name


def _name_of(op: Any) -> str:
    """A reduction as c10d's functional collectives name it."""
    names = functional_collectives().REDUCE_OP_TO_STR
    if op not in names:
        raise NeedsCut(f"forward reduces by {op}, which has no name", **caller_place())
    return names[op]
