"""The way of a call through one module's captures: served by one, captured first, made in parts, or
run eagerly.

module.py's wrapper has a Captures and asks it at every call; it keeps nothing of a call's tensors.
"""

import collections
import contextlib
import dataclasses
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from .. import _native, clock, devices
from ..calls import tree
from ..calls.call import Call, StandIn, describe
from ..capture.quiet import quiet
from ..capture.rehearse import eager_error
from ..capture.stages import capture
from ..errors import Defect, NeedsCut, NotCapturable, WarmUp, let_go
from ..explain import Report
from ..graph_breaks.pace import Pace, as_eager_leaves_statistics
from ..graph_breaks.parts import Computed, Parts
from ..graph_breaks.seams import Seams
from ..guards import surroundings
from ..options import Options
from ..progress import told
from .account import Account, fallback_of
from .kept import Kept
from .search import Refused, Search

# For benchmarks/guards.py alone: False leaves out what a call compares before it is served.
GUARDED = True


class Captures:
    """Calls `module` through the engine where it can, in parts where it cannot whole, else eagerly,
    and remembers why.

    part: what it is of another module.
    """

    def __init__(self, module: nn.Module, options: Options, part: "Part | None" = None):
        devices.prepare()
        self.module, self.options = module, options
        self.last_call: StandIn | None = None
        self._part, self._parts = part, None
        self._search = Search(module, patient=options.fallback == "report")
        self._account = Account()
        self._latest: Kept | None = None
        self._repeat: _Repeat | None = None
        self._paces: dict[tuple, Pace] = collections.defaultdict(Pace)
        self._lock = threading.RLock()
        self._eager = threading.local()
        self._clock = clock.Clock()
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
        if not self.options.profile:
            return self._call(args, kwargs)
        with self._clock.call():
            return self._call(args, kwargs)

    def _call(self, args: tuple, kwargs: dict) -> Any:
        if GUARDED and self._anything():
            if getattr(self._eager, "on", False) or surroundings.in_capture():
                return self.module.forward(*args, **kwargs)
            around = surroundings.reason()
            if around is not None:
                return self._fall_back(NotCapturable(around), None, args, kwargs)
        repeat = self._repeat
        tensors = None if repeat is None else repeat.call.match(args, kwargs)
        if tensors is not None and repeat.kept is None:
            if repeat.refused.still_holds():
                return self._in_parts(repeat.refused.error, repeat.key, args, kwargs)
        elif tensors is not None:
            tensors += repeat.numbers
            same = not GUARDED or repeat.kept.holds(tensors)
            if same or self._fits(repeat.kept, tensors):
                return self._run(repeat.kept, tensors, repeat.binding, args, kwargs, ())
        try:
            described = describe(args, kwargs)
        except NotCapturable as error:
            return self._in_parts(error, None, args, kwargs)
        stand_in = described.stand_in()
        result = self._served(described, args, kwargs)
        self.last_call = stand_in
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
            return self._in_parts(found, described.key, args, kwargs)
        kept, binding = found
        self._latest = kept
        repeat = self._repeat_of(described, kept, binding, args, kwargs)
        result = self._run(kept, described.tensors, binding, args, kwargs, described.containers)
        self._repeat = repeat
        return result

    @staticmethod
    def _repeat_of(
        call: Call, kept: Kept, binding: dict, args: tuple, kwargs: dict
    ) -> "_Repeat | None":
        """What a call like this one needs no second look for; None: each needs its own."""
        if kept.capture.needs_containers() or tree.has_met(call.spec):
            return None
        repeated = _native.torch_bridge().Repeat.of(args, kwargs)
        if repeated is None:
            return None
        numbers = call.tensors[len(call.tensors) - len(call.numbers) :]
        return _Repeat(repeated, kept, binding, numbers)

    def _repeat_of_refused(self, call: Call, args: tuple, kwargs: dict) -> "_Repeat | None":
        refused = self._search.refused(call.key)
        if refused is None:
            return None
        repeated = _native.torch_bridge().Repeat.of(args, kwargs)
        return repeated and _Repeat(repeated, None, {}, [], refused, call.key)

    def _found(self, call: Call) -> tuple[Kept, dict[str, int]] | NotCapturable | None:
        """What serves the call, captured where nothing does yet, or why eager makes it; None: it
        has no capture with symbols for its numbers."""
        found = self._search.find(call)
        if found is not None:
            return found
        foreign = surroundings.foreign_parameter(self.module)
        if foreign is not None:
            return NotCapturable(foreign)
        return self._capture(call) if call.plain is None else self._capture_with_numbers(call)

    def _fits(self, kept: Kept, tensors: list) -> bool:
        with self._lock:
            return kept.fits(tensors)

    def _run(
        self, kept: Kept, tensors: list, binding: dict, args: tuple, kwargs: dict, containers: Any
    ):
        try:
            outputs = kept.run(tensors) if not self.options.profile else kept.timed(tensors)
        except _native.torch_bridge().Error as error:  # as an index out of range: eager's own error
            if kept.capture.communicates:
                raise  # the other ranks would take no part in what eager does again
            return self._fall_back(NotCapturable(f"the engine: {error}"), None, args, kwargs)
        kept.calls += 1
        if not kept.ran:  # before that it may be a call that eager refuses too
            with self._lock:
                self._account.ran(kept)
        result = kept.capture.result(outputs, tensors, binding, containers)
        if kept.capture.assigned:
            with self._lock:
                kept.assign(outputs)
        return result

    def _capture_with_numbers(self, call: Call):
        try:
            captured = self._kept_of(call)
        except Exception as error:  # the call without them tells what is wrong
            let_go(error)
            self._search.learn(call, None)
            return None
        exact = captured.capture.sizes.exact is not None
        self._search.learn(call, None if exact else captured.capture.sizes.dims)
        self._search.add(captured)
        return captured, captured.capture.bind(call.tensors)

    def _kept_of(self, call: Call) -> Kept:
        free = self._part.free if self._part is not None else None
        if free is not None:
            free = [*free, *([True] * t.dim() for t in call.tensors[len(free) :])]
        captured = capture(
            self.module, call, _native.core().Graph, free=free, seconds=self.options.capture_seconds
        )
        kept = Kept(captured, self._options_here())
        if captured.second is not None:
            captured.second.told = self._told_of_second_runs()
        kept.compile(call.tensors)
        return kept

    def _told_of_second_runs(self) -> Callable[[float], None]:
        """What a second run is told to: it lives as long as what was computed, which is no reason
        for the module to."""
        part = self._part
        told = part.ran_again if part is not None else weakref.WeakMethod(self._account.ran_again)
        return lambda ms: (here := told()) and here(ms)

    def _options_here(self) -> Options:
        """A segment is no larger than a bucket, whose reduce then starts before the next runs."""
        size = min(self.options.segment_bytes, surroundings.bucket_bytes() or sys.maxsize)
        return dataclasses.replace(self.options, segment_bytes=size)

    def _capture(self, call: Call):
        clock.made()
        with told(f"capturing {self._name()}"):
            return self._captured(call)

    def _name(self) -> str:
        return "a part" if self._part is not None else type(self.module).__name__

    def _captured(self, call: Call):
        try:
            kept = self._kept_of(call)
        except WarmUp as error:
            if not self._search.warm_up(call.key):
                refusal = NeedsCut(error.reason, **error.place()).entered(error.roots)
                return self._search.refuse(call.key, refusal)
            let_go(error)
            self._account.warmed_up(error)
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
        return kept, kept.capture.bind(call.tensors)

    def _forget_refusal(self, key: tuple | None) -> None:
        with self._lock:
            self._search.forget_refusal(key)

    def _in_parts(self, error: NotCapturable, key: tuple | None, args: tuple, kwargs: dict):
        """What no whole capture serves: in parts where they may be, else eagerly."""
        if self._part is not None or not (isinstance(error, NeedsCut) or error.has_seams):
            return self._fall_back(error, key, args, kwargs)
        if error.raised:
            if self.options.fallback == "report":
                return self._proved(error, key, args, kwargs)
            self._check_call(key, args, kwargs)
        strict = self.options.fallback == "whole"
        with self._lock:
            if self._parts is None and error.has_seams and not strict:
                self._parts = Seams(self.module, lambda m: Captures(m, self.options))
            elif self._parts is None:
                self._parts = Parts(self.module, error.roots, self._engine, self._outside, strict)
            parts = self._parts
            held = parts.hold()
        if not held:
            return self._fall_back(error if strict else parts.refusal, key, args, kwargs)
        if self.options.fallback == "report" and self._is_eagers_turn(parts):
            return self.module.forward(*args, **kwargs)
        try:
            with quiet(), self._timed_in_turns():
                result = parts.call(args, kwargs)
        except Exception as raised:  # of the caller's: nothing is known of the module
            if raised is parts.refusal:
                return self._fall_back(error, key, args, kwargs)
            self._forget_refusal(key)
            raise
        if parts.refusal is not None:
            self.report(parts.refusal)
        elif not parts.whole():
            why = fallback_of(error)
            self._account.warn(f"this module in parts: {why}", stacklevel=7)
            parts.why.setdefault(why)
        return result

    def _is_eagers_turn(self, parts: Parts | Seams) -> bool:
        """Whether eager makes this call of a module in parts: to be timed, or as it is quicker."""
        pace = self._paces[torch.is_grad_enabled(), self.module.training]
        known = pace.times is not None
        with self._lock:
            eager = pace.in_eager(parts.count())
        if not known and pace.leaves_to_eager():
            self.report(NotCapturable(pace.words()))
        return eager

    def _timed_in_turns(self) -> contextlib.AbstractContextManager:
        """Around a call in parts: while some of the calls are eager's."""
        pace = self._paces[torch.is_grad_enabled(), self.module.training]
        settled = self.options.fallback != "report" or pace.times is not None
        return contextlib.nullcontext() if settled else as_eager_leaves_statistics(self.module)

    def _proved(self, error: NotCapturable, key: tuple | None, args: tuple, kwargs: dict) -> Any:
        """Eager makes a call that may be wrong: what it raises is the caller's mistake."""
        try:
            result = self.module.forward(*args, **kwargs)
        except Exception:
            self._forget_refusal(key)
            raise
        with self._lock:
            self._search.believe(key)
            self._account.warmed_up(error)
        return result

    def _check_call(self, key: tuple | None, args: tuple, kwargs: dict) -> None:
        """Raises what eager does, where it refuses the call too."""
        mistake = eager_error(self.module, args, kwargs)
        if mistake is not None:
            self._forget_refusal(key)
            raise mistake
        with self._lock:
            self._search.believe(key)

    def _engine(self, graph: nn.Module, free: list[list[bool]]) -> "Captures":
        return Captures(
            graph,
            self.options,
            Part(free, *map(weakref.WeakMethod, (self.report, self._account.ran_again))),
        )

    def _outside(self, computed: Computed) -> None:
        """torch computes between two parts."""
        place = {"op": computed.op, "file": computed.file, "line": computed.line}
        error = NotCapturable("torch computes it between two parts", **place)
        if self.options.fallback != "report":
            raise error
        self.report(error)

    def _fall_back(self, error: NotCapturable, key: tuple | None, args: tuple, kwargs: dict):
        """Runs eagerly; what eager refuses too is the caller's mistake: nothing to report."""
        if self.options.fallback != "report":
            self._check_call(key, args, kwargs)
            raise error
        try:
            result = self.module.forward(*args, **kwargs)
        except Exception:
            self._forget_refusal(key)
            raise
        self.report(error)
        return result

    def report(self, error: NotCapturable) -> None:
        """Lists what ran eagerly; the first warns."""
        if self._part is not None:
            if (told := self._part.report()) is not None:
                told(error)
            return
        fallback = fallback_of(error)
        what = "this module" if self._parts is None else "a part of this module"
        self._account.warn(f"{what} in eager PyTorch: {fallback}", stacklevel=8)
        self._account.fell_back(fallback)

    def has_captures(self) -> bool:
        """Whether any call went through the engine."""
        return self._account.captures > 0

    def captured(self) -> int:
        """How many captures ran so far, its parts' among them."""
        own = self._account.captures
        return own + (self._parts.count() if self._parts is not None else 0)

    def communicates(self) -> bool:
        """Whether a graph captured so far has collectives."""
        with self._lock:
            own = any(kept.capture.communicates for kept in self._search.kept())
            parts = self._parts.all if self._parts is not None else []
        return own or any(part.communicates() for part in parts)

    def graphs(self) -> list[str]:
        """The graphs captured so far as text, in the order made."""
        with self._lock:
            own = [kept.capture.graph.text() for kept in reversed(self._search.kept())]
            parts = self._parts.all if self._parts is not None else []
        return own + [text for part in parts for text in part.graphs()]

    def explain(self) -> Report:
        """What ran so far."""
        with self._lock:
            found = self._account.report(self._search, self._latest)
            found = found if self._parts is None else self._parts.added_to(found)
            return dataclasses.replace(found, outside_share=self._clock.outside_share())


def _report_of_dynamo(captures: "weakref.ref[Captures]") -> Callable[[Any], None]:
    """What Dynamo calls while it traces a wrapper; it may have no cell that Dynamo would make."""

    def report(_context: Any) -> None:
        captures().report(NotCapturable("Dynamo traces the module"))

    return report


class Part(NamedTuple):
    """What a part's Captures know of the module: which axes of its tensors have any size, and where
    they report what ran eagerly and which forwards ran again: Dynamo keeps parts alive, and these
    nothing else."""

    free: list[list[bool]]
    report: weakref.WeakMethod
    ran_again: weakref.WeakMethod


class _Repeat(NamedTuple):
    """The latest call, and what served it or, as it was refused, why and under which key: one like
    it needs no second look."""

    call: Any
    kept: Kept | None
    binding: dict[str, int]
    numbers: list
    refused: Refused | None = None
    key: tuple | None = None
