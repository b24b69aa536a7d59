"""What torch's own code asks of sizes that depend on data, as an export must know it.

patches.py puts it in the place of ShapeEnv's answer during a capture. Such a size is taken to be
neither 0 nor 1, and two that are compared to be equal; a branch on data that does nothing but
raise, as an `assert` has one, is taken not to be entered. The export asserts what was answered
(translate/asserts.py), so a call where it does not hold is eager's.
"""

import dis
import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import sympy
import torch
from torch.fx.experimental import recording, symbolic_shapes
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from ..places import PACKAGE, TORCH
from ..torch_internals.tracing import SymT, symbol_is_type

# What comes between the code that asks and ShapeEnv.
_BETWEEN = {
    torch.__file__,
    symbolic_shapes.__file__,
    recording.__file__,
    torch.fx.experimental.sym_node.__file__,
    __file__,
}


# Numbers of tensors of floats, which an export asserts nothing of.
_FLOATS = (SymT.FLOAT, SymT.UNBACKED_FLOAT)
_ASSUMED = "assumed of sizes that depend on data"


def is_assumed(env: ShapeEnv, expr: Any) -> bool:
    """Whether an assertion is on sizes of which something was assumed here."""
    assumptions = (a for each in env.deferred_runtime_asserts.values() for a in each)
    return any(a.msg == _ASSUMED and _late(env, a.expr) & expr.free_symbols for a in assumptions)


def assumed(original: Callable) -> Callable:
    """ShapeEnv.evaluate_expr that answers torch's own questions where the original would refuse."""

    def evaluate(self: ShapeEnv, expr: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, expr, *args, **kwargs)
        except GuardOnDataDependentSymNode:
            asking = _asking()
            by_torch = asking.f_code.co_filename.startswith(TORCH)
            holds = _answer(self, expr) if by_torch else None
            if holds is None:
                holds = _unless_raised(asking.f_code, asking.f_lasti)
            if holds is None or any(symbol_is_type(s, _FLOATS) for s in expr.free_symbols):
                raise
        self.guard_or_defer_runtime_assert(expr if holds else sympy.Not(expr), _ASSUMED)
        return sympy.true if holds else sympy.false

    return evaluate


def _answer(env: ShapeEnv, expr: Any) -> bool | None:
    """None where it takes more than that sizes are neither 0 nor 1, and equal where they meet."""
    if not isinstance(expr, sympy.logic.boolalg.Boolean) or not _late(env, expr) <= env.size_like:
        return None
    known = env._maybe_evaluate_static(expr, size_oblivious=True)
    if known in (sympy.true, sympy.false):
        return bool(known)
    are_sizes = isinstance(expr, (sympy.Eq, sympy.Ne)) and not any(a.is_number for a in expr.args)
    return isinstance(expr, sympy.Eq) if are_sizes else None


def _late(env: ShapeEnv, expr: Any) -> set:
    return {symbol for symbol in expr.free_symbols if symbol not in env.backed_var_to_val}


def _asking() -> types.FrameType:
    """The code that asks: torch's, or the user's own, a branch of which may go either way."""
    frame = sys._getframe(2)
    while frame.f_back is not None and _is_between(frame.f_code):
        frame = frame.f_back
    return frame


@functools.cache
def _unless_raised(code: types.CodeType, offset: int) -> bool | None:
    """What the condition at this instruction is where one of its branches raises and it is not
    entered; None: neither does, or both."""
    steps = list(dis.get_instructions(code))
    at = next(i for i, step in enumerate(steps) if step.offset == offset)
    while steps[at].opname in ("TO_BOOL", "COMPARE_OP", "CACHE", "CALL") and at + 1 < len(steps):
        at += 1
    jump = steps[at]
    for holds, word in ((True, "IF_TRUE"), (False, "IF_FALSE")):
        if jump.opname.startswith("POP_JUMP") and jump.opname.endswith(word):
            target = next(i for i, step in enumerate(steps) if step.offset == jump.argval)
            found = [
                result
                for start, result in ((at + 1, holds), (target, not holds))
                if _raises(steps[start:])
            ]
            return found[0] if len(found) == 1 else None
    return None


def _raises(steps: list[dis.Instruction]) -> bool:
    """Whether code that begins so raises, whatever it finds."""
    for step in steps:
        if step.opname == "RAISE_VARARGS":
            return True
        jumps = step.opcode in dis.hasjrel or step.opcode in dis.hasjabs
        if jumps or step.opname.startswith(("RETURN", "YIELD", "RERAISE")):
            return False
    return False


def _is_between(code: types.CodeType) -> bool:
    file = code.co_filename
    is_mode = code.co_name == "__torch_function__"
    return is_mode or file in _BETWEEN or file.startswith(PACKAGE) or file[:1] == "<"
