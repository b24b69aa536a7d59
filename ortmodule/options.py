"""Options: how an ORTModule runs. Fields win over the ORTMODULE_* variables of the same names."""

import dataclasses
import os


@dataclasses.dataclass(frozen=True)
class Options:
    """How an ORTModule captures, compiles and runs.

    fallback: "report" runs what cannot be captured eagerly, with one warning and an entry in
        explain().fallbacks; "error" raises instead. Neither is about an operator that only torch
        has: it runs as a step of the plan on the provider aten, without a warning, and is listed.
    providers: claim order, e.g. ("cpu", "reference"); None: ORTMODULE_PROVIDERS or ("cpu", "aten").
        Without "aten" a module that needs it runs eagerly.
    segment_bytes: bytes of parameter gradients after which a segment of the backward ends.
    memory_budget: bytes of stash that a frame may hold, for which the backward recomputes more of
        the forward, matrix products last; None: no bound. What cannot be had is refused.
    check: verify the graph after each pass and compare both sides of each rewrite on random data.
    fuel: only the first n rewrites. off: rules and passes to leave out.
    dump: a folder that receives every stage. profile: time each step.
    """

    fallback: str = "report"
    providers: tuple[str, ...] | None = None
    segment_bytes: int = 4 << 20
    memory_budget: int | None = None
    check: bool = False
    fuel: int | None = None
    off: tuple[str, ...] = ()
    dump: str | None = None
    profile: bool = False

    def __post_init__(self):
        if self.fallback not in ("report", "error"):
            raise ValueError(f"Options.fallback is {self.fallback!r}, expected 'report' or 'error'")
        if self.segment_bytes < 0:
            raise ValueError(f"Options.segment_bytes is {self.segment_bytes}, expected 0 or more")
        if self.memory_budget is not None and self.memory_budget < 0:
            raise ValueError(f"Options.memory_budget is {self.memory_budget}, expected 0 or more")

    def resolved(self, claimants: tuple[str, ...] = ("cpu", "aten")) -> dict:
        """The fields as the engine takes them, unset ones from the environment or `claimants`."""
        env = os.environ
        fuel = env.get("ORTMODULE_FUEL")
        return {
            "providers": list(self.providers or _words("ORTMODULE_PROVIDERS") or claimants),
            "segment_bytes": self.segment_bytes,
            "memory_budget": self.memory_budget,
            "check": self.check or env.get("ORTMODULE_CHECK", "0") == "1",
            "fuel": self.fuel if self.fuel is not None else (int(fuel) if fuel else None),
            "off": list(self.off or _words("ORTMODULE_OFF")),
            "dump": self.dump or env.get("ORTMODULE_DUMP", ""),
        }


def _words(name: str) -> list[str]:
    return [word for word in os.environ.get(name, "").split(",") if word]
