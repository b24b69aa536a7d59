"""Functions, methods and attributes of torch's with something of ours in their place, for a while.

The whole process sees them; what is for one thread alone asks which thread calls.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

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


@contextlib.contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Within, make(original) stands in the original's place."""
    with contextlib.ExitStack() as stack:
        put(stack, owner, name, make(getattr(owner, name)))
        yield
