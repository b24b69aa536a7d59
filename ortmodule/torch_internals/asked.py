"""What torch's versions do in different ways: the torch at hand is asked once how it does it."""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Answer = TypeVar("_Answer")


def asked(question: Callable[[], _Answer]) -> Callable[[], _Answer]:
    """The question, put once, in a thread of its own: no mode and no hook of the caller's sees the
    tensors that it makes, and gradients are on."""

    @functools.cache
    def answer() -> _Answer:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(question).result()

    return functools.wraps(question)(answer)
