"""What an export asserts: of sizes that depend on data, and of the elements of tensors.

Called by translator.py for numbers; what follows from the sizes of a call is held by its guards.
"""

from typing import Any

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ..records.assumed import is_assumed
from ..records.sizes import express, late_names
from .registry import aten


def assert_number(t: Any, condition: Any, message: str) -> None:
    """torch's assertion about sizes that only a run tells; those that always hold are left out."""
    if not isinstance(condition, torch.SymBool) or not free_unbacked_symbols(condition):
        return
    expr = condition.node.expr
    if _always_holds(expr) or isinstance(expr, sympy.Eq) and _are_one(t, expr):
        return
    if t.standard and (_may_broadcast(expr) or is_assumed(condition.node.shape_env, expr)):
        t.refuse(
            f"the trace holds where {expr}, for sizes that depend on data, and a file has no checks"
        )
    t.check(t.truth(expr), message)


def _always_holds(expr: Any) -> bool:
    """0 <= u: of a size."""
    if not isinstance(expr, (sympy.Ge, sympy.Le)):
        return False
    small, large = (expr.lhs, expr.rhs) if isinstance(expr, sympy.Le) else (expr.rhs, expr.lhs)
    return large.is_Symbol and small.is_number and bool(small <= 0)


def _may_broadcast(expr: Any) -> bool:
    """Two sizes that depend on other data: where they differ, eager may do otherwise than raise."""
    if not isinstance(expr, sympy.Eq) or expr.rhs.is_number or expr.lhs.is_number:
        return False
    left, right = (set(late_names(express(side))) for side in expr.args)
    return left != right


def _are_one(t: Any, equal: sympy.Eq) -> bool:
    """Sizes of masks that are computed alike have two names in the trace."""
    if t.counted:
        return False
    sides = [express(side) for side in equal.args]
    return all(map(t.is_told, sides)) and len(set(map(t.canonical, sides))) == 1


@aten("_assert_async.msg", "_assert_async.default", "_functional_assert_async.msg")
def assert_elements(t, x, message="Expected Tensor with single nonzero value", *_token):
    t.check(t.cast(x, "bool"), message)
    return x
