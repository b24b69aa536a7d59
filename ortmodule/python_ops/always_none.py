"""Which gradients a backward gives as a literal None in every call, as its code tells."""

import dis
import inspect
from collections.abc import Callable
from typing import Any

_JUMPS = {*dis.hasjrel, *dis.hasjabs}  # not all have it in their names: FOR_ITER
_TAKE_NOTHING = ("LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF", "PUSH_NULL", "COPY")


def always_none(backward: Callable) -> frozenset[int]:
    """The positions; none where the code has branches, or is not Python's. Torch's own decorators
    give what they wrap gives; a user's may give anything else."""
    code = getattr(inspect.unwrap(backward, stop=lambda f: not _is_torchs(f)), "__code__", None)
    if code is None or code.co_exceptiontable:
        return frozenset()
    stack: list[Any] = []  # True: None; a list: a tuple of these; False: anything
    for step in dis.get_instructions(code):
        if step.opcode in _JUMPS or step.opname == "SWAP":
            return frozenset()
        if step.opname in ("RETURN_VALUE", "RETURN_CONST"):
            given = stack[-1] if step.opname == "RETURN_VALUE" else _known(step.argval)
            items = given if isinstance(given, list) else [given]
            return frozenset(k for k, item in enumerate(items) if item is True)
        _apply(step, stack)
    return frozenset()


def _known(constant: Any) -> Any:
    return [item is None for item in constant] if type(constant) is tuple else constant is None


def _is_torchs(function: Callable) -> bool:
    """By where its code was made: functools.wraps gives it the name of what it wraps."""
    home = getattr(function, "__globals__", {}).get("__name__", "")
    return home.partition(".")[0] == "torch"


def _apply(step: dis.Instruction, stack: list[Any]) -> None:
    """What is known of the stack after an instruction; it may have taken what was on top."""
    if step.opname == "LOAD_CONST":
        stack.append(_known(step.argval))
    elif step.opname == "BUILD_TUPLE" and step.arg:
        stack[-step.arg :] = [stack[-step.arg :]]
    else:
        change = dis.stack_effect(step.opcode, step.arg)
        del stack[len(stack) + min(change, 0) :]
        if stack and not step.opname.startswith(_TAKE_NOTHING):
            stack[-1] = False
        stack.extend([False] * change)
