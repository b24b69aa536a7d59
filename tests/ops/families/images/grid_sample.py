"""GridSample and its gradients: torch's grid_sample, and where torch has none ONNX's text, tap by
tap."""

import itertools
import math

import numpy as np
import torch
import torch.nn.functional as F

from ...table import Op, bad, i, sample, t

TORCHS = {"linear": "bilinear", "nearest": "nearest", "cubic": "bicubic"}


def fold(at, size, padding, align):
    """A position, or an element's, as padding has it."""
    if padding == "zeros":
        return at
    if padding == "reflection":
        low, span = (0.0, size - 1.0) if align else (-0.5, float(size))
        if span == 0:
            return at * 0
        far = (at - low).abs()
        rest, odd = far % span, (far / span).floor() % 2
        at = low + torch.where(odd == 1, span - rest, rest)
    return at.clamp(0, size - 1)


def keys(x, a=-0.75):
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    return near if x <= 1 else ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


def axis_taps(at, size, mode, padding, align):
    """(element or None, weight) of each tap along an axis."""
    if mode != "cubic":
        at = fold(at, size, padding, align)
    low = at.detach().floor()
    if mode == "nearest":
        found = [(at.detach().round(), 1.0)]
    elif mode == "linear":
        found = [(low, 1 - (at - low)), (low + 1, at - low)]
    else:
        found = [(fold(low + k, size, padding, align), keys((at - low - k).abs()))
                 for k in (-1, 0, 1, 2)]  # fmt: skip
    return [(int(x) if 0 <= x < size else None, weight) for x, weight in found]


def by_taps(x, grid, mode, padding, align, in_elements):
    space = x.shape[2:]
    places = itertools.product(*map(range, grid.shape[:-1]))
    values = []
    for place in places:
        taps = []
        for axis, size in enumerate(space):
            at = grid[place][len(space) - 1 - axis]
            if not in_elements:
                at = (at + 1) / 2 * (size - 1) if align else ((at + 1) * size - 1) / 2
            taps.append(axis_taps(at, size, mode, padding, align))
        value = torch.zeros(x.shape[1], dtype=x.dtype)
        for some in itertools.product(*taps):
            index, weights = zip(*some, strict=True)
            if None not in index:
                value = value + x[(place[0], slice(None), *index)] * math.prod(weights)
        values.append(value)
    y = torch.stack(values) if values else torch.zeros(0, x.shape[1], dtype=x.dtype)
    return y.reshape(*grid.shape[:-1], x.shape[1]).movedim(-1, 1)


def grid_sample(x, grid, align_corners=0, mode="linear", padding_mode="zeros", in_elements=0):
    rank = x.dim() - 2
    if grid.shape[-1] != rank or grid.shape[0] != x.shape[0] or 0 in x.shape[2:]:
        raise ValueError("they do not fit")
    wide = x.to(torch.promote_types(grid.dtype, x.dtype)) if x.is_floating_point() else x.double()
    torchs = rank == 2 or (rank == 3 and mode != "cubic")
    if torchs and not in_elements:
        y = F.grid_sample(wide, grid.to(wide.dtype), TORCHS[mode], padding_mode,
                          bool(align_corners))  # fmt: skip
    else:
        y = by_taps(wide, grid, mode, padding_mode, bool(align_corners), in_elements)
    if not x.is_floating_point():
        info = torch.iinfo(x.dtype)
        return y.clamp(info.min, info.max).to(x.dtype)
    return y.to(x.dtype)


def grid_sample_grad(dy, grid, *, dims, **attrs):
    x = torch.zeros(dims, dtype=dy.dtype, requires_grad=True)
    return torch.autograd.grad(grid_sample(x, grid, **attrs), x, dy)[0]


def positions_grad(dy, x, grid, **attrs):
    grid = grid.detach().clone().requires_grad_()
    y = grid_sample(x, grid, **attrs)
    return torch.autograd.grad(y, grid, dy)[0] if y.requires_grad else torch.zeros_like(grid)


IMAGE, VOLUME, LINE = (2, 3, 5, 4), (2, 2, 3, 4, 5), (2, 3, 6)


def places(x, *space):
    return t(x[0], *space, len(space), low=-1.6, high=1.6)


def at(mode, padding_mode, align_corners, **attrs):
    return {"mode": mode, "padding_mode": padding_mode, "align_corners": align_corners, **attrs}


