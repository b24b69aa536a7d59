"""Times of a session's runs, written as onnxruntime writes them: a list of trace events."""

import datetime
import json
import os
import time
from typing import Any

from .. import _native


class Profiling:
    """Collects the steps of the runs it is given to, until it is written."""

    def __init__(self, prefix: str):
        self.started_ns = time.monotonic_ns()
        self.steps = _native.core().Profile()
        self._runs: list[tuple[int, int]] = []
        stamp = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S_%f")[:-3]
        self._path = f"{prefix}_{stamp}.json"

    def ran(self, started_ns: int) -> None:
        """A run that began then has ended."""
        self._runs.append((started_ns, time.monotonic_ns()))

    def write(self) -> str:
        """The path of the file that has all of it."""
        begun = self.started_ns / 1e3
        events = [
            _event(
                "Node",
                f"{name}_kernel_time",
                start - begun,
                took,
                {"op_name": name, "provider": "CPUExecutionProvider", "claimed_by": provider},
            )
            for name, provider, start, took in self.steps.events()  # fmt: skip
        ]
        events += [
            _event("Session", "model_run", (start - self.started_ns) / 1e3, (end - start) / 1e3, {})
            for start, end in self._runs
        ]
        with open(self._path, "w") as file:
            json.dump(sorted(events, key=lambda event: event["ts"]), file)
        return self._path


def _event(category: str, name: str, start: float, took: float, about: dict) -> dict[str, Any]:
    """A complete event of the trace format; times in microseconds."""
    return {
        "cat": category,
        "pid": os.getpid(),
        "tid": os.getpid(),
        "ts": round(start),
        "dur": round(took),
        "ph": "X",
        "name": name,
        "args": about,
    }
