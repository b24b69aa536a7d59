"""Report: the truth about what ran, as ORTModule.explain() returns it."""

import collections
import dataclasses
import os
import pathlib
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Fallback:
    """What PyTorch ran: a whole module in eager, or one operator as a step of the plan (provider
    aten). The op at fault, the user's module and line, why."""

    op: str | None
    module: str | None
    file: str | None
    line: int | None
    reason: str

    def __str__(self) -> str:
        place = f" at {self.file}:{self.line}" if self.file else ""
        module = f" in {self.module}" if self.module else ""
        op = f"[{self.op}] " if self.op else ""
        return f"{op}{self.reason}{module}{place}"


def _by_reason(found: list[Fallback], before: str = "") -> list[str]:
    """A line for each; those of one op and reason together, with their places under it."""
    groups: dict[tuple, list[Fallback]] = {}
    for one in found:
        groups.setdefault((one.op, one.reason), []).append(one)
    lines = []
    for (op, reason), group in groups.items():
        if len(group) == 1:
            lines.append(f"{before}{group[0]}")
            continue
        lines.append(f"{before}{Fallback(op, None, None, None, reason)}: {len(group)} places")
        places = (dataclasses.replace(one, op=None, reason="") for one in group)
        lines += [f"    {str(place).strip()}" for place in places]
    return lines


