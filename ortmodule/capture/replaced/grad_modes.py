"""Changes of grad mode that an exported program would not tell; entered around a traced forward."""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...errors import NeedsCut
from ...torch_internals.modes import set_grad_enabled


def _autocast_depth() -> int:
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return depth


class GradModes(TorchFunctionMode):
    """Refuses to turn gradients on or off inside of an autocast context that forward entered:
    torch.export leaves that out."""

    def __init__(self) -> None:
        super().__init__()
        self.outside = _autocast_depth()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        changes = func is set_grad_enabled and args[0] != torch.is_grad_enabled()
        if changes and _autocast_depth() > self.outside:
            raise NeedsCut(
                "forward turns gradients on or off inside of an autocast context, which "
                "torch.export does not record"
            )
        return func(*args, **(kwargs or {}))
