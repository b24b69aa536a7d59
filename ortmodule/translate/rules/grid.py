"""Images that are read at a grid's positions: torch's grid_sample."""

from ..emit import FLOATING
from ..registry import aten

_MODES = ("linear", "nearest", "cubic")
_PADDING = ("zeros", "border", "reflection")


@aten("grid_sampler.default", "grid_sampler_2d.default", "grid_sampler_3d.default")
def grid_sampler(t, x, grid, mode, padding, align_corners):
    if x.dtype not in FLOATING or x.dtype != grid.dtype:
        return NotImplemented
    words = {"mode": _MODES[mode], "padding_mode": _PADDING[padding]}
    return t.op("GridSample", x, grid, align_corners=int(align_corners), **words)
