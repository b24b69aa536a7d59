"""Processes that have imported torch and ortmodule, from which ranks are forked: none imports anew.

There are two, by turns, so that not all ranks share what Python draws at its start (hash seeds).
"""

import contextlib
import gc
import os
import signal
from collections.abc import Callable
from multiprocessing import Pipe, get_context, reduction
from multiprocessing.connection import Connection
from typing import Any

import torch.distributed  # noqa: F401
from ortmodule.distributed import DataParallel  # noqa: F401

from ortmodule import ORTModule, optim  # noqa: F401

COUNT = 2
_servers: list["_Server"] = []


class Forked:
    """A process that runs `function(pipe, *args)`; `pipe` is our end."""

    def __init__(self, turn: int, function: Callable, *args: Any):
        while len(_servers) < COUNT:
            _servers.append(_Server())
        self._server = _servers[turn % COUNT]
        self._pid, self.pipe = self._server.fork(function, args)

    def kill(self) -> None:
        """It is gone afterwards."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        self._server.wait(self._pid)
        self.pipe.close()


class _Server:
    def __init__(self):
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        # Threads, as OpenBLAS starts them when numpy is imported, are not forked.
        before, os.environ["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS"), "1"
        try:
            self._process.start()
        finally:
            del os.environ["OMP_NUM_THREADS"]
            if before is not None:
                os.environ["OMP_NUM_THREADS"] = before
        theirs.close()
        assert self._pipe.recv() == 1, "threads that would not be forked"

    def fork(self, function: Callable, args: tuple) -> tuple[int, Connection]:
        ours, theirs = Pipe()
        self._pipe.send((function, args))
        reduction.send_handle(self._pipe, theirs.fileno(), self._process.pid)
        theirs.close()
        return self._pipe.recv(), ours

    def wait(self, pid: int) -> None:
        self._pipe.send((os.waitpid, (pid, 0)))
        self._pipe.recv()


def _serve(pipe: Connection) -> None:
    gc.freeze()  # a rank's collections leave out what was imported
    pipe.send(len(os.listdir("/proc/self/task")))
    while True:
        try:
            function, args = pipe.recv()
        except EOFError:
            os._exit(0)
        if function is os.waitpid:
            pipe.send(os.waitpid(*args))
            continue
        theirs = Connection(reduction.recv_handle(pipe))
        pid = os.fork()
        if pid == 0:
            pipe.close()
            function(theirs, *args)
            os._exit(0)
        theirs.close()
        pipe.send(pid)
