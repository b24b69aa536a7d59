"""This build against another one, a worktree of an earlier commit that was built with this Python.

Each build has a process of its own for every model; the two take their steps in turn, and a ratio
is the other build's time over this one's in the same round. First steps and peak memory are taken
in fresh processes, in turn too. Run: python benchmarks/before.py ../other-checkout
"""

import argparse
import pathlib
import subprocess
import sys
import time

import compare
from models import MODELS

HERE = pathlib.Path(__file__).resolve().parents[1]


class Build:
    """A process that takes steps of one model with the build of one checkout."""

    def __init__(self, root: pathlib.Path, *what: str):
        command = [sys.executable, __file__, str(root), "--serve", *what]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def seconds(self) -> float:
        """Of the next round."""
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def serve(name: str) -> None:
    """In the process of one build: a line of seconds for each line read."""
    whole, repeat = compare.STEPS[name]
    step = compare.stepper("ours", name, whole)
    for _ in range(3):
        step()
    for _ in sys.stdin:
        start = time.perf_counter()
        for _ in range(repeat):
            step()
        print((time.perf_counter() - start) / repeat, flush=True)


def steps(name: str, other: pathlib.Path, rounds: int) -> list[dict]:
    builds = {"before": Build(other, name), "now": Build(HERE, name)}
    seconds: dict[str, list[float]] = {"before": [], "now": []}
    for turn in range(rounds):
        for build in sorted(builds, reverse=turn % 2 == 1):
            seconds[build].append(builds[build].seconds())
    for build in builds.values():
        build.close()
    return ratios(f"{name}: a step (ms)", seconds, 1e3)


def fresh(kind: str, other: pathlib.Path, rounds: int) -> list[dict]:
    numbers: dict[str, list[float]] = {"before": [], "now": []}
    for _ in range(rounds):
        for build, root in (("before", other), ("now", HERE)):
            child = Build(root, kind, "--fresh")
            numbers[build].append(float(child.process.stdout.read().split()[-1]))
            child.close()
    return ratios(compare.FRESH[kind].__doc__.split(":")[0], numbers, 1)


def ratios(label: str, numbers: dict[str, list[float]], scale: float) -> list[dict]:
    """compare.py's rows, with the other build in eager's place."""
    renamed = {"eager": numbers["before"], "now": numbers["now"]}
    table = compare.rows(label, renamed, scale)
    table[0]["engine"] = "before"
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=pathlib.Path, help="a built checkout of an earlier commit")
    parser.add_argument("--only", nargs="+", choices=[*MODELS, "first", "memory"])
    parser.add_argument("--rounds", type=int, default=21, help="of steps; a third of processes")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--fresh", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        sys.path.insert(0, str(given.other.resolve()))
        print(compare.FRESH[given.serve]("ours")) if given.fresh else serve(given.serve)
        return
    print(f"{compare.processor()}; a ratio is before/now")
    for kind in given.only or [*MODELS, "first", "memory"]:
        if kind in compare.FRESH:
            table = fresh(kind, given.other, max(1, given.rounds // 3))
        else:
            table = steps(kind, given.other, given.rounds)
        print(compare.show(table).replace("eager/it", "before/it"), flush=True)


if __name__ == "__main__":
    main()
