"""DTensors under an optimizer: where a rule is of each element, a process steps its own shard."""

import math
import sys
from typing import Any

import torch


def is_dtensor(value: Any) -> bool:
    """Whether a value is a DTensor, whose class is not imported for that."""
    return _is_dtensors(type(value))


def _is_dtensors(kind: type) -> bool:
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and issubclass(kind, module.DTensor)


def local(value: Any) -> Any:
    """A DTensor's shard, in the same memory; anything else itself."""
    return value._local_tensor if is_dtensor(value) else value


class Shards:
    """Stand-ins for those of `params` that are DTensors with a gradient, by the step of `name`.

    `params`: as given, a DTensor's place taken by its shard, with the gradient's. `owners`: by
    stand-in the DTensor. Raises RuntimeError for one that is split where the rule is not
    `by_element`: its shard does not tell what the rule asks of the whole.
    """

    def __init__(self, name: str, params: list, by_element: bool):
        self.owners: dict[torch.Tensor, torch.Tensor] = {}
        self.params = params
        if any(map(_is_dtensors, set(map(type, params)))):
            self.params = [self._stand_in(p, name, by_element) for p in params]

    def _stand_in(self, p: torch.Tensor, name: str, by_element: bool) -> torch.Tensor:
        if not is_dtensor(p) or p.grad is None:
            return p
        if not by_element and any(not place.is_replicate() for place in p.placements):
            raise RuntimeError(
                f"[{name}] a parameter is a DTensor, of which each process has a shard, and its "
                "step asks for what is of the whole: expected a plain tensor"
            )
        grad = p.grad
        if is_dtensor(grad) and grad.placements != p.placements:
            grad = grad.redistribute(placements=p.placements)
        standing = local(p).detach()
        standing.grad = local(grad)
        self.owners[standing] = p
        return standing

    def state_of(self, state: dict) -> dict:
        """The optimizer's state, by stand-ins and in shards."""
        if not self.owners:
            return state
        found = {p: state[p] for p in self.params if p not in self.owners and p in state}
        for standing, p in self.owners.items():
            if p in state:
                found[standing] = {name: local(value) for name, value in state[p].items()}
        return found

    def norm(self, of: Any) -> float:
        """The L2 norm of all gradients, which all processes get; of(tensors): that of some."""
        parts: dict[tuple, list] = {}
        for p in self.params:
            owner = self.owners.get(p)
            split = owner is not None and tuple(
                dim for dim, place in enumerate(owner.placements) if not place.is_replicate()
            )
            parts.setdefault((owner.device_mesh, split) if split else (), []).append(p)
        total = 0.0
        for place, params in parts.items():
            square = torch.tensor(of(params) ** 2, dtype=torch.float64)
            if place:
                mesh, split = place
                for dim in split:
                    torch.distributed.all_reduce(square, group=mesh.get_group(dim))
            total += float(square)
        return math.sqrt(total)
