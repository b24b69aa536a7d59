"""Linear algebra beyond products."""

from ..emit import FLOATING
from ..registry import aten


@aten("linalg_det.default", "det.default")
def det(t, x):
    if x.dtype not in FLOATING or x.dims[-1] == 0:
        return NotImplemented  # of a matrix without elements torch has no gradient
    return t.op("Det", x)


@aten("_linalg_det.default")
def det_with_factors(t, x):
    y = NotImplemented if t.uses(1) or t.uses(2) else det(t, x)
    return y if y is NotImplemented else [y, None, None]
