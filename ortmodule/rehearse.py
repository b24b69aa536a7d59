"""A rehearsal in eager: would this call raise there too, and what?

Called by module.py under Options(fallback="error") where a call cannot go through the engine: what
is wrong with the call itself must surface as eager's own exception. The module, its buffers, the
arguments and torch's generator are put back as they were.
"""

import contextlib
from collections.abc import Iterator

import torch
from torch import nn

from . import tree
from .guards import Snapshot


def eager_error(module: nn.Module, args: tuple, kwargs: dict) -> Exception | None:
    """What `module(*args, **kwargs)` raises in eager; None when it raises nothing."""
    with _undone(module, args, kwargs):
        try:
            module(*args, **kwargs)
        except Exception as error:
            return error
    return None


@contextlib.contextmanager
def _undone(module: nn.Module, args: tuple, kwargs: dict) -> Iterator[None]:
    before, random = Snapshot(module), torch.get_rng_state()
    try:
        given, _ = tree.flatten([args, kwargs], "arguments")
    except tree.UnknownLeaf:
        given = []
    kept = [(t, t.detach().clone()) for t in (*module.buffers(), *given)]
    try:
        yield
    finally:
        before.restore()
        torch.set_rng_state(random)
        with torch.no_grad():
            for tensor, value in kept:  # batch norm moves no version
                if not torch.equal(tensor, value):
                    tensor.copy_(value)
