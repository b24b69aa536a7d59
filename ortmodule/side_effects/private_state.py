"""Parameters and buffers as the capturing thread alone sees them.

A fake run and a trace put tensors without data in their place; other threads, which may save or
train the module meanwhile, go on seeing the real ones.
"""

import copy
import threading
from collections.abc import Callable, Container, Iterable
from typing import Any

import torch
from torch import nn

from ..guards import surroundings
from ..guards.state_kinds import MISSING, same
from ..guards.tensor_questions import THROUGH_DATA
from ..torch_internals.tracing import FakeTensorMode

# What transformers' caches tell torch.compile of their tensors: it changes no value.
OF_CACHES = {"_dynamo_static_input_type"}


class _Registry(dict):
    """Stands for a module's dict of parameters or buffers; for other threads it is that dict."""

    def __init__(self, original: dict, own: dict):
        super().__init__(original)
        self.original, self.own, self.owner = original, own, threading.get_ident()

    def here(self) -> dict:
        return self.own if threading.get_ident() == self.owner else self.original

    def __reduce__(self):
        return dict, (dict(self.here()),)

    def __deepcopy__(self, memo):
        return copy.deepcopy(self.here(), memo)


def _passed_on(name: str) -> Callable:
    def method(self, *args, **kwargs):
        return getattr(self.here(), name)(*args, **kwargs)

    return method


for _name in (
    "__contains__", "__delitem__", "__eq__", "__getitem__", "__iter__", "__len__", "__repr__",
    "__setitem__", "__reversed__", "__or__", "__ror__", "__ior__", "clear", "copy", "get", "items",
    "keys", "pop", "popitem", "setdefault", "update", "values",
):  # fmt: skip
    setattr(_Registry, _name, _passed_on(_name))


class OwnTensors:
    """Within, this thread finds `instead(tensor)` for each parameter and buffer of `module`."""

    def __init__(
        self, module: nn.Module, instead: Callable[[torch.Tensor], Any] = lambda tensor: tensor
    ):
        self._module, self._instead = module, instead
        self._put: list[tuple[nn.Module, str, dict, _Registry, str]] = []
        self._marked: list[dict[str, Any]] = []

    def __enter__(self) -> "OwnTensors":
        try:
            self._put_in_place()
        except BaseException:
            self.__exit__()
            raise
        self.mark()
        return self

    def _put_in_place(self) -> None:
        for path, child in self._module.named_modules():
            plain = surroundings.unwrapped(child)
            for name in ("_parameters", "_buffers"):
                original = vars(plain)[name]
                own = {k: t if t is None else self._instead(t) for k, t in original.items()}
                registry = _Registry(original, own)
                self._put.append((child, name, original, registry, path))
                vars(child)[name] = vars(plain)[name] = registry

    def __exit__(self, *_error: Any) -> None:
        for child, name, original, _, _ in self._put:
            vars(child)[name] = vars(surroundings.unwrapped(child))[name] = original

    def mark(self) -> None:
        """What is there now is what `written` compares with. It has the attributes that somebody
        gave the tensors that it stands for."""
        for *_, registry, _ in self._put:
            for name, own in registry.own.items():
                if name in registry.original:
                    _give_attributes(registry.original[name], own)
        self._marked = [dict(registry.own) for *_, registry, _ in self._put]

    def written(self) -> list[tuple[str, str, Any, Any]]:
        """("_parameters" or "_buffers", path, tensor before, value now) of what was assigned."""
        found = []
        for (_, kind, _, registry, path), before in zip(self._put, self._marked, strict=True):
            dot = f"{path}." if path else ""
            for name in {**before, **registry.own}:
                was, now = before.get(name, MISSING), registry.own.get(name, MISSING)
                if was is not now:
                    found.append((kind, f"{dot}{name}", was, now))
        return found

    def found(self) -> list[torch.Tensor]:
        """The tensors that are there now."""
        return [t for *_, own, _ in self._put for t in own.own.values() if t is not None]


def _give_attributes(tensor: torch.Tensor | None, own: torch.Tensor | None) -> None:
    if tensor is not None and own is not None and own is not tensor:
        given = vars(tensor).items()  # those of torch's own compiler are of the real tensor alone
        vars(own).update((name, value) for name, value in given if not name.startswith("_dynamo"))


class TensorAttributes:
    """What attributes tensors have when they are noted."""

    def __init__(self):
        self._noted: list[tuple[torch.Tensor, dict[str, Any]]] = []

    def note(self, tensors: Iterable[torch.Tensor], usual: Container[str] | None = None) -> None:
        """`usual`: those that such a tensor has from its making."""
        for tensor in tensors:
            found = vars(tensor).items()
            self._noted.append((tensor, {n: v for n, v in found if usual is None or n in usual}))

    def tensors(self) -> list[torch.Tensor]:
        return [tensor for tensor, _ in self._noted]

    def changed(self) -> bool:
        """Whether one was set to something else since, or taken away."""
        return any(_differ(vars(tensor), before) for tensor, before in self._noted)


def _differ(now: dict[str, Any], before: dict[str, Any]) -> bool:
    names = [n for n in (now.keys() | before.keys()) if not is_torchs(n)]
    return not all(same(before.get(n, MISSING), now.get(n, MISSING)) for n in names)


def is_torchs(name: str) -> bool:
    """Whether such an attribute is what traced tensors remember, or what stands for Tensor.data."""
    known = name in OF_CACHES or name == THROUGH_DATA
    return known or name.startswith("_dynamo") or "_memo" in name or "_capsule" in name


def forget(mode: FakeTensorMode) -> None:
    """Drops what `mode` remembers of real tensors: while it refers to them, however weakly, they
    cannot be swapped."""
    converter = mode.fake_tensor_converter.meta_converter
    for memory in (
        converter.tensor_memo, converter.storage_memo,
        converter.describer.lookup_tensor, converter.describer.lookup_storage,
    ):  # fmt: skip
        memory.clear()
