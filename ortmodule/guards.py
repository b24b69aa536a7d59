"""What a capture relies on, and the checks that it still holds.

Snapshot is taken by capture.py (around the captured forward, and kept with the capture);
module.py calls its `changed` before every step and compares `call_key`s.
"""

import dataclasses
import enum
import types
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from . import _native, tree

_SCALARS = (
    type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout,
    torch.memory_format, enum.Enum, range, slice,
)  # fmt: skip
# What torch's recurrent layers keep of their own parameters, anew whenever those are replaced.
_CACHES = {"_flat_weights", "_flat_weight_refs"}
# Reached through an attribute, these change for reasons of their own and no forward reads them.
_OPAQUE = (
    type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType,
    torch.optim.Optimizer, torch.Generator,
)  # fmt: skip
_OPAQUE_PACKAGES = {"logging", "threading", "_thread", "weakref", "concurrent", "asyncio"}
_MISSING = object()
# Hooks that run with every module: one that is set after a capture would be missed.
GLOBAL_HOOKS = (
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
)


@dataclasses.dataclass(slots=True)
class Watched:
    """A dict, list or set of attributes: the object and a shallow copy."""

    path: str
    container: Any
    copy: Any
    is_buffers: bool
    ignored: Any


class Snapshot:
    """The attributes, parameters and buffers of a module and all it reaches, as they are now.

    `changed()` is None while nothing differs, else a sentence naming what does; `restore()` puts
    every container back. `tensors` maps each tensor attribute found, by id, to its path.
    The C++ Watch compares pointers in microseconds; only when one differs are values looked at.
    """

    def __init__(self, module: nn.Module, with_tensors: bool = True):
        self.watched: list[Watched] = []
        self.tensors: dict[int, tuple[str, torch.Tensor]] = {}
        self._seen: set[int] = set()
        self._watch_module(module)
        for name in GLOBAL_HOOKS:
            self._watch(getattr(torch_module, name), f"torch.nn.modules.module.{name}")
        self._facts: list[tuple] = []
        self._watch_pointers = None
        if with_tensors:
            tensors = [t for _, t in self.tensors.values()]
            self._facts = [(t, *_facts(t)) for t in tensors]
            containers = [w.container for w in self.watched]
            self._watch_pointers = _native.torch_bridge().Watch(containers, tensors)

    def changed(self) -> str | None:
        """The first difference, as `module.attribute was 3, is 4`; None when there is none."""
        if self._watch_pointers.unchanged():
            return None
        difference = next(filter(None, map(_difference, self.watched)), None)
        difference = difference or self._changed_tensor()
        if difference is None:  # other objects of the same values
            for w in self.watched:
                w.copy = _shallow(w.container)
            self._watch_pointers.refresh()
        return difference

    def _changed_tensor(self) -> str | None:
        for tensor, *facts in self._facts:
            if facts != _facts(tensor):
                path = self.tensors[id(tensor)][0]
                names = ("dtype", "sizes", "strides", "requires_grad")
                for name, was, now in zip(names, facts, _facts(tensor), strict=False):
                    if was != now:
                        return f"{name} of {path} was {was}, is {now}"
        return None

    def writes(self) -> list[str]:
        """Every container of attributes, buffers aside, that differs: its first difference."""
        found = (_difference(w) for w in self.watched if not w.is_buffers)
        return [difference for difference in found if difference]

    def plain_writes(self) -> list[tuple[dict, Any, Any]] | None:
        """The differences as (dict, key, new scalar), or None when one is anything else."""
        found = []
        for w in self.watched:
            if w.is_buffers or not _difference(w):
                continue
            if not isinstance(w.container, dict) or any(k not in w.container for k in w.copy):
                return None
            for key, value in w.container.items():
                if not _same(w.copy.get(key, _MISSING), value):
                    if not isinstance(value, _SCALARS):
                        return None
                    found.append((w.container, key, value))
        return found

    def written_buffers(self) -> list[tuple[str, torch.Tensor, Any]]:
        """(path, tensor before, value now) of each registered buffer that was assigned anew."""
        return [
            (f"{w.path}.{name}" if w.path else name, before, w.container.get(name))
            for w in self.watched
            if w.is_buffers
            for name, before in w.copy.items()
            if w.container.get(name) is not before
        ]

    def restore(self) -> None:
        """Puts the items of every watched container back in place."""
        for w in self.watched:
            if isinstance(w.container, (dict, set)):
                w.container.clear()
                w.container.update(w.copy)
            elif isinstance(w.container, list):
                w.container[:] = w.copy

    def _watch_module(self, module: nn.Module, path: str = "") -> None:
        if id(module) in self._seen:
            return
        self._seen.add(id(module))
        state = vars(module)
        self._watch(state, path, ignored=_CACHES if isinstance(module, nn.RNNBase) else frozenset())
        dot = f"{path}." if path else ""
        for name, value in state.items():
            if name == "_modules":
                self._watch(value, path)
                for child_name, child in value.items():
                    if child is not None:
                        self._watch_module(child, f"{dot}{child_name}")
            elif name in ("_parameters", "_buffers"):
                self._watch(value, path, is_buffers=name == "_buffers")
                for tensor_name, tensor in value.items():
                    self._reach(tensor, f"{dot}{tensor_name}")
            elif not (name in _CACHES and isinstance(module, nn.RNNBase)):
                self._reach(value, f"{dot}{name}")

    def _watch(
        self, container: Any, path: str, is_buffers: bool = False, ignored: Any = frozenset()
    ) -> None:
        copy = _shallow(container)
        self.watched.append(Watched(path, container, copy, is_buffers, ignored))

    def _reach(self, value: Any, path: str) -> None:
        """Watches what hangs on an attribute: containers, plain objects, tensors, modules."""
        if isinstance(value, torch.Tensor):
            self.tensors.setdefault(id(value), (path, value))
            return
        if isinstance(value, nn.Module):
            self._watch_module(value, path)
            return
        if isinstance(value, (_SCALARS, _OPAQUE)) or id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, (dict, list, tuple, set)):
            if not isinstance(value, tuple):
                self._watch(value, path)
            for key, item in _named_values(value):
                self._reach(item, f"{path}[{key!r}]")
        elif type(value).__module__.partition(".")[0] not in _OPAQUE_PACKAGES:
            state = getattr(value, "__dict__", None)
            if isinstance(state, dict):
                self._watch(state, path)
                for key, item in list(state.items()):
                    self._reach(item, f"{path}.{key}")


