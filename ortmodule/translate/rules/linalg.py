"""Linear algebra beyond products."""

from ..emit import FLOATING
from ..registry import aten


@aten("linalg_det.default", "det.default")
def det(t, x):
    return t.op("Det", x) if x.dtype in FLOATING else NotImplemented


@aten("_linalg_det.default")
def det_with_factors(t, x):
    return NotImplemented if t.uses(1) or t.uses(2) else [det(t, x), None, None]
