"""What the examples report: tables of both engines, loss curves, and whether they agree.

Called by all of them.
"""

import pathlib
import statistics
from typing import Any

import matplotlib
from matplotlib import pyplot

NEAR = 2e-2  # how far a loss in halves may be from eager's


def table(results: dict, epochs: int) -> str:
    """Engines side by side."""
    ours = results["ORTModule"]["report"]
    steps = ", ".join(f"{name} {count}" for name, count in sorted(ours.providers.items()))
    epoch = [len(r["losses"]) // epochs for r in results.values()][0]
    rows = [("", *results)]
    rows.append(("test accuracy", *(f"{r['accuracy']:.1%}" for r in results.values())))
    for k in range(epochs):
        means = (
            statistics.mean(r["losses"][k * epoch : (k + 1) * epoch]) for r in results.values()
        )
        rows.append((f"loss, mean of epoch {k + 1}", *(f"{mean:.4f}" for mean in means)))
    rows.append(("first step (s)", *(f"{r['first']:.2f}" for r in results.values())))
    rows.append(("step, median (ms)", *(f"{r['step'] * 1e3:.0f}" for r in results.values())))
    rows.append(("peak memory (MB)", *(f"{r['peak']:.0f}" for r in results.values())))
    rows.append(("steps of the plan", "-", steps or "none"))
    rows.append(("fallbacks", "-", str(len(ours.fallbacks))))
    return "\n".join(f"{name:24}{eager:>12}{mine:>20}" for name, eager, mine in rows)


def curves(results: dict, path: pathlib.Path) -> None:
    """The loss of every step as a PNG."""
    matplotlib.use("Agg")
    for name, result in results.items():
        pyplot.plot(result["losses"], label=name, alpha=0.8)
    pyplot.xlabel("step")
    pyplot.ylabel("training loss")
    pyplot.legend()
    pyplot.savefig(path, dpi=120)


def compare(eager: list[float], ours: list[float], explained: Any) -> int | str:
    """Prints losses and what explain() says, in a line each; 0, or what is wrong."""
    for name, losses in (("eager", eager), ("ORTModule", ours)):
        print(f"{name:9}", *(f"{loss:.3f}" for loss in losses))
    print(explained.line())
    if explained.fallbacks:
        return "\n".join(map(str, explained.fallbacks))
    near = all(abs(a - b) <= NEAR for a, b in zip(eager, ours, strict=True))
    return 0 if near else "the losses differ"