def call_key(spec: Any, tensors: list[torch.Tensor]) -> tuple:
    """The hashable part of a call that a capture is for: all but the sizes.

    Tree with its constants, per tensor dtype, device, rank, requires_grad and contiguity, which
    tensors are the same or share memory, grad and inference mode, autocast, default dtype.
    """
    first: dict[int, int] = {}
    same = tuple(first.setdefault(id(t), i) for i, t in enumerate(tensors))
    storages: dict[int, int] = {}
    shared = tuple(
        storages.setdefault(_storage(t), i) for i, t in enumerate(tensors) if same[i] == i
    )
    facts = tuple(
        (t.dtype, t.device, t.dim(), t.requires_grad, _is_contiguous(t), type(t)) for t in tensors
    )
    modes = (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled("cuda"),
        torch.get_default_dtype(),
    )
    return spec, facts, same, shared, modes


def _storage(tensor: torch.Tensor) -> int:
    """A key for the memory a tensor lies in; empty and exotic tensors share nothing."""
    try:
        return tensor.untyped_storage().data_ptr() or -id(tensor)
    except (NotImplementedError, RuntimeError):
        return -id(tensor)


def _is_contiguous(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and tensor.is_contiguous()


def _facts(tensor: torch.Tensor) -> list:
    strided = tensor.layout == torch.strided
    strides = tensor.stride() if strided else None
    return [tensor.dtype, tensor.shape, strides, tensor.requires_grad]


def _named_values(container: Any) -> list[tuple[Any, Any]]:
    if isinstance(container, dict):
        return list(container.items())
    return list(enumerate(container))


def _shallow(container: Any) -> Any:
    """A copy that no subclass's own constructor has a say in."""
    for base in (dict, list, set, tuple):
        if isinstance(container, base):
            return base(container.items() if base is dict else container)
    raise TypeError(type(container))


def _same(before: Any, now: Any) -> bool:
    if before is now:
        return True
    if type(before) is not type(now):
        return False
    if isinstance(before, _SCALARS):
        return tree.Const(before) == tree.Const(now)
    if isinstance(before, types.MethodType):  # built anew by each access
        return before == now
    return False


def _difference(w: Watched) -> str | None:
    if isinstance(w.container, set):
        return None if w.container == w.copy else f"{w.path} was {w.copy}, is {w.container}"
    is_dict = isinstance(w.container, dict)
    before, now = dict(_named_values(w.copy)), dict(_named_values(w.container))
    for key in [*before, *(k for k in now if k not in before)]:
        was, value = before.get(key, _MISSING), now.get(key, _MISSING)
        if key in w.ignored:
            continue
        if was is _MISSING or value is _MISSING or not _same(was, value):
            name = _item_path(w.path, key, is_dict)
            return f"{name} was {_short(was)}, is {_short(value)}"
    return None


def _item_path(path: str, key: Any, is_dict: bool) -> str:
    if is_dict and isinstance(key, str) and key.isidentifier():
        return f"{path}.{key}" if path else key
    return f"{path}[{key!r}]"


def _short(value: Any) -> str:
    if value is _MISSING:
        return "not there"
    if isinstance(value, _SCALARS):
        return repr(value)[:80]
    return f"a {type(value).__name__}"
