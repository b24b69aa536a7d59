"""What a capture relies on, and the checks that it still holds.

stages.py makes a Snapshot for each capture; compiled.py asks it before every call.
"""

import abc
import contextvars
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import nn

from .. import _native
from . import identities, state_kinds
from .observation import Names
from .state_walk import Instance, StateWalk, Watched, difference, item_path


class Snapshot:
    """All that a module's forward reads, as it is now.

    `roots` are the functions that forward entered, as (function or None, code); `names` what they
    look up, None: everything; `classes`: of the arguments. `changed()` is None while nothing
    differs, else a sentence naming what does. `tensors` maps each tensor found, by id, to its path.
    `replaced` collects, by id, the registered tensors for which others of the same facts stand now,
    until it is emptied. Several threads may ask `unchanged` and `aliases` at once; all else is for
    one at a time.
    """

    def __init__(
        self,
        module: nn.Module,
        roots: Iterable[tuple[types.FunctionType | None, types.CodeType]] = (),
        names: Names | None = None,
        classes: Iterable[type] = (),
    ):
        self.replaced: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._module, self.roots, self._names = module, list(roots), names
        self._classes = list(classes)
        self._held = self._take()

    @property
    def tensors(self) -> dict[int, tuple[str, torch.Tensor]]:
        return self._held.walk.tensors

    def unchanged(self) -> bool:
        """Whether nothing was written to, and no tensor waits to be taken up."""
        return self._held.watch.unchanged() and not self.replaced

    def changed(self) -> str | None:
        """The first difference, as `module.attribute was 3, is 4`; None when there is none."""
        if self._held.watch.unchanged():
            return None
        found = next(filter(None, map(self._difference, self._held.walk.watched)), None)
        found = found or self._held.walk.changed_class() or self._changed_tensor() or self._merged()
        if found is None:  # other objects of the same values
            now = self._take()
            before, after = _registered(self._held.walk), _registered(now.walk)
            for path, tensor in before.items():
                if after[path] is not tensor:
                    self.replaced[id(tensor)] = (tensor, after[path])
            self._held = now  # last: who looks meanwhile sees a change
        return found

    def again(self) -> "Snapshot":
        """Of the same, as it is now."""
        return Snapshot(self._module, self.roots, self._names, self._classes)

    def aliases(self, tensors: list[torch.Tensor]) -> list[int]:
        """For each tensor of a call which of the module's it is or shares memory with; -1: none."""
        return self._held.watch.aliases(tensors)

    def refers_weakly(self) -> str | None:
        return self._held.walk.refers_weakly()

    def reaches(self, containers: Iterable[Any]) -> bool:
        """Whether one of a call's containers is the module's too."""
        return any(map(self._held.walk.found, containers))

    def kept_at(self, tensor: torch.Tensor) -> str | None:
        """Where a tensor is found that is neither a parameter nor a buffer; None: it is not."""
        path, _ = self.tensors.get(id(tensor), (None, None))
        registered = any(
            t is tensor
            for w in self._held.walk.watched
            if w.registry in ("_parameters", "_buffers")
            for _, t in w.items
        )
        return None if registered else path

    def registered_elsewhere(self) -> str | None:
        """Where a registered tensor is found besides its registry; None: none is."""
        watched = self._held.walk.watched
        registered = {id(t) for t in _registered(self._held.walk).values()}
        others = ((w, key, t) for w in watched if w.registry is None for key, t in w.items)
        return next((item_path(w, key) for w, key, t in others if id(t) in registered), None)

    def put(self, registry: dict, key: str, old: torch.Tensor, new: torch.Tensor) -> None:
        """The capture's own run has put `new` where `old` was."""
        walk, facts = self._held.walk, self._held.facts
        for w in walk.watched:
            if w.holder is registry:
                w.items = [(k, new if k == key else t) for k, t in w.items]
        path, _ = walk.tensors.pop(id(old), (key, None))
        walk.tensors[id(new)] = path, new
        if walk.instances.pop(id(old), None) is not None:
            walk.instances[id(new)] = Instance(path, new, type(new), vars(new))
        facts[id(new)] = facts.pop(id(old), _facts(new))
        self._held.watch.put(registry, old, new)

    def _take(self) -> "_Held":
        walk = self._walk()
        while walk.grew:
            walk = self._walk()
        seen = identities.asked_of_values(self.roots)
        for w in walk.watched:
            w.seen = seen
        facts = {id(t): _facts(t) for _, t in walk.tensors.values()}
        return _Held(walk, facts, _watch_of(walk))

    def _walk(self) -> StateWalk:
        walk = StateWalk(self._names)
        walk.add_module(self._module)
        for function, code in self.roots:
            walk.add_function(function, code)
        walk.add_classes(self._classes)
        return walk

    def _difference(self, w: Watched) -> str | None:
        if w.registry not in ("_parameters", "_buffers"):
            return difference(w)
        before, now = dict(w.items), w.now()
        if list(before) == [k for k, _ in now] and all(
            self._stands_for(before[k], t) for k, t in now
        ):
            return None
        return difference(w)

    def _stands_for(self, was: Any, now: Any) -> bool:
        """Whether a registered tensor may be replaced by another: nothing else refers to either."""
        if was is now:
            return True
        if was is None or now is None or type(was) is not type(now):
            return False
        walk, facts = self._held.walk, self._held.facts
        if id(now) in facts:
            return False
        alone = sum(t is was for w in walk.watched for _, t in w.items) == 1
        return alone and facts[id(was)] == _facts(now) and not vars(now)

    def _merged(self) -> str | None:
        """Registered tensors that are one now, though those that they stand for were not."""
        stood: dict[int, tuple[int, str]] = {}
        for w in self._held.walk.watched:
            if w.registry in ("_parameters", "_buffers"):
                for (key, was), (_, now) in zip(w.items, w.now(), strict=True):
                    path = f"{w.path}.{key}" if w.path else key
                    first = stood.setdefault(id(now), (id(was), path))
                    if now is not None and first[0] != id(was):
                        return f"{path} was a tensor of its own, is {first[1]}"
        return None

    def _changed_tensor(self) -> str | None:
        names = ("type", "dtype", "device", "sizes", "strides", "requires_grad")
        for path, tensor in self._held.walk.tensors.values():
            was, now = self._held.facts[id(tensor)], _facts(tensor)
            for name, before, after in zip(names, was, now, strict=True):
                if before != after:
                    return f"{name} of {path} was {before}, is {after}"
        return None


