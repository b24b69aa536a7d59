"""The captures of one module: which fits a call, when to make one, and what is run eagerly instead.

module.py's wrapper has a Captures and asks it at every call; it keeps nothing of a call's tensors.
"""

import collections
import contextlib
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from . import _native, surroundings, tree
from .capture import capture
from .errors import NotCapturable, WarmUp, let_go
from .explain import Fallback, Report
from .kept import Kept, Known, Refused, Unsettled
from .key import call_key
from .options import Options
from .rehearse import eager_error, prepare

# Captures kept for one key, and keys for one module, least recently used dropped.
_KEPT = 16
# Where this many captures in a row served fewer calls each, something changes all the time: the
# module runs in eager until it has been the same for as many calls as that.
_UNSETTLED, _FEW = 8, 4
# Values of a number that are remembered.
_VALUES = 64
# For benchmarks/guards.py alone: False leaves out what a call compares before it is served.
GUARDED = True


class Captures:
    """Calls `module` through the engine where it can, else eagerly, and remembers why."""

    def __init__(self, module: nn.Module, options: Options):
        prepare()
        self.module, self.options = module, options
        self.last_call: tuple[Any, list] | None = None  # its tree, and its tensors' facts
        self._known: collections.OrderedDict[tuple, Known] = collections.OrderedDict()
        # By key without its numbers, how often each value came.
        self._numbers: collections.OrderedDict[tuple, dict] = collections.OrderedDict()
        self._warm_ups: dict[str, None] = {}
        self._fallbacks: dict[Fallback, None] = {}
        self._on_aten: dict[Fallback, None] = {}
        self._captures = self._dropped_plans = self._dropped_reruns = 0
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
            tensors, spec = tree.flatten([args, kwargs], "arguments")
        except tree.UnknownLeaf as error:
            return self._fall_back(NotCapturable(str(error)), None, args, kwargs)
        if any(tensor.is_nested for tensor in tensors):  # nothing tells its sizes
            error = NotCapturable("an argument is a nested tensor")
            return self._fall_back(error, None, args, kwargs)
        self.last_call = spec, [_facts(t) for t in tensors]
        key = call_key(spec, tensors)
        with self._lock:
            found = self._find(key, tensors)
            foreign = surroundings.foreign_parameter(self.module) if found is None else None
            if foreign is not None:
                found, key = NotCapturable(foreign), None
            if found is None:
                found = self._capture(key, tensors, args, kwargs)
        if isinstance(found, WarmUp):
            return self.module.forward(*args, **kwargs)
        if isinstance(found, NotCapturable):
            return self._fall_back(found, key, args, kwargs)
        kept, binding = found
        self._latest = kept
        call = _native.torch_bridge().Repeat.of(args, kwargs)
        self._repeat = _Repeat(call, kept, binding) if call is not None else None
        return self._run(kept, tensors, binding, args, kwargs)

    def _fits(self, kept: "Kept", tensors: list) -> bool:
        with self._lock:
            return kept.fits(tensors)

    def _run(self, kept: "Kept", tensors: list, binding: dict, args: tuple, kwargs: dict):
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

    def _find(self, key: tuple, tensors: list):
        known = self._known.get(key)
        if known is None:
            return self._wait_for_number(key)
        self._known.move_to_end(key)
        if known.refused is not None and known.refused.still_holds():
            return known.refused.error
        for kept in known.kept:
            if not kept.fits(tensors):
                continue
            binding = kept.capture.bind(tensors)
            if binding is not None:
                known.unsettled = None
                return kept, binding
        return self._wait_for_number(key) or _wait_until_settled(known)

    def _wait_for_number(self, key: tuple) -> NotCapturable | None:
        """Calls that differ in a number alone: two values are captured at once, another when it has
        come a few times."""
        if self.options.fallback == "error":
            return None
        times, _ = _use(self._numbers, (tree.without_numbers(key[0]), *key[1:]), dict)
        times[key[0]] = times.get(key[0], 0) + 1
        known = self._known.get(key)
        if len(times) <= 2 or times[key[0]] > _FEW or (known is not None and known.kept):
            return None
        if len(times) > _VALUES:
            del times[next(iter(times))]
        return NotCapturable("a number among the arguments is another from call to call")

    def _capture(self, key: tuple, tensors: list, args: tuple, kwargs: dict):
        try:
            captured = capture(self.module, args, kwargs, _native.core().Graph)
            kept = Kept(captured, self.options)
            kept.compile(tensors)
        except WarmUp as error:
            known = self._use(key)
            if known.warmed_up:
                return self._refuse(key, NotCapturable(error.reason, **error.place()))
            known.warmed_up = True
            let_go(error)
            self._warm_ups.setdefault(str(error))
            return error.with_traceback(None)
        except NotCapturable as error:
            return self._refuse(key, error)
        except Exception as error:  # a defect of ours costs the speed, not the training
            if self.options.resolved()["check"]:
                raise
            reason = f"a defect of the capture: {type(error).__name__}: {error}"
            return self._refuse(key, NotCapturable(reason))
        group = self._use(key).kept
        group.insert(0, kept)
        self._drop(group[_KEPT:])
        del group[_KEPT:]
        return kept, captured.bind(tensors)

    def _use(self, key: tuple) -> "Known":
        """What is known of calls with this key, to be added to; the oldest key's is dropped."""
        known, oldest = _use(self._known, key, Known)
        if oldest is not None:
            self._drop(oldest.kept)
        return known

    def _drop(self, kept: "list[Kept]") -> None:
        self._dropped_plans += sum(old.runner.plans() for old in kept)
        self._dropped_reruns += sum(old.runner.reruns() for old in kept)

    def _refuse(self, key: tuple, error: NotCapturable) -> NotCapturable:
        let_go(error)
        known = self._use(key)
        tries = known.refused.tries + 1 if known.refused is not None else 1
        known.refused = Refused(error.bare(), self.module, tries)
        return error.bare()

    def _forget_refusal(self, key: tuple | None) -> None:
        with self._lock:
            if key in self._known:
                self._known[key].refused = None

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
        runners = [kept.runner for known in self._known.values() for kept in known.kept]
        plans = sum(runner.plans() for runner in runners) + self._dropped_plans
        reruns = sum(runner.reruns() for runner in runners) + self._dropped_reruns
        warm_ups = [*self._warm_ups]
        kept = self._latest
        if kept is None:
            return Report(
                {}, fallbacks, self._captures, plans, [], warm_ups=warm_ups, reruns=reruns
            )
        steps, runner = kept.steps(), kept.runner
        providers = collections.Counter(step.provider for step in steps)
        stash, arena = runner.memory()
        return Report(
            dict(providers), fallbacks, self._captures, plans, steps,
            runner.planned_us() / 1e3, stash, arena, runner.trace(), warm_ups, reruns,
        )  # fmt: skip


