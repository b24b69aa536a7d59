"""What a call that changed nothing pays for its guards: microseconds a call, with and without them.

The engine's run is left out (its outputs are those of one real call), so that what remains is the
call's own Python and C++. Calls with guards and without are interleaved; `dispatcher.GUARDED` is
the private switch. Run: python benchmarks/guards.py [model ...]
"""

import argparse
import platform
import statistics
import time

import torch
from models import MODELS

from ortmodule import ORTModule
from ortmodule.dispatch import dispatcher


def watched_call(name: str):
    """A call of the wrapper without the engine's run."""
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
    return lambda: loss_of(model)


def medians(call, calls: int) -> tuple[float, float]:
    """Microseconds a call with guards and without, in turn."""
    times: dict[bool, list[float]] = {True: [], False: []}
    for k in range(2 * calls):
        dispatcher.GUARDED = k % 2 == 0
        start = time.perf_counter()
        call()
        times[dispatcher.GUARDED].append(1e6 * (time.perf_counter() - start))
    dispatcher.GUARDED = True
    return statistics.median(times[True]), statistics.median(times[False])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=["mlp", "bert"])
    parser.add_argument("--calls", type=int, default=10_000)
    given = parser.parse_args()
    print(f"Python {platform.python_version()}, torch {torch.__version__}")
    for name in given.models:
        on, off = medians(watched_call(name), given.calls)
        print(f"{name}: {on:.1f} us with guards, {off:.1f} without: {on - off:.1f} us")


if __name__ == "__main__":
    main()
