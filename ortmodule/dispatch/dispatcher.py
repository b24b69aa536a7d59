"""The way of a call of one module: to the capture that serves it, to a new one, or to fallback.py.

module.py's wrapper has a Dispatcher and asks it at every call; it keeps nothing of a call's
tensors.
"""

import contextlib
import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import nn

from .. import _native, clock, devices
from ..calls import tree
from ..calls.call import Call, CallFacts, describe
from ..errors import NotCapturable, WarmUp
from ..explain import Report
from ..fork import guarded
from ..guards import surroundings
from ..options import Options
from .account import Account
from .compiled import CompiledCapture
from .fallback import FallbackRunner
from .making import Maker, PartContext
from .search import Refused, Search


class Dispatcher:
    """Calls `module` through the engine where it can, in parts where it cannot whole, else eagerly,
    and remembers why.

    part: what it is of another module.
    """

    def __init__(self, module: nn.Module, options: Options, part: PartContext | None = None):
        devices.prepare()
        self.module, self.options = module, options
        self.last_call: CallFacts | None = None
        self._search = Search(module, patient=options.fallback == "report")
        self._account = Account()
        self._latest: CompiledCapture | None = None
        self._repeat: _Repeat | None = None
        self._lock = guarded(threading.RLock())
        self._eager = threading.local()
        self._clock = clock.Clock()
        self._anything = _native.torch_bridge().anything
        self._maker = Maker(module, options, part, self._search, self._account)
        self._fall_back = FallbackRunner(
            module, options, part, self._search, self._account, self._lock,
            lambda other, part: Dispatcher(other, options, part),
        )  # fmt: skip
        self.traced_by_dynamo = _report_of_dynamo(weakref.ref(self))

    @contextlib.contextmanager
    def in_eager(self) -> Iterator[None]:
        """Within, this thread's calls run eagerly."""
        before = getattr(self._eager, "on", False)
        self._eager.on = True
        try:
            with surroundings.aside():
                yield
        finally:
            self._eager.on = before

    def call(self, args: tuple, kwargs: dict) -> Any:
        """module(*args, **kwargs), but for the hooks of the module itself."""
        if not self.options.profile:
            return self._call(args, kwargs)
        with self._clock.call():
            return self._call(args, kwargs)

    def _call(self, args: tuple, kwargs: dict) -> Any:
        if self._anything():
            if getattr(self._eager, "on", False) or surroundings.in_capture():
                return self.module.forward(*args, **kwargs)
            around = surroundings.reason()
            if around is not None:
                return self._fall_back.in_eager(NotCapturable(around), None, args, kwargs)
        repeat = self._repeat
        tensors = None if repeat is None else repeat.call.match(args, kwargs)
        if tensors is not None and repeat.compiled is None:
            if repeat.refused.still_holds():
                return self._fall_back.call(repeat.refused.error, repeat.key, args, kwargs)
        elif tensors is not None:
            tensors += repeat.numbers
            if repeat.compiled.holds(tensors) or self._fits(repeat.compiled, tensors):
                return self._run(repeat.compiled, tensors, repeat.binding, args, kwargs, ())
        try:
            described = describe(args, kwargs)
        except NotCapturable as error:
            return self._fall_back.call(error, None, args, kwargs)
        facts = described.facts()
        result = self._served(described, args, kwargs)
        self.last_call = facts
        return result

    def _served(self, described: Call, args: tuple, kwargs: dict) -> Any:
        with self._lock:
            described = self._search.generalise(described)
            found = self._found(described)
            if found is None:  # no capture holds its numbers as symbols
                described = described.plain
                found = self._found(described)
        if isinstance(found, WarmUp):
            return self.module.forward(*args, **kwargs)
        if isinstance(found, NotCapturable):
            self._repeat = self._repeat_of_refused(described, args, kwargs)
            return self._fall_back.call(found, described.key, args, kwargs)
        compiled, binding = found
        self._latest = compiled
        repeat = self._repeat_of(described, compiled, binding, args, kwargs)
        result = self._run(compiled, described.tensors, binding, args, kwargs, described.containers)
        self._repeat = repeat
        return result

    @staticmethod
    def _repeat_of(
        call: Call, compiled: CompiledCapture, binding: dict, args: tuple, kwargs: dict
    ) -> "_Repeat | None":
        """What a call like this one needs no second look for; None: each needs its own."""
        if compiled.capture.needs_containers() or tree.has_met(call.spec):
            return None
        repeated = _native.torch_bridge().Repeat.of(args, kwargs)
        if repeated is None:
            return None
        numbers = call.tensors[len(call.tensors) - len(call.numbers) :]
        return _Repeat(repeated, compiled, binding, numbers)

    def _repeat_of_refused(self, call: Call, args: tuple, kwargs: dict) -> "_Repeat | None":
        refused = self._search.refused(call.key)
        if refused is None:
            return None
        repeated = _native.torch_bridge().Repeat.of(args, kwargs)
        return repeated and _Repeat(repeated, None, {}, [], refused, call.key)

    def _found(self, call: Call) -> tuple[CompiledCapture, dict[str, int]] | NotCapturable | None:
        """What serves the call, captured where nothing does yet, or why eager makes it; None: it
        has no capture with symbols for its numbers."""
        found = self._search.find(call)
        if found is not None:
            return found
        foreign = surroundings.foreign_parameter(self.module)
        if foreign is not None:
            return NotCapturable(foreign)
        return self._maker.make(call)

    def _fits(self, compiled: CompiledCapture, tensors: list) -> bool:
        with self._lock:
            return compiled.fits(tensors)

    def _run(
        self, compiled: CompiledCapture, tensors: list, binding: dict, args: tuple, kwargs: dict,
        containers: Any,
    ):  # fmt: skip
        try:
            outputs = compiled.run(tensors) if not self.options.profile else compiled.timed(tensors)
        except _native.torch_bridge().Error as error:  # as an index out of range: eager's own error
            if isinstance(error, _native.torch_bridge().DeferredError):
                raise  # of an earlier call: nobody can make that again
            if compiled.capture.communicates:
                raise  # the other ranks would take no part in what eager does again
            refusal = NotCapturable(f"the engine: {error}")
            return self._fall_back.in_eager(refusal, None, args, kwargs)
        compiled.calls += 1
        if not compiled.ran:  # before that it may be a call that eager refuses too
            with self._lock:
                self._account.ran(compiled)
        result = compiled.capture.result(outputs, tensors, binding, containers)
        if compiled.capture.assigned:
            with self._lock:
                compiled.assign(outputs)
        return result

    def report(self, error: NotCapturable) -> None:
        """Lists what ran eagerly; the first warns."""
        self._fall_back.report(error)

    def has_captures(self) -> bool:
        """Whether any call went through the engine."""
        return self._account.captures > 0

    def captured(self) -> int:
        """How many captures ran so far, its parts' among them."""
        own = self._account.captures
        parts = self._fall_back.parts
        return own + (parts.count() if parts is not None else 0)

    def communicates(self) -> bool:
        """Whether a graph captured so far has collectives."""
        with self._lock:
            own = any(compiled.capture.communicates for compiled in self._search.captures())
            parts = self._fall_back.all_parts()
        return own or any(part.communicates() for part in parts)

    def graphs(self) -> list[str]:
        """The graphs captured so far as text, in the order made."""
        with self._lock:
            own = [compiled.capture.graph.text() for compiled in reversed(self._search.captures())]
            parts = self._fall_back.all_parts()
        return own + [text for part in parts for text in part.graphs()]

    def explain(self) -> Report:
        """What ran so far; raises what a device found wrong in a call and nobody was told."""
        with self._lock:
            captures = self._search.captures()
        for compiled in captures:
            compiled.runner.raise_deferred()
        with self._lock:
            found = self._fall_back.added_to(self._account.report(self._search, self._latest))
            return dataclasses.replace(found, outside_share=self._clock.outside_share())


def _report_of_dynamo(dispatcher: "weakref.ref[Dispatcher]") -> Callable[[Any], None]:
    """What Dynamo calls while it traces a wrapper; it may have no cell that Dynamo would make."""

    def report(_context: Any) -> None:
        dispatcher().report(NotCapturable("Dynamo traces the module"))

    return report


class _Repeat(NamedTuple):
    """The latest call, and what served it or, as it was refused, why and under which key: one like
    it needs no second look."""

    call: Any
    compiled: CompiledCapture | None
    binding: dict[str, int]
    numbers: list
    refused: Refused | None = None
    key: tuple | None = None
