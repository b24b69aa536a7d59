"""What is known of earlier calls, by key: the captures that may serve a call, and the refusals."""

import collections
import contextlib
import dataclasses
import time
from collections.abc import Callable
from typing import Any

from torch import nn

from ..calls import tree
from ..calls.call import Call
from ..calls.varying import Varying
from ..errors import NeedsCut, NotCapturable, let_go
from ..guards.snapshot import Snapshot
from .compiled import CompiledCapture

# Captures kept for one key, and keys for one module, least recently used dropped.
_MOST_CAPTURES = 16
# Where this many captures in a row served fewer calls each, something changes all the time: the
# module runs in eager until it has been the same for as many calls as that.
_UNSETTLED, _FEW = 8, 4
# Values of a number that are remembered.
_VALUES = 64
# A call that was refused is tried again when the module changed, this many times.
_TRIES = 3
# Whether it did is asked at so many calls, then for this share of the time.
_AT_FIRST, _SHARE = 8, 0.01


class Refused:
    """Why a call was not captured, and the module's state in which that is known; None: in any.

    Eager is right in any state, so after the first calls this is asked for a small share of the
    time only.
    """

    def __init__(self, error: NotCapturable, module: nn.Module, tries: int):
        self.error, self.tries = error, tries
        self.snapshot: Snapshot | None = None
        self._module, self._training = module, module.training
        self._calls, self._not_before = 0, 0.0
        if tries < _TRIES:
            with contextlib.suppress(Exception):  # of a tensor that cannot be asked for its facts
                self.snapshot = Snapshot(module)
            if self.snapshot is not None and self.snapshot.refers_weakly():
                self.snapshot = None  # it would keep alive what forward asks for

    def still_holds(self) -> bool:
        """Asked once a call."""
        if self.snapshot is None:
            return True
        self._calls += 1
        began = time.monotonic()
        same_mode = self._module.training == self._training
        if self._calls > _AT_FIRST and began < self._not_before and same_mode:
            return True
        changed = self.snapshot.changed()
        ended = time.monotonic()
        self._not_before = ended + (ended - began) / _SHARE
        return changed is None


class Unsettled:
    """The state of a module that changes all the time, and for how many calls it has held. After
    the first ones it too is looked at for a small share of the time only."""

    def __init__(self, error: NotCapturable, snapshot: Snapshot, looks: int):
        self.error, self.snapshot, self.calls, self.looks = error, snapshot, 0, looks
        self._not_before, self._skipped = 0.0, 0

    def rests(self) -> bool:
        """Whether eager makes this call before anything is looked at."""
        if self.looks <= _AT_FIRST or time.monotonic() >= self._not_before:
            return False
        self._skipped += 1
        return True

    def looked(self, began: float) -> None:
        """The state is as it was, or is the one to be compared with from now on."""
        self.looks += 1
        self.calls += 1 + self._skipped
        ended, self._skipped = time.monotonic(), 0
        self._not_before = ended + (ended - began) / _SHARE


@dataclasses.dataclass(slots=True)
class Known:
    """What came of calls with one key."""

    compiled: list[CompiledCapture] = dataclasses.field(default_factory=list)
    refused: Refused | None = None
    unsettled: Unsettled | None = None
    warmed_up: bool = False


