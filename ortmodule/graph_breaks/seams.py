"""A module whose submodules communicate: its own forward runs as Python, and what lies between two
communications is captured like a module of its own.

DistributedDataParallel and fully_shard exchange parameters and gradients in hooks and in their own
forward, which no graph holds. fallback.py goes this way when admit.py has met one inside.
"""

import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from ..capture.admit import communicates, in_hooks
from ..errors import NotCapturable
from ..explain import Fallback, Report
from .parts import merged


class Seams:
    """Calls `module.forward`, and through the engine each largest submodule with nothing inside
    that communicates.

    engine(module) gives the Dispatcher of one. `all`: the engines; `why`: no whole capture.
    """

    def __init__(self, module: nn.Module, engine: Callable[[nn.Module], Any]):
        self.refusal: NotCapturable | None = None
        self.why: dict[Fallback, None] = {}
        self._module, self._engine = module, engine
        self._engines: dict[nn.Module, Any] = {}
        self._known: list[nn.Module] = []

    @property
    def all(self) -> list[Any]:
        return list(self._engines.values())

    def hold(self) -> bool:
        """Always; submodules that are new get an engine."""
        now = list(self._module.modules())
        if len(now) != len(self._known) or any(
            a is not b for a, b in zip(now, self._known, strict=True)
        ):
            self._known = now
            before, self._engines = self._engines, {}
            for child in _between(self._module):
                self._engines[child] = before.get(child) or self._engine(child)
                child.forward = Through(child, self._engines[child])
        return True

    def count(self) -> int:
        """Counts the captures so far."""
        return sum(engine.captured() for engine in self._engines.values())

    def call(self, args: tuple, kwargs: dict) -> Any:
        """module.forward(*args, **kwargs)."""
        return self._module.forward(*args, **kwargs)

    def whole(self) -> bool:
        return False

    def added_to(self, report: Report) -> Report:
        """The report of the module with what ran between the seams."""
        return merged(report, self.all, parts=self.all, not_whole=list(self.why))


class Through:
    """A module's forward by the engine, while the wrapper that has it lives. A copy is forward."""

    def __init__(self, module: nn.Module, engine: Any):
        self._module, self._engine = weakref.ref(module), weakref.ref(engine)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module, engine = self._module(), self._engine()
        if engine is None:
            return _plain(module)(*args, **kwargs)
        del module.forward  # what looks at the module meanwhile meets its own
        try:
            return engine.call(args, kwargs)
        finally:
            module.forward = self

    def __reduce__(self):
        return _plain, (self._module(),)


def _plain(module: nn.Module) -> types.MethodType:
    return types.MethodType(type(module).forward, module)


def _between(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        inside = any(communicates(m) for m in child.modules() if m is not child)
        alone = not inside and (communicates(child) is None or in_hooks(child))
        if not (alone and _has_own_forward(child)):
            yield from _between(child)
        elif any(True for _ in child.parameters()):
            yield child


def _has_own_forward(module: nn.Module) -> bool:
    """Whether calls run its class's forward: no container, no wrapper, none that is patched."""
    patched = not isinstance(vars(module).get("forward"), Through)
    return not (
        type(module).forward is nn.Module.forward
        or getattr(type(module), "is_ortmodule", False)
        or (patched and "forward" in vars(module))
    )