@dataclasses.dataclass(frozen=True)
class Break:
    """Why a part ends, or why no function of a module is looked into, and where."""

    reason: str
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.reason} at {self.file}:{self.line}" if self.file else self.reason


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of a plan; `us` only where Options.profile is on.

    layout: how its results lie, as "aBcd16b" for blocks of 16 channels and "acdb" for channels
    last; empty where all are row-major. operations: floating-point operations, two for a
    multiplication and its addition, as estimated from the sizes; bytes: of its operands and
    results, each counted once; operands, results: their dtypes and sizes, as "float32[8, 128]".
    """

    name: str
    provider: str
    us: float | None
    layout: str = ""
    operations: float = 0.0
    bytes: float = 0.0
    operands: Sequence[str] = ()
    results: Sequence[str] = ()


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


@dataclasses.dataclass(frozen=True)
class Report:
    """What an ORTModule has done so far.

    providers: steps of the latest forward plan and its backward plan, by provider.
    fallbacks: what PyTorch ran, and why. captures, plans: how many were made. steps: in order.
    planned_ms: what the newest plan took, from sizes not seen before to kernels ready to run.
    stash_bytes: what the latest forward keeps of its activations and of the trips of its loops for
    its backward;
    cast_bytes: what it keeps of parameters' casts; arena_bytes: what both plans need.
    trace: the latest call's steps as trace events (JSON); None unless Options.profile is on.
    warm_ups: calls that eager made because forward set up state in them, with what it set.
    replays: how often a device queued a row of steps of the latest plans as it had recorded it.
    reruns: forwards that ran once more, as a backward came for other outputs than expected.
    second_runs, second_runs_ms: forwards that eager PyTorch ran once more for a backward with
    create_graph=True, and what that took.
    dtypes: nodes of the latest program, both directions, by the dtype that they give, casts aside;
    not_whole: why calls were not captured whole; parts: then the report of each part, small: how
    many more torch runs, being of a few operators each; breaks: where parts end and why, misses:
    what did not hold, so that forward was cut again, each with how often.
    outside_share: of the time of forward calls that made no captures, how much was spent outside of
    the engine; None unless Options.profile is on.
    casts: these, by kind, as "float32 to bfloat16": autocast's, forward's own, and those around a
    node that has a kernel for float32 alone.
    """

    providers: dict[str, int]
    fallbacks: list[Fallback]
    captures: int
    plans: int
    steps: list[Step]
    planned_ms: float = 0.0
    stash_bytes: int = 0
    arena_bytes: int = 0
    trace: str | None = dataclasses.field(default=None, repr=False)
    warm_ups: list[str] = dataclasses.field(default_factory=list)
    replays: int = 0
    reruns: int = 0
    second_runs: int = 0
    second_runs_ms: float = 0.0
    cast_bytes: int = 0
    dtypes: dict[str, int] = dataclasses.field(default_factory=dict)
    casts: dict[str, int] = dataclasses.field(default_factory=dict)
    parts: list["Report"] = dataclasses.field(default_factory=list, repr=False)
    breaks: dict[Break, int] = dataclasses.field(default_factory=dict)
    misses: dict[str, int] = dataclasses.field(default_factory=dict)
    small: int = 0
    outside_share: float | None = None
    not_whole: list[Fallback] = dataclasses.field(default_factory=list)

    def reasons(self) -> list[str]:
        """Why anything did not run in one graph of the engine."""
        return [found.reason for found in (*self.fallbacks, *self.not_whole, *self.breaks)]

    def line(self) -> str:
        """The whole in one line."""
        steps = ", ".join(f"{name} {count}" for name, count in sorted(self.providers.items()))
        dtypes, casts = _listed(self.dtypes), sum(self.casts.values())
        fallbacks = len(self.fallbacks) or "none"
        parts = f", parts {len(self.parts)}" if self.parts else ""
        made = f"captures {self.captures}{parts}, steps {steps or 0}, nodes {dtypes or 0}"
        made += f", casts {casts}"
        return f"{made}, fallbacks {fallbacks}"

    def write_trace(self, path: str | os.PathLike) -> None:
        """Writes `trace` for chrome://tracing or Perfetto; ValueError where there is none."""
        if self.trace is None:
            raise ValueError("no step was timed: wrap the module with Options(profile=True)")
        pathlib.Path(path).write_text(self.trace)

    def __str__(self) -> str:
        made = f"plans {self.plans} (the newest took {self.planned_ms:.1f} ms)"
        lines = [f"captures {self.captures}, {made}, steps {len(self.steps)}"]
        parts = [f"{self.stash_bytes / 1e6:.1f} MB of it stash"]
        if self.cast_bytes:
            parts.append(f"{self.cast_bytes / 1e6:.1f} MB casts of parameters")
        lines.append(f"  arena {self.arena_bytes / 1e6:.1f} MB, {', '.join(parts)}")
        lines += [f"  {name}: {count} steps" for name, count in sorted(self.providers.items())]
        lines += [f"  nodes by dtype: {_listed(self.dtypes)}"] * bool(self.dtypes)
        lines += [f"  casts: {_listed(self.casts)}"] * bool(self.casts)
        names = collections.Counter((s.provider, s.name) for s in self.steps)
        times = collections.defaultdict(float)
        for step in self.steps:
            times[step.provider, step.name] += step.us or 0.0
        timed = any(step.us is not None for step in self.steps)
        for (provider, name), count in names.most_common():
            time = f"  {times[provider, name]:9.0f} us" if timed else ""
            lines.append(f"  {count:5d} x {provider:10s}{time}  {name}")
        lines += [f"warm-up in eager: {warm_up}" for warm_up in self.warm_ups]
        if self.replays:
            lines.append(f"  {self.replays} rows of steps were replayed by the device")
        if self.reruns:
            lines.append(f"  {self.reruns} forwards ran again for other outputs' gradients")
        if self.second_runs:
            lines.append(
                f"  {self.second_runs} forwards ran again in eager PyTorch for a backward with "
                f"create_graph=True: {self.second_runs_ms:.1f} ms"
            )
        if self.outside_share is not None:
            lines.append(f"  {self.outside_share:.1%} of forward's time was outside of the engine")
        lines += _by_reason(self.not_whole, "in parts: ")
        lines += [f"{self.small} parts of a few operators run in torch"] * bool(self.small)
        lines += [f"part {k}: {part.line()}" for k, part in enumerate(self.parts)]
        lines += [f"a part ends ({n} x): {found}" for found, n in self.breaks.items()]
        lines += [f"did not hold ({n} x): {found}" for found, n in self.misses.items()]
        lines.append("no fallbacks" if not self.fallbacks else "fallbacks to PyTorch:")
        lines += _by_reason(self.fallbacks, "  ")
        return "\n".join(lines)
