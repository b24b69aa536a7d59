"""A training in a process of its own, so that its memory is its own. Called by 01, 08 and 09."""

import concurrent.futures
import multiprocessing
import pathlib
from collections.abc import Callable


def memory(field: str) -> float:
    """A field of this process's status (VmRSS, VmHWM) in MB."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def in_a_process(train: Callable[..., dict], *args, **kwargs) -> dict:
    """train(*args, **kwargs), a function of a module's."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(train, *args, **kwargs).result()
