"""A capture for a call that none serves yet, with its plan, or why there can be none."""

import dataclasses
import sys
import weakref
from collections.abc import Callable
from typing import NamedTuple

from torch import nn

from .. import _native, clock, devices
from ..calls.call import Call
from ..capture.stages import capture
from ..errors import Defect, NeedsCut, NotCapturable, WarmUp, let_go
from ..guards import surroundings
from ..options import Options
from ..progress import told
from .account import Account
from .compiled import CompiledCapture
from .search import Search


class PartContext(NamedTuple):
    """What the dispatcher of a part knows of the module: which axes of its tensors have any size,
    and where it reports what ran eagerly and which forwards ran again: Dynamo keeps parts alive,
    and these nothing else."""

    free: list[list[bool]]
    report: weakref.WeakMethod
    second_ran: weakref.WeakMethod


class Maker:
    """Captures calls of one module, and notes in its search what came of them.

    part: what the module is of another one.
    """

    def __init__(
        self, module: nn.Module, options: Options, part: PartContext | None, search: Search,
        account: Account,
    ):  # fmt: skip
        self._module, self._options, self._part = module, options, part
        self._search, self._account = search, account

    def make(self, call: Call) -> tuple[CompiledCapture, dict[str, int]] | NotCapturable | None:
        """A capture that serves the call with its symbols' values, or why eager makes it; None: it
        has no capture with symbols for its numbers."""
        return self._captured(call) if call.plain is None else self._with_numbers(call)

    def _with_numbers(self, call: Call):
        try:
            compiled = self._compiled_of(call)
        except Exception as error:  # the call without them tells what is wrong
            let_go(error)
            self._search.learn(call, None)
            return None
        exact = compiled.capture.sizes.exact is not None
        self._search.learn(call, None if exact else compiled.capture.sizes.dims)
        self._search.add(compiled)
        return compiled, compiled.capture.bind(call.tensors)

    def _captured(self, call: Call):
        clock.made()
        name = "a part" if self._part is not None else type(self._module).__name__
        try:
            with told(f"capturing {name}"):
                compiled = self._compiled_of(call)
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
            if self._options.for_engine().check:
                raise
            let_go(error)
            reason = f"a defect of the capture: {type(error).__name__}: {error}"
            refusal = error.refusal if isinstance(error, Defect) else NotCapturable(reason)
            return self._search.refuse(call.key, refusal)
        self._search.add(compiled)
        return compiled, compiled.capture.bind(call.tensors)

    def _compiled_of(self, call: Call) -> CompiledCapture:
        free = self._part.free if self._part is not None else None
        if free is not None:
            free = [*free, *([True] * t.dim() for t in call.tensors[len(free) :])]
        home = devices.of((*self._module.parameters(), *self._module.buffers(), *call.tensors))
        devices.check_asked(home, self._options.for_engine().providers)
        seconds = self._options.capture_seconds
        captured = capture(self._module, call, _native.core().Graph, free=free, seconds=seconds)
        compiled = CompiledCapture(captured, self._options_here())
        if captured.second is not None:
            captured.second.told = self._told_of_second_runs()
        compiled.plan_for(call.tensors)
        return compiled

    def _told_of_second_runs(self) -> Callable[[float], None]:
        """What a second run is told to: it lives as long as what was computed, which is no reason
        for the module to."""
        part = self._part
        told = part.second_ran if part is not None else weakref.WeakMethod(self._account.second_ran)
        return lambda ms: (here := told()) and here(ms)

    def _options_here(self) -> Options:
        """A segment is no larger than a bucket, whose reduce then starts before the next runs."""
        size = min(self._options.segment_bytes, surroundings.bucket_bytes() or sys.maxsize)
        return dataclasses.replace(self._options, segment_bytes=size)
