"""The way of a call through one module's captures: served by one, captured first, or run eagerly.

module.py's wrapper has a Captures and asks it at every call; it keeps nothing of a call's tensors.
"""

import collections
import contextlib
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import nn

from . import _native, devices, surroundings
from .call import Call, StandIn, describe
from .capture import capture
from .errors import Defect, NotCapturable, WarmUp, let_go
from .explain import Fallback, Report
from .kept import Kept
from .options import Options
from .rehearse import eager_error
from .search import Search

# For benchmarks/guards.py alone: False leaves out what a call compares before it is served.
GUARDED = True


class Captures:
    """Calls `module` through the engine where it can, else eagerly, and remembers why."""

    def __init__(self, module: nn.Module, options: Options):
        devices.prepare()
        self.module, self.options = module, options
        self.last_call: StandIn | None = None
        self._search = Search(module, patient=options.fallback != "error")
        self._warm_ups: dict[str, None] = {}
        self._fallbacks: dict[Fallback, None] = {}
        self._on_aten: dict[Fallback, None] = {}
        self._captures = 0
        self._latest: Kept | None = None
        self._repeat: _Repeat | None = None
        self._lock = threading.RLock()
        self._eager = threading.local()
        self._anything = _native.torch_bridge().anything
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
        if GUARDED and self._anything():
            if getattr(self._eager, "on", False) or surroundings.in_capture():
                return self.module.forward(*args, **kwargs)
            around = surroundings.reason()
            if around is not None:
                return self._fall_back(NotCapturable(around), None, args, kwargs)
        repeat = self._repeat
        if repeat is not None:
            tensors = repeat.call.match(args, kwargs)
            kept = repeat.kept
            same = tensors is not None and (not GUARDED or kept.holds(tensors))
            if same or (tensors is not None and self._fits(kept, tensors)):
                return self._run(kept, tensors, repeat.binding, args, kwargs)
        try:
            described = describe(args, kwargs)
        except NotCapturable as error:
            return self._fall_back(error, None, args, kwargs)
        self.last_call = described.stand_in()
        with self._lock:
            found = self._found(described)
        if isinstance(found, WarmUp):
            return self.module.forward(*args, **kwargs)
        if isinstance(found, NotCapturable):
            return self._fall_back(found, described.key, args, kwargs)
        kept, binding = found
        self._latest = kept
        repeated = _native.torch_bridge().Repeat.of(args, kwargs)
        self._repeat = _Repeat(repeated, kept, binding) if repeated is not None else None
        return self._run(kept, described.tensors, binding, args, kwargs)

    def _found(self, call: Call) -> tuple[Kept, dict[str, int]] | NotCapturable:
        """What serves the call, captured where nothing does yet, or why eager makes it."""
        found = self._search.find(call)
        if found is not None:
            return found
        foreign = surroundings.foreign_parameter(self.module)
        return NotCapturable(foreign) if foreign is not None else self._capture(call)

    def _fits(self, kept: Kept, tensors: list) -> bool:
        with self._lock:
            return kept.fits(tensors)

    def _run(self, kept: Kept, tensors: list, binding: dict, args: tuple, kwargs: dict):
        try:
            outputs = kept.run(tensors, self.options.profile)
        except _native.torch_bridge().Error as error:  # as an index out of range: eager's own error
            return self._fall_back(NotCapturable(f"the engine: {error}"), None, args, kwargs)
        kept.calls += 1
        if not kept.ran:  # before that it may be a call that eager refuses too
            with self._lock:
                self._captures += not kept.ran
                kept.ran = True
                self._on_aten.update(dict.fromkeys(kept.operators()))
        result = kept.capture.result(outputs, tensors, binding)
        if kept.capture.assigned:
            with self._lock:
                kept.assign(outputs)
        return result

    def _capture(self, call: Call):
        try:
            captured = capture(self.module, call, _native.core().Graph)
            kept = Kept(captured, self.options)
            kept.compile(call.tensors)
        except WarmUp as error:
            if not self._search.warm_up(call.key):
                refusal = NotCapturable(error.reason, **error.place())
                return self._search.refuse(call.key, refusal)
            let_go(error)
            self._warm_ups.setdefault(str(error))
            return error.with_traceback(None)
        except NotCapturable as error:
            return self._search.refuse(call.key, error)
        except Exception as error:  # a defect of ours costs the speed, not the training
            if self.options.for_engine().check:
                raise
            let_go(error)
            reason = f"a defect of the capture: {type(error).__name__}: {error}"
            refusal = error.refusal if isinstance(error, Defect) else NotCapturable(reason)
            return self._search.refuse(call.key, refusal)
        self._search.add(kept)
        return kept, captured.bind(call.tensors)

    def _forget_refusal(self, key: tuple | None) -> None:
        with self._lock:
            self._search.forget_refusal(key)

    def _fall_back(self, error: NotCapturable, key: tuple | None, args: tuple, kwargs: dict):
        """Runs eagerly; what eager refuses too is the caller's mistake: nothing to report."""
        if self.options.fallback == "error":
            mistake = eager_error(self.module, args, kwargs)
            if mistake is not None:
                self._forget_refusal(key)
            raise mistake or error
        try:
            result = self.module.forward(*args, **kwargs)
        except Exception:
            self._forget_refusal(key)
            raise
        self.report(error)
        return result

    def report(self, error: NotCapturable) -> None:
        """Lists what ran eagerly; the first warns."""
        fallback = Fallback(error.op, error.module, error.file, error.line, error.reason)
        if not self._fallbacks:
            warnings.warn(f"ORTModule runs this module in eager PyTorch: {fallback}", stacklevel=7)
        self._fallbacks.setdefault(fallback, None)

    def explain(self) -> Report:
        """What ran so far."""
        with self._lock:
            return self._report()

    def _report(self) -> Report:
        fallbacks = [*self._fallbacks, *self._on_aten]
        search = self._search
        runners = [kept.runner for kept in search.kept()]
        plans = sum(runner.plans() for runner in runners) + search.dropped_plans
        reruns = sum(runner.reruns() for runner in runners) + search.dropped_reruns
        warm_ups = [*self._warm_ups]
        kept = self._latest
        if kept is None:
            return Report(
                {}, fallbacks, self._captures, plans, [], warm_ups=warm_ups, reruns=reruns
            )
        steps, runner = kept.steps(), kept.runner
        providers = collections.Counter(step.provider for step in steps)
        stash, cast_bytes, arena = runner.memory()
        dtypes, casts = kept.dtypes()
        return Report(
            dict(providers), fallbacks, self._captures, plans, steps,
            runner.planned_us() / 1e3, stash, arena, runner.trace(), warm_ups, reruns,
            cast_bytes, dtypes, casts,
        )  # fmt: skip


def _report_of_dynamo(captures: "weakref.ref[Captures]") -> Callable[[Any], None]:
    """What Dynamo calls while it traces a wrapper; it may have no cell that Dynamo would make."""

    def report(_context: Any) -> None:
        captures().report(NotCapturable("Dynamo traces the module"))

    return report


class _Repeat(NamedTuple):
    """The latest call that was served, and by what: one like it needs no second look."""

    call: Any
    kept: Kept
    binding: dict[str, int]
