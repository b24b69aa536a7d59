"""Resampling: torch's interpolate."""

import numpy as np

from ..emit import FLOATING
from ..registry import aten


def _resized(t, x, factors, **attrs):
    """x at the sizes of the trace. `factors` of the spatial axes, where torch was given some:
    positions come of them, and else of the sizes."""
    if any(not isinstance(factor, (float, int)) for factor in factors):
        return NotImplemented  # made of sizes
    if 0 in (*x.dims, *t.out_dims()):
        return NotImplemented  # torch refuses some
    factors = [float(factor) for factor in factors]
    if t.standard and factors:
        scales = t.constant(np.array([1.0, 1.0, *factors], dtype=np.float32))
        y = t.op("Resize", x, None, scales, **attrs)
        if list(y.dims) == t.out_dims():
            return y
    own = {} if t.standard else {"torch_scales": [0.0, 0.0, *(factors or [0.0] * (x.rank - 2))]}
    return t.op("Resize", x, None, None, t.sizes(t.out_dims()), **attrs, **own)


def _factors(given):
    """As a list of the overload `vec`, or one by one after the sizes."""
    given = given[0] if len(given) == 1 and isinstance(given[0], (list, tuple)) else given
    return [factor for factor in given if factor is not None]


def _nearest(exact):
    attrs = {
        "mode": "nearest",
        "coordinate_transformation_mode": "half_pixel" if exact else "asymmetric",
        "nearest_mode": "round_prefer_ceil" if exact else "floor",
    }

    def rule(t, x, size, *factors):
        return _resized(t, x, _factors(factors), **attrs)

    return rule


def _weighted(mode, filtered=False):
    attrs = {"mode": mode}
    if mode == "cubic":
        attrs["cubic_coeff_a"] = -0.5 if filtered else -0.75
    if filtered:
        attrs |= {"antialias": 1, "exclude_outside": 1}

    def rule(t, x, size, align_corners, *factors):
        if x.dtype not in FLOATING:
            return NotImplemented  # bytes are weighed in integers
        if filtered and align_corners and t.standard:
            return NotImplemented  # the filter is not where ONNX has it
        coordinates = "align_corners" if align_corners else "half_pixel"
        given = [] if align_corners else _factors(factors)  # corners come of the sizes alone
        return _resized(t, x, given, coordinate_transformation_mode=coordinates, **attrs)

    return rule


for _n in (1, 2, 3):
    for _kind in ("upsample_nearest", "_upsample_nearest_exact"):
        aten(f"{_kind}{_n}d.vec", f"{_kind}{_n}d.default")(_nearest("exact" in _kind))
for _kind in ("linear1d", "bilinear2d", "trilinear3d"):
    aten(f"upsample_{_kind}.vec", f"upsample_{_kind}.default")(_weighted("linear"))
aten("upsample_bicubic2d.vec", "upsample_bicubic2d.default")(_weighted("cubic"))
for _kind, _mode in (("bilinear2d", "linear"), ("bicubic2d", "cubic")):
    aten(f"_upsample_{_kind}_aa.vec", f"_upsample_{_kind}_aa.default")(_weighted(_mode, True))
