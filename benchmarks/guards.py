"""What a call that changed nothing pays for its guards: microseconds a call, with and without them.

The engine's run is left out (its outputs are those of one real call), so that what remains is the
call's own Python and C++. Calls with guards and without are interleaved; without, functions that
answer at once stand in their place. Run: python benchmarks/guards.py [model ...]
"""

import argparse
import platform
import statistics
import time

import torch
from models import MODELS

from ortmodule import ORTModule


class Guards:
    """What a call asks before it is served, which may be switched off."""

    def __init__(self, dispatcher):
        self._places = ((dispatcher, "_anything", False), (dispatcher._latest, "holds", True))
        self._asked = [getattr(owner, name) for owner, name, _ in self._places]

    def switch(self, on: bool) -> None:
        for (owner, name, answer), asked in zip(self._places, self._asked, strict=True):
            setattr(owner, name, asked if on else lambda *_, answer=answer: answer)


def watched_call(name: str):
    """A call of the wrapper without the engine's run, and its guards."""
    torch.manual_seed(0)
    module, loss_of = MODELS[name](**({"batch": 1, "length": 16} if name == "bert" else {}))
    model = ORTModule(module.train())
    loss_of(model)
    report = model.explain()
    assert not report.reasons(), report
    kept = model._ortmodule._latest
    real, outputs = kept.run, []
    kept.run = lambda tensors: outputs.append(real(tensors)) or outputs[-1]
    loss_of(model)
    kept.run = lambda tensors: outputs[-1]
    return lambda: loss_of(model), Guards(model._ortmodule)


def medians(call, guards: Guards, calls: int) -> tuple[float, float]:
    """Microseconds a call with guards and without, in turn."""
    times: dict[bool, list[float]] = {True: [], False: []}
    for k in range(2 * calls):
        on = k % 2 == 0
        guards.switch(on)
        start = time.perf_counter()
        call()
        times[on].append(1e6 * (time.perf_counter() - start))
    guards.switch(True)
    return statistics.median(times[True]), statistics.median(times[False])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["mlp", "bert"])
    parser.add_argument("--calls", type=int, default=10_000)
    given = parser.parse_args()
    print(f"Python {platform.python_version()}, torch {torch.__version__}")
    for name in given.models:
        on, off = medians(*watched_call(name), given.calls)
        print(f"{name}: {on:.1f} us with guards, {off:.1f} without: {on - off:.1f} us")


if __name__ == "__main__":
    main()
