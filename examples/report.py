"""What the example reports: the table of both engines, and their loss curves.

Called by 01_one_line.py.
"""

import pathlib
import statistics

import matplotlib
from matplotlib import pyplot


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
