"""A call made in eager on its real data, to learn what it does; what it changed is put back.

fallback.py asks whether a call that the engine does not take would raise there too: what is wrong
with the call itself must surface as eager's own exception. export.py asks what it returns.
"""

import contextlib
import contextvars
from collections.abc import Iterator

import torch
from torch import nn

from .. import devices
from ..calls import tree
from ..side_effects.effects import Effects


def eager_error(module: nn.Module, args: tuple, kwargs: dict) -> Exception | None:
    """What `module(*args, **kwargs)` raises in eager; None when it raises nothing."""
    with undone(module, args, kwargs):
        try:
            contextvars.copy_context().run(module.forward, *args, **kwargs)
        except Exception as error:
            return error
    return None


@contextlib.contextmanager
def undone(module: nn.Module, args: tuple, kwargs: dict) -> Iterator[None]:
    """Within, the module may be called so in eager; what it changes is put back."""
    before = Effects(module, own_tensors=False)
    try:
        given, _ = tree.flatten([args, kwargs], "arguments")
    except tree.UnknownLeaf:
        given = []
    kept = [(t, t.detach().clone()) for t in (*module.parameters(), *module.buffers(), *given)]
    device = devices.of((*module.parameters(), *module.buffers(), *given))
    random = devices.random_states(device)
    try:
        yield
    finally:
        before.restore()
        devices.set_random_states(device, random)
        with torch.no_grad():
            for tensor, value in kept:  # batch norm moves no version
                if not torch.equal(tensor, value):
                    tensor.copy_(value)