class _Held(NamedTuple):
    """What was found, the tensors' facts by id, and what tells quickly that it is as it was."""

    walk: StateWalk
    facts: dict[int, tuple]
    watch: Any


def _registered(walk: StateWalk) -> dict[str, torch.Tensor]:
    registries = (w for w in walk.watched if w.registry in ("_parameters", "_buffers"))
    return {f"{w.path}.{k}": t for w in registries for k, t in w.items if t is not None}


def _watch_of(walk: StateWalk) -> Any:
    """The C++ half: what it cannot compare by pointers, a Python function does."""
    dicts, sequences, cells, members, registries, slow = [], [], [], [], [], []
    for w in walk.watched:
        moved = w.ordered and isinstance(w.holder, OrderedDict)  # no pointer tells its order
        if isinstance(w.holder, dict) and not moved:
            named = isinstance(w.keys, set)
            names = w.keys.known if isinstance(w.keys, Names) and not w.keys.every else None
            dicts.append((w.holder, list(w.keys) if named else None, names))
        elif isinstance(w.holder, (list, set)):
            sequences.append(w.holder)
        elif isinstance(w.holder, (types.CellType, contextvars.ContextVar)):
            cells.append(w.holder)
        elif type(w.holder) in state_kinds.MEMBERS:
            members += [(w.holder, name) for name in state_kinds.MEMBERS[type(w.holder)]]
        elif w.kind is state_kinds.BASES:
            members.append((w.holder, "__bases__"))
        elif w.kind is state_kinds.REGISTRY:
            registries.append(w)
        elif w.kind.changes and not isinstance(w.holder, (type, types.FunctionType)):
            slow.append(w)
    tensors = [t for _, t in walk.tensors.values()]
    functions = list(walk.functions)
    instances = [(each.value, each.state) for each in walk.instances.values()]
    return _native.torch_bridge().Watch(
        dicts, sequences, cells, members, functions, list(walk.classes), instances, tensors,
        unchanged(registries, slow) if registries or slow else None,
    )  # fmt: skip


def unchanged(registries: list[Watched], others: list[Watched]) -> Callable[[], bool]:
    """What Python compares. One number tells whether any class was registered anywhere."""
    token = abc.get_cache_token()

    def holds() -> bool:
        if registries and abc.get_cache_token() != token and any(map(difference, registries)):
            return False
        return not any(map(difference, others))

    return holds


def _facts(tensor: torch.Tensor) -> tuple:
    if tensor.is_nested or isinstance(tensor, nn.parameter.UninitializedTensorMixin):
        return type(tensor), tensor.dtype, tensor.device, None, None, tensor.requires_grad
    strided = tensor.layout == torch.strided
    strides = tensor.stride() if strided else None
    kind, device = type(tensor), tensor.device
    return kind, tensor.dtype, device, tensor.shape, strides, tensor.requires_grad
