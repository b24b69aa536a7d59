"""How a layer that keeps its weight in few bits (quantized.py) shows it: as floats, and as a
parameter that may be asked to train."""

from functools import partial
from typing import Any

import torch
from torch import nn

from ..torch_internals.autograd import is_alias_of, make_subclass
from ..torch_internals.modes import DisableTorchFunctionSubclass
from ..torch_internals.trees import tree_leaves, tree_map


class Weight(torch.Tensor):
    """A layer's weight as floats, made when it is asked for.

    What is written to it or to a view of it goes into the layer, which is one of floats again when
    its weight is asked to train.
    """

    @classmethod
    def of(cls, owner: nn.Module, values: torch.Tensor, whole: "Weight | None" = None) -> "Weight":
        made = make_subclass(cls, values, False)
        made.owner, made.whole = owner, whole
        return made

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        given = [a for a in tree_leaves((args, kwargs)) if isinstance(a, Weight)]
        with DisableTorchFunctionSubclass():
            before = [weight._version for weight in given]
            out = function(*args, **kwargs)
            for weight, version in zip(given, before, strict=True):
                if weight._version != version:
                    whole = weight if weight.whole is None else weight.whole
                    weight.owner.keep(whole.as_subclass(torch.Tensor))
                if weight.requires_grad and weight.is_leaf:
                    return weight.trained()
            return tree_map(partial(_seen, given), out)

    def trained(self) -> torch.Tensor:
        """The parameter that the weight becomes."""
        self.requires_grad_(False)
        if self.whole is not None:
            raise RuntimeError(
                "a view of a weight that is kept in few bits cannot be trained: clone() it"
            )
        return self.owner.thaw()

    @property
    def data(self) -> "Weight":
        with DisableTorchFunctionSubclass():
            return type(self).of(self.owner, self.as_subclass(torch.Tensor), self.whole)

    @data.setter
    def data(self, values: torch.Tensor) -> None:
        if self.whole is not None:
            raise RuntimeError("a view of a weight that is kept in few bits has no other data")
        self.owner.keep(values)


class View(Weight):
    """Some of a weight, or another shape of it."""


def _seen(given: list[Weight], out: Any) -> Any:
    """What shares memory with one of the weights is a view of it."""
    if type(out) is torch.Tensor:
        for weight in given:
            if is_alias_of(out, weight):
                return View.of(weight.owner, out, weight if weight.whole is None else weight.whole)
    return out


class FrozenWeight(nn.Parameter):
    """The parameter of a layer that has none: without elements, of the dtype and on the device as
    which the weight is shown. Asked to train, by whoever walks over a model's parameters, it makes
    the layer one of floats again."""

    @classmethod
    def of(cls, owner: nn.Module, like: torch.Tensor) -> "FrozenWeight":
        made = cls(torch.empty(0, dtype=like.dtype, device=like.device), requires_grad=False)
        made.owner = owner
        return made

    @property
    def requires_grad(self) -> bool:
        return False

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self.requires_grad_(wanted)

    def requires_grad_(self, requires_grad: bool = True) -> torch.Tensor:
        return self.owner.thaw() if requires_grad else self

    def __deepcopy__(self, memo: dict) -> nn.Parameter:
        """Its layer's copy makes one of its own."""
        return nn.Parameter(self.data.clone(), requires_grad=False)

    def __reduce_ex__(self, protocol: int) -> Any:
        return nn.Parameter(self.data, requires_grad=False).__reduce_ex__(protocol)
