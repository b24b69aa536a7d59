"""What the calls of one module came to, for `explain()`: warm-ups, fallbacks, captures that ran.

dispatcher.py keeps one, under its lock.
"""

import collections
import dataclasses
import warnings

from ..errors import NotCapturable, WarmUp
from ..explain import Fallback, Report
from ..places import callers_level
from .compiled import CompiledCapture
from .search import Search


class Account:
    """`captures`: how many ran; `second_runs`: how many forwards ran again under create_graph, and
    the milliseconds that it took."""

    def __init__(self):
        self.captures = 0
        self.second_runs = 0, 0.0
        self._warm_ups: dict[str, None] = {}
        self._fallbacks: dict[Fallback, None] = {}
        self._on_aten: dict[Fallback, None] = {}
        self._warned = False

    def ran(self, compiled: CompiledCapture) -> None:
        """Notes a capture's first run."""
        self.captures += not compiled.ran
        compiled.ran = True
        self._on_aten.update(dict.fromkeys(compiled.operators()))

    def warmed_up(self, error: WarmUp) -> None:
        """Notes a call that eager made, as forward set up state in it."""
        self._warm_ups.setdefault(str(error))

    def fell_back(self, fallback: Fallback) -> None:
        """Notes what ran eagerly."""
        self._fallbacks.setdefault(fallback)

    def second_ran(self, ms: float) -> None:
        """Notes a forward that torch ran once more, for a backward under create_graph; the first
        warns."""
        count, before = self.second_runs
        self.second_runs = count + 1, before + ms
        if not count:
            warnings.warn(
                "ORTModule runs forward again in eager PyTorch in each backward with "
                f"create_graph=True: the first time it took {ms:.1f} ms",
                stacklevel=callers_level(),
            )

    def warn(self, what: str) -> None:
        """Once, for the line of the user's that makes the call."""
        if not self._warned:
            warnings.warn(f"ORTModule runs {what}", stacklevel=callers_level())
        self._warned = True

    def report(self, search: Search, latest: CompiledCapture | None) -> Report:
        """What ran so far, with the steps of the capture that served the latest call."""
        runners = [compiled.runner for compiled in search.captures()]
        found = Report(
            providers={},
            fallbacks=[*self._fallbacks, *self._on_aten],
            captures=self.captures,
            plans=sum(runner.plans() for runner in runners) + search.dropped_plans,
            steps=[],
            warm_ups=[*self._warm_ups],
            reruns=sum(runner.reruns() for runner in runners) + search.dropped_reruns,
            second_runs=self.second_runs[0],
            second_runs_ms=self.second_runs[1],
        )
        return found if latest is None else _with_steps(found, latest)


def _with_steps(report: Report, compiled: CompiledCapture) -> Report:
    steps, runner = compiled.steps(), compiled.runner
    stash, cast_bytes, arena = runner.memory()
    dtypes, casts = compiled.dtypes()
    return dataclasses.replace(
        report,
        providers=dict(collections.Counter(step.provider for step in steps)),
        steps=steps,
        planned_ms=runner.planned_us() / 1e3,
        stash_bytes=stash,
        arena_bytes=arena,
        replays=runner.replays(),
        trace=runner.trace(),
        cast_bytes=cast_bytes,
        dtypes=dtypes,
        casts=casts,
    )


def fallback_of(error: NotCapturable) -> Fallback:
    """What a refusal is in a report."""
    return Fallback(error.op, error.module, error.file, error.line, error.reason)