WAYS = [at(*way) for way in itertools.product(TORCHS, ("zeros", "border", "reflection"), (0, 1))]
CASES = [
    *[(IMAGE, (3, 7), attrs) for attrs in WAYS],
    *[(VOLUME, (2, 3, 2), attrs) for attrs in WAYS if attrs["mode"] != "cubic"],
    (VOLUME, (1, 2, 2), at("cubic", "zeros", 0)),
    (VOLUME, (1, 2, 2), at("cubic", "reflection", 1)),
    (LINE, (7,), at("linear", "reflection", 0)),
    (LINE, (7,), at("cubic", "border", 1)),
    ((1, 2, 1, 1), (3, 2), at("linear", "reflection", 1)),
    ((1, 2, 1, 3), (3, 2), at("linear", "border", 0)),
    ((1, 2, 3, 2), (18, 17), at("linear", "zeros", 0)),  # more than a vector
    ((1, 1, 2, 3, 2, 2), (2, 1, 2, 1), at("linear", "zeros", 0)),
]


def elements(shape, *space):
    """Positions in elements."""
    return t(shape[0], *space, len(space), low=-1.5, high=4.5)


ERRORS = [
    bad("X has shape [2, 3] and grid [2, 4, 2], expected [N, C, D1..Dr]", t(2, 3), t(2, 4, 2)),
    bad("X has shape [2, 3, 4, 5] and grid [2, 6, 7, 3]", t(2, 3, 4, 5), t(2, 6, 7, 3)),
    bad("X has 2 images, grid is for 1", t(2, 3, 4, 5), t(1, 6, 7, 2)),
    bad("there is nothing to read along axis 3", t(2, 3, 4, 0), t(2, 6, 7, 2)),
    bad("attribute 'mode' is 'area', expected one of linear, nearest, cubic", t(2, 3, 4, 5),
        t(2, 6, 7, 2), mode="area"),
    bad("attribute 'padding_mode' is 'wrap'", t(2, 3, 4, 5), t(2, 6, 7, 2), padding_mode="wrap"),
]  # fmt: skip
LOST = np.array([[np.nan, 0.1], [0.21, np.nan], [np.inf, 0.0], [-np.inf, 0.3], [1e30, -1e30],
                 [3e9, 0.5], [-0.4, -7e18], [0.3, 0.25]])[None, :, None]  # fmt: skip
LOST = LOST.astype("float32")
# Half of an element of 4 and of 8: ties, which are told to be even, and just beyond the border.
QUARTERS = i(1, 3, 4, 2, low=-4, high=20) / 4.0
TIES = np.stack(np.meshgrid(np.arange(-5, 6) / 4, np.arange(-9, 10) / 8), -1)[None]

OPS = [
    Op(
        "GridSample",
        grid_sample,
        [sample(t(*shape), places(shape, *space), **attrs) for shape, space, attrs in CASES]
        + [sample(t(*IMAGE), elements(IMAGE, 3, 2), in_elements=1, **at(mode, "zeros", 0))
           for mode in TORCHS]
        + [sample(t(1, 2, 5, 4), LOST.copy(), gradient=False, **at(mode, padding, 0))
           for mode, padding in itertools.product(TORCHS, ("zeros", "border"))]
        + [sample(t(1, 2, 8, 4), TIES, smooth=False, **at("nearest", padding, 0))
           for padding in ("zeros", "border")]
        + [sample(i(1, 2, 5, 4, low=-9, dtype=dtype), QUARTERS, in_elements=1,
                  **at(mode, "border", 1)) for dtype in ("int64", "int8") for mode in TORCHS],
        ERRORS,
        wrt=(0, 1),
    ),
    Op(
        "ort::GridSampleGrad",
        grid_sample_grad,
        [sample(t(*shape[:2], *space), places(shape, *space), dims=list(shape), symbolic=False,
                **attrs) for shape, space, attrs in CASES],
        [bad("dY has shape [1, 2, 3, 4], expected [1, 2, 3, 3]", t(1, 2, 3, 4), t(1, 3, 3, 2),
             dims=[1, 2, 5, 5])],
        no_gradient="only in a backward",
    ),
    Op(
        "ort::GridSamplePositionsGrad",
        positions_grad,
        [sample(t(*shape[:2], *space), t(*shape), places(shape, *space), **attrs)
         for shape, space, attrs in CASES],
        [bad("dY has shape [1, 2, 3, 4], expected [1, 2, 3, 3]", t(1, 2, 3, 4), t(1, 2, 5, 5),
             t(1, 3, 3, 2))],
        no_gradient="only in a backward",
    ),
]  # fmt: skip