def _use(recent: collections.OrderedDict, key: tuple, make: Callable) -> tuple[Any, Any]:
    """The entry, made where there is none, and the one used longest ago that it stands for."""
    entry = recent.setdefault(key, None)
    recent.move_to_end(key)
    if entry is not None:
        return entry, None
    recent[key] = make()
    oldest = recent.popitem(last=False)[1] if len(recent) > _KEPT else None
    return recent[key], oldest


def _wait_until_settled(known: "Known") -> NotCapturable | None:
    """Why this call runs in eager although it could be captured; None when it is captured."""
    newest = known.kept[:_UNSETTLED]
    if len(newest) < _UNSETTLED or sum(kept.calls for kept in newest) >= _UNSETTLED * _FEW:
        return None
    change = newest[0].capture.snapshot.changed()
    if change is None:  # other sizes, not another state
        return None
    waiting = known.unsettled
    if waiting is None or waiting.snapshot.changed() is not None:
        reason = f"{change.partition(' was ')[0]} changes from call to call"
        snapshot = newest[0].capture.snapshot.again()
        waiting = known.unsettled = Unsettled(NotCapturable(reason), snapshot)
    waiting.calls += 1
    return waiting.error if waiting.calls <= _UNSETTLED * _FEW else None


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


def _facts(tensor: torch.Tensor) -> tuple:
    return tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad


def stand_in(facts: tuple) -> torch.Tensor:
    """A tensor of the sizes, dtype and device of one that a call had."""
    shape, dtype, device, requires_grad = facts
    return torch.zeros(shape, dtype=dtype, device=device, requires_grad=requires_grad)
