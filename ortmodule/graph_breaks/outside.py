"""What torch computes between the parts of a module, learnt in a call that made new ones."""

from collections.abc import Callable

from ..places import caller_place
from ..torch_internals.modes import (
    TorchDispatchMode,
    current_dispatch_mode,
    disable_current_modes,
    no_dispatch_modes_left,
)
from ..torch_internals.tracing import HigherOrderOperator

# Asked of a value by Python, which is what a part ends for; nothing is computed.
_READS = {"_local_scalar_dense", "item", "is_nonzero", "equal", "detach", "alias", "_to_copy"}


class Outside(TorchDispatchMode):
    """Within, `noted(op, file, line)` hears of what torch computes outside of parts, and where."""

    supports_higher_order_operators = True  # as torch.cond, whose bodies are operators again

    def __init__(self, noted: Callable[[str, str | None, int | None], None]):
        super().__init__()
        self._noted = noted
        self._entered = 0

    def __enter__(self) -> "Outside":
        self._entered += 1
        return super().__enter__()

    def __exit__(self, *raised) -> None:
        if self._entered:
            self._entered -= 1
            super().__exit__(*raised)
        else:  # it was left within
            no_dispatch_modes_left()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True  # so that Dynamo cuts as it does without

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        higher = isinstance(func, HigherOrderOperator)
        if not higher and not func.is_view and func._schema.name.partition("::")[2] not in _READS:
            place = caller_place()
            self._noted(str(func), place.get("file"), place.get("line"))
        return func(*args, **(kwargs or {}))


def leave() -> None:
    """Nothing more is noted in this thread: under a mode torch refuses what eager does, as to make
    a tensor of a subclass of numbers."""
    mode = current_dispatch_mode()
    if isinstance(mode, Outside):
        mode.__exit__(None, None, None)


inside = disable_current_modes  # around a part, and while Dynamo looks for one
