"""What an export asserts: of sizes that depend on data, and of the elements of tensors.

Called by translator.py for numbers; what follows from the sizes of a call is held by its guards.
"""

from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ..sizes import express
from .registry import aten

_COMPARED = {
    sympy.Eq: "Equal", sympy.Ge: "GreaterOrEqual", sympy.Gt: "Greater", sympy.Le: "LessOrEqual",
    sympy.Lt: "Less",
}  # fmt: skip
_JOINED = {sympy.And: "And", sympy.Or: "Or"}


def assert_number(t: Any, condition: Any, message: str) -> None:
    """torch's assertion about sizes that only a run tells; those that always hold are left out."""
    if not isinstance(condition, torch.SymBool) or not free_unbacked_symbols(condition):
        return
    if not _always_holds(condition.node.expr):
        t.check(_truth(t, condition.node.expr), message)


def _always_holds(expr: Any) -> bool:
    """0 <= u: of a size."""
    if not isinstance(expr, (sympy.Ge, sympy.Le)):
        return False
    small, large = (expr.lhs, expr.rhs) if isinstance(expr, sympy.Le) else (expr.rhs, expr.lhs)
    return large.is_Symbol and small.is_number and bool(small <= 0)


def _truth(t: Any, expr: Any) -> Any:
    """A condition on sizes as a 0-d tensor."""
    if isinstance(expr, sympy.Not):
        return t.op("Not", _truth(t, expr.args[0]))
    if isinstance(expr, sympy.Ne):
        return t.op("Not", _truth(t, sympy.Eq(*expr.args, evaluate=False)))
    for kind, op in _COMPARED.items():
        if isinstance(expr, kind):
            return t.op(op, *(t.scalar(express(side), "int64") for side in expr.args))
    for kind, op in _JOINED.items():
        if isinstance(expr, kind):
            result = _truth(t, expr.args[0])
            for other in expr.args[1:]:
                result = t.op(op, result, _truth(t, other))
            return result
    return t.refuse(f"torch asserts {expr} of sizes that depend on data")


@aten("_assert_async.msg", "_assert_async.default", "_functional_assert_async.msg")
def assert_elements(t, x, message="Expected Tensor with single nonzero value", *_token):
    t.check(t.cast(x, "bool"), message)
    return x
