"""What an export asserts: of sizes that depend on data, and of the elements of tensors.

Called by translator.py for numbers; what follows from the sizes of a call is held by its guards.
"""

from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from .registry import aten


def assert_number(t: Any, condition: Any, message: str) -> None:
    """torch's assertion about sizes that only a run tells; those that always hold are left out."""
    if not isinstance(condition, torch.SymBool) or not free_unbacked_symbols(condition):
        return
    if not _always_holds(condition.node.expr):
        t.check(t.truth(condition.node.expr), message)


def _always_holds(expr: Any) -> bool:
    """0 <= u: of a size."""
    if not isinstance(expr, (sympy.Ge, sympy.Le)):
        return False
    small, large = (expr.lhs, expr.rhs) if isinstance(expr, sympy.Le) else (expr.rhs, expr.lhs)
    return large.is_Symbol and small.is_number and bool(small <= 0)


@aten("_assert_async.msg", "_assert_async.default", "_functional_assert_async.msg")
def assert_elements(t, x, message="Expected Tensor with single nonzero value", *_token):
    t.check(t.cast(x, "bool"), message)
    return x
