"""Random programs, run by us and by others: `python tools/programs --kind module --count 100`.

Each failure is printed as the smallest program that still fails, to be pasted into a file and run.
--seed: the first seed; program k of a kind is the same on any machine. --resume: goes on where the
last run of this commit ended, and keeps a line for each program, as `make long` does. --show: the
program of --seed, and what became of it. known.py lists what is known to fail.
"""

import argparse
import collections
import functools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from programs import kinds, known  # noqa: E402
from programs.shrink import shrink  # noqa: E402
from programs.workers import Worker, serve  # noqa: E402


def results(kind: str) -> Path:
    return ROOT / "build" / f"programs_{kind}.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=sorted(kinds.ALL), default="module")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--whole", action="store_true", help="print failures without shrinking")
    parser.add_argument("--serve", type=int)
    given = parser.parse_args()
    kind = kinds.ALL[given.kind]
    if given.serve is not None:
        return serve(kind.judge(), given.serve)
    if given.show:
        text = kind.program()(given.seed)
        print(text)
        return print(Worker(given.kind).ask(text))
    return sweep(given, kind)


def sweep(given, kind) -> None:
    """Runs the seeds asked for; ends in an error where one fails that is not known."""
    worker, program = Worker(given.kind), kind.program()
    path = results(given.kind)
    done = _done(path) if given.resume else set()
    counts, failed, started = collections.Counter(), 0, time.time()
    for seed in range(given.seed, given.seed + given.count):
        if seed in done:
            continue
        text = program(seed)
        verdict = worker.ask(text)
        if verdict["status"] == "differs":
            again = worker.ask(text, fresh=True)
            verdict = again if again["status"] == "differs" else {**verdict, "status": "unsteady"}
        counts[verdict["status"], verdict.get("ran", "")] += 1
        if verdict["status"] in ("differs", "unsteady"):
            failed += report(worker, seed, text, verdict, given.whole)
        if given.resume:
            _note(path, seed=seed, **verdict)
    worker.end()
    print({" ".join(k).strip(): n for k, n in counts.items()}, f"{time.time() - started:.0f} s")
    if failed:
        sys.exit(f"{failed} programs failed")


def report(worker: Worker, seed: int, text: str, verdict: dict, whole: bool) -> bool:
    """Prints a failure; whether it is a new one."""
    small = text
    hangs = verdict.get("kind") == "hangs"  # as a part of it would, whose loop has lost its count
    if not whole and not hangs and verdict["status"] == "differs":
        small = smallest(worker, text, verdict)
        verdict = {**verdict, **worker.ask(small)}
    why = known.reason(small, verdict)
    print(
        f"--- seed {seed}: {verdict['status']}: {verdict['why']}"
        + (f" (known: {why})" if why else "")
    )
    if not why:
        print(small, flush=True)
    return not why


def smallest(worker: Worker, text: str, verdict: dict) -> str:
    """The smallest program whose failure is of the same kind."""

    def fails(candidate: str) -> bool:
        found = worker.ask(candidate)
        return found["status"] == "differs" and found["kind"] == verdict["kind"]

    return shrink(text, fails)


@functools.cache
def _commit() -> str:
    asked = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True).stdout.strip()


def _note(path: Path, **fields) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        print(json.dumps({**fields, "commit": _commit()}), file=file)


def _done(path: Path) -> set[int]:
    """The seeds that this commit has run and that did not fail."""
    lines = path.read_text().splitlines() if path.exists() else []
    found, commit = [], _commit()
    for line in lines:
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:  # its writer was killed
            continue
    return {f["seed"] for f in found if f["commit"] == commit and f["status"] in ("equal", "eager")}


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
