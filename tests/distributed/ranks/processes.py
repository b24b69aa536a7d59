"""A few processes on Gloo that stay, and run one function after the other on all ranks."""

import datetime
import importlib
import os
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from fork_server import Forked

WAIT = 120  # seconds for one function


class Processes:
    """`run("module", "function", *args)` gives what each rank's call of it returned, in order.

    An exception of a rank is raised here with its traceback; afterwards the processes are others.
    """

    def __init__(self, count: int, folder: Path, timeout: float | None = None):
        self._count, self._folder, self._started = count, folder, 0
        self._timeout = timeout  # seconds of an operation of Gloo's
        self._processes: list = []
        self._pipes: list = []

    def run(self, module: str, function: str, *args: Any) -> list[Any]:
        answers = self.outcomes(module, function, *args)
        for rank, (ok, value) in enumerate(answers):
            if not ok:
                self.stop()
                raise AssertionError(f"{function}{args} on rank {rank}:\n{value}")
        return [value for _, value in answers]

    def outcomes(self, module: str, function: str, *args: Any) -> list[tuple[bool, Any]]:
        """As `run`, with (False, what happened) of a rank that failed or is gone."""
        if not self._processes:
            self._start()
        for pipe in self._pipes:
            pipe.send((module, function, args))
        return [self._answer(rank, pipe) for rank, pipe in enumerate(self._pipes)]

    def _answer(self, rank: int, pipe: Any) -> tuple[bool, Any]:
        try:
            return pipe.recv() if pipe.poll(WAIT) else (False, f"no answer in {WAIT} s")
        except (EOFError, ConnectionError):
            return False, f"rank {rank} is gone"

    def stop(self) -> None:
        for process in self._processes:
            process.kill()
        self._processes, self._pipes = [], []

    def _start(self) -> None:
        store = str(self._folder / f"store{self._started}")
        self._started += 1
        self._processes = [
            Forked(rank, _serve, rank, self._count, store, self._timeout)
            for rank in range(self._count)
        ]
        self._pipes = [process.pipe for process in self._processes]


def _serve(pipe: Any, rank: int, count: int, store: str, timeout: float | None) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=count,
        timeout=timeout and datetime.timedelta(seconds=timeout),
    )  # fmt: skip
    while True:
        try:
            module, function, args = pipe.recv()
        except EOFError:
            os._exit(0)
        try:
            answer = True, getattr(importlib.import_module(module), function)(*args)
        except BaseException:
            answer = False, traceback.format_exc()
        pipe.send(answer)
