"""Options: how an ORTModule runs. Fields win over the ORTMODULE_* variables of the same names."""

import dataclasses
from typing import Any

from . import _native

_FALLBACKS = ("report", "parts", "whole", "error")


@dataclasses.dataclass(frozen=True)
class Options:
    """How an ORTModule captures, compiles and runs.

    fallback: what becomes of a module that cannot be captured whole. "report": it runs in parts,
        where these cannot be eagerly, with one warning and an entry in explain(); "parts": in parts
        alone, torch between them is an error; "whole" or "error": it is an error. None is about an
        operator that only torch has: it runs as a step of the plan on the provider aten, without a
        warning, and is listed.
    providers: claim order, e.g. ("cpu", "reference"); None: ORTMODULE_PROVIDERS or ("cpu", "aten").
        A module on an NVIDIA GPU runs eagerly unless ("cuda", "aten", "cpu") asks for our kernels.
        Without "aten" a module that needs it runs eagerly.
    segment_bytes: bytes of parameter gradients after which a segment of the backward ends.
    memory_budget: bytes of stash that a frame may hold, for which the backward recomputes more of
        the forward, matrix products last; None: no bound. What cannot be had is refused.
    capture_seconds: of processor time that the traces of one capture may take; where they take
        longer, as of a loop of many thousands of cells, the module runs eagerly.
    check: verify the graph after each pass and compare both sides of each rewrite on random data.
    fuel: only the first n rewrites. off: rules and passes to leave out.
    dump: a folder that receives every stage. profile: time each step.
    """

    fallback: str = "report"
    providers: tuple[str, ...] | None = None
    segment_bytes: int = 4 << 20
    memory_budget: int | None = None
    capture_seconds: float = 120.0
    check: bool = False
    fuel: int | None = None
    off: tuple[str, ...] = ()
    dump: str | None = None
    profile: bool = False

    def __post_init__(self):
        if self.fallback == "error":
            object.__setattr__(self, "fallback", "whole")
        if self.fallback not in _FALLBACKS:
            expected = ", ".join(map(repr, _FALLBACKS))
            raise ValueError(f"Options.fallback is {self.fallback!r}, expected one of {expected}")
        known = {*_native.core().providers(), "aten"}  # which torch's part of the engine brings
        for name in self.providers or ():
            if name not in known:
                expected = ", ".join(map(repr, sorted(known)))
                raise ValueError(f"Options.providers has {name!r}, expected some of {expected}")
        _native.core().check_off(list(self.off))
        if self.segment_bytes < 0:
            raise ValueError(f"Options.segment_bytes is {self.segment_bytes}, expected 0 or more")
        if not self.capture_seconds > 0:
            given = self.capture_seconds
            raise ValueError(f"Options.capture_seconds is {given}, expected more than 0")
        if self.memory_budget is not None and self.memory_budget < 0:
            raise ValueError(f"Options.memory_budget is {self.memory_budget}, expected 0 or more")

    def for_engine(self, claimants: tuple[str, ...] = ("cpu", "aten")) -> Any:
        """The fields as the engine takes them, unset ones from the environment or `claimants`."""
        ours = ("fallback", "profile", "capture_seconds")  # Python's own
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        given = {name: value for name, value in given.items() if name not in ours}
        return _native.core().CompileOptions(claimants, **given)
