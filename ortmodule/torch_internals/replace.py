"""Functions, methods and attributes of torch's with something of ours in their place, for a while.

The whole process sees them, so whoever puts several there holds LOCK; what is for one thread alone
asks which thread calls.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..errors import NotCapturable
from ..fork import guarded

LOCK = guarded(threading.RLock())
_NOT_THERE = object()


def put(stack: contextlib.ExitStack, owner: Any, name: str, new: Any) -> None:
    """Sets an attribute of a class or module of torch's until the stack ends; where the owner only
    inherits or looks up its own, that is seen again then."""
    own = vars(owner).get(name, _NOT_THERE)
    setattr(owner, name, new)
    if own is _NOT_THERE:
        stack.callback(delattr, owner, name)
    else:
        stack.callback(setattr, owner, name, own)


def put_for_this_thread(
    stack: contextlib.ExitStack, owner: Any, name: str, make: Callable[[Any], Any]
) -> None:
    """Until the stack ends, this thread's calls go to make(original); those of others as before."""
    thread, original = threading.get_ident(), _own(owner, name)
    new = make(original)

    @functools.wraps(original)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (new if threading.get_ident() == thread else original)(*args, **kwargs)

    put(stack, owner, name, chosen)


@contextlib.contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Within, make(original) stands in the original's place."""
    with contextlib.ExitStack() as stack:
        put(stack, owner, name, make(_own(owner, name)))
        yield


def first_of(owner: Any, *names: str) -> str:
    """The first of these names that the owner has, the newest first: torch has renamed it."""
    return next((name for name in names if hasattr(owner, name)), names[0])


def _own(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        home = getattr(owner, "__qualname__", owner.__name__)
        raise NotCapturable(
            f"torch {torch.__version__} has no {home}.{name}, which is to be replaced"
        ) from None
