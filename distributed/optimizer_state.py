"""An optimizer's state by the names of its parameters, as it is.

torch.distributed.checkpoint.state_dict makes a step of an optimizer that has no state yet, which
changes the run that is saved, and asks for a state of each parameter that requires a gradient.
FullyShardedDataParallel's flat parameters are left to it.
"""

import itertools
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Replicate, empty

from ..torch_internals.distributed import names_in_state_dict


def take(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[dict, dict]:
    """The tensors, by parameter and name, of which a process may have a part; and what is the same
    in all: the groups, plain state, sizes and dtypes of the tensors."""
    if _is_flat(model):
        return states.get_optimizer_state_dict(model, optimizer), {}
    names = dict(enumerate(_names(model, optimizer)))
    found = optimizer.state_dict()
    tensors, kinds, plain = {}, {}, {}
    for number, state in found["state"].items():
        name = names.get(number, number)
        for what, value in state.items():
            if isinstance(value, torch.Tensor):
                tensors.setdefault(name, {})[what] = value
                kinds.setdefault(name, {})[what] = value.shape, value.dtype
            else:
                plain.setdefault(name, {})[what] = value
    groups = [g | {"params": [names[n] for n in g["params"]]} for g in found["param_groups"]]
    return tensors, {"groups": groups, "plain": plain, "kinds": kinds}


def memory(model: nn.Module, optimizer: torch.optim.Optimizer, same: dict) -> dict:
    """For the tensors that `take` gave. Raises ValueError where the optimizer is another."""
    if _is_flat(model):
        return states.get_optimizer_state_dict(model, optimizer)
    _check_groups(optimizer, same["groups"], iter(_names(model, optimizer)))
    of = dict(zip(_names(model, optimizer), _parameters(optimizer), strict=True))
    return {
        name: {what: _memory(of[name], *kind) for what, kind in kinds.items()}
        for name, kinds in same["kinds"].items()
    }


def put(model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict, same: dict) -> None:
    """Loads what `take` gave, the tensors in `memory`."""
    if _is_flat(model):
        states.set_optimizer_state_dict(model, optimizer, tensors)
        return
    numbers = {name: number for number, name in enumerate(_names(model, optimizer))}
    state: dict[Any, dict] = {}
    for name, values in itertools.chain(tensors.items(), same["plain"].items()):
        state.setdefault(numbers.get(name, name), {}).update(values)
    given = iter(range(len(numbers)))
    groups = [g | {"params": [next(given) for _ in g["params"]]} for g in same["groups"]]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _is_flat(model: nn.Module) -> bool:
    return any(isinstance(module, FullyShardedDataParallel) for module in model.modules())


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """In the order in which state_dict numbers them."""
    return list(itertools.chain.from_iterable(g["params"] for g in optimizer.param_groups))


def _names(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Of each parameter its name in the bare model."""
    named = {p: min(names_in_state_dict(model, name)) for name, p in model.named_parameters()}
    for p in _parameters(optimizer):
        if p not in named:
            raise ValueError(f"the optimizer has a parameter of sizes {[*p.shape]}, the model none")
    return [named[p] for p in _parameters(optimizer)]


def _check_groups(optimizer: torch.optim.Optimizer, saved: list[dict], names) -> None:
    groups = optimizer.param_groups
    if len(groups) != len(saved):
        raise ValueError(f"the optimizer has {len(groups)} groups, was saved with {len(saved)}")
    for number, (group, before) in enumerate(zip(groups, saved, strict=True)):
        now, then = {next(names) for _ in group["params"]}, set(before["params"])
        if now != then:
            name = min(now ^ then)
            found = "has" if name in now else "has no"
            raise ValueError(
                f"group {number} of the optimizer {found} {name}, unlike what was saved"
            )
        missing = optimizer.defaults.keys() - before.keys()
        if missing:
            raise ValueError(
                f"the optimizer has an option {min(missing)}, that which was saved has none"
            )


def _memory(parameter: torch.Tensor, sizes: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    if not isinstance(parameter, DTensor) or not sizes:
        return torch.empty(sizes, dtype=dtype, device=parameter.device if sizes else "cpu")
    if sizes == parameter.shape:
        return torch.empty_like(parameter, dtype=dtype, requires_grad=False)
    mesh = parameter.device_mesh
    return empty(sizes, dtype=dtype, device_mesh=mesh, placements=[Replicate()] * mesh.ndim)