class Search:
    """The captures and refusals of one module; for one thread at a time.

    patient: a call that differs from earlier ones in a number alone may wait for its capture.
    `dropped_plans`, `dropped_reruns`: what the captures that are no longer kept had made.
    """

    def __init__(self, module: nn.Module, patient: bool):
        self.dropped_plans = self.dropped_reruns = 0
        self._module, self._patient = module, patient
        self._known: collections.OrderedDict[tuple, Known] = collections.OrderedDict()
        # By key without its numbers, how often each value came.
        self._numbers: collections.OrderedDict[tuple, dict] = collections.OrderedDict()
        self._varying: collections.OrderedDict[tuple, Varying] = collections.OrderedDict()

    def generalise(self, call: Call) -> Call:
        """The call with symbols for the numbers that are others from call to call."""
        numbers = tree.numbers(call.spec)
        return self._varying_of(call, numbers).generalise(call, numbers) if numbers else call

    def learn(self, call: Call, dims: list[list] | None) -> None:
        """Which symbols a capture of a generalised call has; None: there is no capture of it."""
        self._varying_of(call.plain, tree.numbers(call.plain.spec)).learn(call, dims)

    def _varying_of(self, call: Call, numbers: list) -> Varying:
        spec, *others = call.key
        key = tree.without_numbers(spec), *others
        return _use(self._varying, key, lambda: Varying(numbers))[0]

    def find(self, call: Call) -> tuple[CompiledCapture, dict[str, int]] | NotCapturable | None:
        """What serves the call, with its symbols' values; why eager does; None: to be captured."""
        known = self._known.get(call.key)
        if known is None:
            return self._wait_for_number(call.key)
        self._known.move_to_end(call.key)
        if known.refused is not None and known.refused.still_holds():
            return known.refused.error
        if known.unsettled is not None and known.unsettled.rests():
            return known.unsettled.error
        began = time.monotonic()
        for compiled in known.compiled:
            if not compiled.fits(call.tensors) or not compiled.is_apart(call.containers):
                continue
            binding = compiled.capture.bind(call.tensors)
            if binding is not None:
                known.unsettled = None
                return compiled, binding
        return self._wait_for_number(call.key) or _wait_until_settled(known, began)

    def add(self, compiled: CompiledCapture) -> None:
        """To be found by calls like the captured one."""
        group = self._use(compiled.capture.key).compiled
        group.insert(0, compiled)
        self._drop(group[_MOST_CAPTURES:])
        del group[_MOST_CAPTURES:]

    def refused(self, key: tuple) -> Refused | None:
        """Why calls with this key are not captured."""
        known = self._known.get(key)
        return known and known.refused

    def refuse(self, key: tuple, error: NotCapturable) -> NotCapturable:
        """The error, without the call's tensors, for as long as the module stays as it is."""
        let_go(error)
        known = self._use(key)
        tries = known.refused.tries + 1 if known.refused is not None else 1
        known.refused = Refused(error.bare(), self._module, tries)
        return error.bare()

    def believe(self, key: tuple | None) -> None:
        """As eager took a call that was refused because forward raised."""
        if key in self._known and self._known[key].refused is not None:
            self._known[key].refused.error.raised = False

    def forget_refusal(self, key: tuple | None) -> None:
        """As eager refuses the call too."""
        if key in self._known:
            self._known[key].refused = None

    def warm_up(self, key: tuple) -> bool:
        """Whether eager may make a call with this key first: once."""
        known = self._use(key)
        first, known.warmed_up = not known.warmed_up, True
        return first

    def captures(self) -> list[CompiledCapture]:
        """All captures."""
        return [compiled for known in self._known.values() for compiled in known.compiled]

    def _wait_for_number(self, key: tuple) -> NotCapturable | None:
        """Calls that differ in a number alone: two values are captured at once, another when it has
        come a few times. A module that runs in parts does so."""
        if not self._patient:
            return None
        spec, *others = key
        times, _ = _use(self._numbers, (tree.without_numbers(spec), *others), dict)
        times[spec] = times.get(spec, 0) + 1
        known = self._known.get(key)
        if len(times) <= 2 or times[spec] > _FEW or (known is not None and known.compiled):
            return None
        if len(times) > _VALUES:
            del times[next(iter(times))]
        refused = [known.refused.error for known in self._known.values() if known.refused]
        in_parts = next((error for error in refused if isinstance(error, NeedsCut)), None)
        reason = "a number among the arguments is another from call to call"
        return in_parts or NotCapturable(reason)

    def _use(self, key: tuple) -> Known:
        """What is known of calls with this key, to be added to; the oldest key's is dropped."""
        known, oldest = _use(self._known, key, Known)
        if oldest is not None:
            self._drop(oldest.compiled)
        return known

    def _drop(self, compiled: list[CompiledCapture]) -> None:
        self.dropped_plans += sum(old.runner.plans() for old in compiled)
        self.dropped_reruns += sum(old.runner.reruns() for old in compiled)


def _use(recent: collections.OrderedDict, key: tuple, make: Callable) -> tuple[Any, Any]:
    """The entry, made where there is none, and the one used longest ago that it stands for."""
    entry = recent.setdefault(key, None)
    recent.move_to_end(key)
    if entry is not None:
        return entry, None
    recent[key] = make()
    oldest = recent.popitem(last=False)[1] if len(recent) > _MOST_CAPTURES else None
    return recent[key], oldest


def _wait_until_settled(known: Known, began: float) -> NotCapturable | None:
    """Why this call runs in eager although it could be captured; None when it is captured. began:
    when its captures began to be asked."""
    newest = known.compiled[:_UNSETTLED]
    if len(newest) < _UNSETTLED or sum(compiled.calls for compiled in newest) >= _UNSETTLED * _FEW:
        return None
    change = newest[0].capture.snapshot.changed()
    if change is None:  # other sizes, not another state
        return None
    waiting = known.unsettled
    if waiting is None or waiting.snapshot.changed() is not None:
        reason = f"{change.partition(' was ')[0]} changes from call to call"
        snapshot = newest[0].capture.snapshot.again()
        looks = waiting.looks if waiting is not None else 0
        waiting = known.unsettled = Unsettled(NotCapturable(reason), snapshot, looks)
    waiting.looked(began)
    return waiting.error if waiting.calls <= _UNSETTLED * _FEW else None
