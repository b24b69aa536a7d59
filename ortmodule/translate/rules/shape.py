"""Views and other changes of shape, with the inverses that writes through views need."""

from ...errors import NeedsExactSizes
from ..emit import COMPLEX, INT64_MAX, dtype_name
from ..registry import aten, inverse


def _same(t, x, *_args, **_kwargs):
    return x


def _undo_same(t, base, view, *_args, **_kwargs):
    return view


_IDENTITIES = (
    "contiguous.default", "alias.default", "lift_fresh_copy.default",
    "lift_fresh.default", "lift.default", "resolve_conj.default", "resolve_neg.default",
)  # fmt: skip
aten(*_IDENTITIES)(_same)
inverse(*_IDENTITIES)(_undo_same)


@aten("conj.default", "real.default")
def real(t, x):
    return NotImplemented if x.dtype in COMPLEX else x


@aten("clone.default")
def clone(t, x, *_args, **_kwargs):
    """A value of its own: hooks on a returned copy do not see what passes the original."""
    return t.op("Identity", x) if t.refs[0].tainted else x


inverse("clone.default")(_undo_same)


@aten("detach.default", "detach_copy.default")
def detach(t, x):
    return t.stop(x) if t.refs[0].tainted else x


inverse("detach.default")(_undo_same)

_RESHAPES = (
    "view.default", "reshape.default", "_unsafe_view.default", "flatten.using_ints",
    "unflatten.int", "view_as.default", "reshape_as.default", "ravel.default",
    "_reshape_alias.default", "view_copy.default",
)  # fmt: skip


@aten(*_RESHAPES)
def reshape(t, x, *_args, **_kwargs):
    return t.reshape(x, t.out_dims())


@inverse(*_RESHAPES)
def undo_reshape(t, base, view, *_args, **_kwargs):
    return t.reshape(view, base.dims)


@aten("transpose.int", "swapaxes.default", "swapdims.default")
def transpose(t, x, a, b):
    return x if x.rank == 0 else t.swap(x, a % x.rank, b % x.rank)


@inverse("transpose.int", "swapaxes.default", "swapdims.default")
def undo_transpose(t, base, view, a, b):
    return transpose(t, view, a, b)


@aten("t.default", "numpy_T.default")
def transpose_all(t, x):
    return t.transpose(x, range(x.rank)[::-1])


@inverse("t.default", "numpy_T.default")
def undo_transpose_all(t, base, view):
    return transpose_all(t, view)


@aten("mT.default", "adjoint.default", "mH.default", "matrix_H.default")
def transpose_matrices(t, x):
    """Those that conjugate come here with real numbers alone."""
    return NotImplemented if x.rank < 2 or x.dtype in COMPLEX else t.swap(x, x.rank - 2, x.rank - 1)


@inverse("mT.default")
def undo_transpose_matrices(t, base, view):
    return t.swap(view, view.rank - 2, view.rank - 1)


@aten("permute.default")
def permute(t, x, dims):
    return t.transpose(x, dims)


@inverse("permute.default")
def undo_permute(t, base, view, dims):
    dims = [d % base.rank for d in dims]
    return t.transpose(view, [dims.index(i) for i in range(base.rank)])


_MOVEDIMS = ("movedim.int", "movedim.intlist", "moveaxis.int", "moveaxis.intlist")


@aten(*_MOVEDIMS)
def movedim(t, x, source, destination):
    source = [source] if isinstance(source, int) else source
    destination = [destination] if isinstance(destination, int) else destination
    to = {d % x.rank: s % x.rank for s, d in zip(source, destination, strict=False)}
    rest = iter(i for i in range(x.rank) if i not in to.values())
    return t.transpose(x, [to[i] if i in to else next(rest) for i in range(x.rank)])


@inverse(*_MOVEDIMS)
def undo_movedim(t, base, view, source, destination):
    return movedim(t, view, destination, source)


@aten("unsqueeze.default")
def unsqueeze(t, x, dim):
    return t.unsqueeze(x, [dim % (x.rank + 1)])


@inverse("unsqueeze.default")
def undo_unsqueeze(t, base, view, dim):
    return t.squeeze(view, [dim % (base.rank + 1)])


@aten("squeeze.default", "squeeze.dim", "squeeze.dims")
def squeeze(t, x, dim=None):
    dims = range(x.rank) if dim is None else [dim] if isinstance(dim, int) else dim
    if x.rank == 0:
        return x
    for size in (x.dims[d] for d in dims):
        if t.depends_on_data(size):  # torch traces it as one that stays
            if t.standard:
                t.refuse(f"whether squeeze drops an axis of size {size} depends on data")
            t.check_not(size, 1, "squeeze meets an axis of size 1, which was traced as another")
    return t.squeeze(x, sorted(d % x.rank for d in dims if x.dims[d] == 1))


@inverse("squeeze.default", "squeeze.dim", "squeeze.dims")
def undo_squeeze(t, base, view, *_args):
    return t.reshape(view, base.dims)


_EXPANDS = ("expand.default", "expand_as.default", "broadcast_to.default")


@aten(*_EXPANDS)
def expand(t, x, *_args, **_kwargs):
    return t.expand(x, t.out_dims())


@inverse(*_EXPANDS)
def undo_expand(t, base, view, *_args, **_kwargs):
    if view.dims[view.rank - base.rank :] != base.dims or set(view.dims[: -base.rank or None]) > {
        1
    }:
        t.refuse("forward writes to an element that a tensor shows twice")
    return t.reshape(view, base.dims)


@aten("slice.Tensor")
def slice_(t, x, dim=0, start=None, end=None, step=1):
    axis = dim % x.rank
    bounds = (0 if start is None else start, INT64_MAX if end is None else end, step)
    if not t.is_told(t.out().shape[axis]):  # it has a name of its own: the elements depend on data
        return t.slice(x, axis, *bounds, inside=False)
    y = t.slice(x, axis, *bounds)
    # torch knows from its guards whether a bound lies inside; where it does not, it is clamped.
    return y if list(y.dims) == t.out_dims() else t.slice(x, axis, *bounds, inside=False)


@inverse("slice.Tensor")
def undo_slice(t, base, view, dim=0, start=None, end=None, step=1):
    return slice_scatter(t, base, view, dim, start, end, step)


@aten("slice_scatter.default")
def slice_scatter(t, base, view, dim=0, start=None, end=None, step=1):
    axis, size = dim % base.rank, base.dims[dim]
    start, end = 0 if start is None else start, INT64_MAX if end is None else end
    view = t.cast(view, base.dtype)
    if (start, end, step) == (0, INT64_MAX, 1):
        return view
    if step != 1 or not isinstance(start, int) or not (isinstance(end, int) or end == size):
        if base.dtype in COMPLEX:
            return NotImplemented
        positions = t.op("Range", t.scalar(0, "int64"), t.g.size(size), t.scalar(1, "int64"))
        positions = t.slice(positions, 0, start, end, step)
        return _scatter_along(t, base, view, axis, positions)
    before = t.slice(base, axis, 0, start) if start else None
    after = t.slice(base, axis, end, INT64_MAX) if end not in (INT64_MAX, size) else None
    return t.concat([x for x in (before, view, after) if x is not None], axis)


def _scatter_along(t, base, view, axis, positions):
    """base with the slices at `positions` of `axis` replaced by view's."""
    moved = t.swap(base, 0, axis)
    updates = t.swap(view, 0, axis)
    moved = t.op("ScatterND", moved, t.unsqueeze(positions, [1]), updates)
    return t.swap(moved, 0, axis)


@aten("select.int")
def select(t, x, dim, index):
    if x.dtype not in COMPLEX:  # Gather's gradient adds real numbers
        return t.op("Gather", x, t.scalar(index, "int64"), axis=dim % x.rank)
    if not isinstance(index, int):
        return NotImplemented
    part = t.slice(x, dim % x.rank, index, index + 1 if index != -1 else INT64_MAX)
    return t.squeeze(part, [dim % x.rank])


@inverse("select.int")
def undo_select(t, base, view, dim, index):
    return select_scatter(t, base, view, dim, index)


@aten("select_scatter.default")
def select_scatter(t, base, view, dim, index):
    axis = dim % base.rank
    view = t.unsqueeze(t.cast(view, base.dtype), [axis])
    if index == -1:
        return slice_scatter(t, base, view, axis, -1, None)
    if isinstance(index, int):
        return slice_scatter(t, base, view, axis, index, index + 1)
    return _scatter_along(t, base, view, axis, t.sizes([index]))


def _bounds(x, dim, start, length):
    """Of a narrow, from the front."""
    size = x.dims[dim]
    if isinstance(start, int) and start < 0:
        start = start + size if isinstance(size, int) else f"({size}) + ({start})"
    symbolic = isinstance(start, str) or isinstance(length, str)
    return start, f"({start}) + ({length})" if symbolic else start + length


@aten("narrow.default")
def narrow(t, x, dim, start, length):
    return t.slice(x, dim % x.rank, *_bounds(x, dim, start, length))


@inverse("narrow.default")
def undo_narrow(t, base, view, dim, start, length):
    return slice_scatter(t, base, view, dim, *_bounds(base, dim, start, length))


_SPLITS = (
    "split.Tensor", "split_with_sizes.default", "split.sizes", "chunk.default",
    "tensor_split.sections", "tensor_split.indices",
)  # fmt: skip


@aten(*_SPLITS)
def split(t, x, _sizes, dim=0):
    axis = dim % x.rank
    sizes = [t.out_dims(i)[axis] for i in range(len(t.node.meta["val"]))]
    if len(sizes) == 1:
        return [x]
    return t.op("Split", x, t.sizes(sizes), n=len(sizes), axis=axis)


@inverse(*_SPLITS)
def undo_split(t, base, view, index, _sizes, dim=0):
    parts = list(split(t, base, _sizes, dim))
    parts[index] = view
    return t.concat(parts, dim % base.rank)


def _along(axis):
    """hsplit and its kin: of a vector hsplit takes the only axis."""
    return lambda rank: axis if rank > axis else 0


for _name, _axis in (("hsplit", _along(1)), ("vsplit", _along(0)), ("dsplit", _along(2))):
    for _overload in ("int", "array"):
        aten(f"{_name}.{_overload}")(
            lambda t, x, sizes, axis=_axis: split(t, x, sizes, axis(x.rank))
        )
        inverse(f"{_name}.{_overload}")(
            lambda t, base, view, index, sizes, axis=_axis: undo_split(
                t, base, view, index, sizes, axis(base.rank)
            )
        )


@aten("unbind.int")
def unbind(t, x, dim=0):
    return [select(t, x, dim, i) for i in range(len(t.node.meta["val"]))]


@inverse("unbind.int")
def undo_unbind(t, base, view, index, dim=0):
    return select_scatter(t, base, view, dim, index)


@aten("cat.default", "concat.default")
def cat(t, xs, dim=0):
    dtype = t.out_dtype()
    # torch lets an empty vector be joined to anything; transformers' caches start as one.
    full = [x for x in xs if list(x.dims) != [0]] or xs[:1]
    dropped = [i for i, x in enumerate(xs) if list(x.dims) == [0]]
    if any(t.gradient_to(0, i) for i in dropped):
        return NotImplemented  # an empty one has a gradient too
    return t.concat([t.cast(x, dtype) for x in full], dim % full[0].rank)


@aten("stack.default")
def stack(t, xs, dim=0):
    dtype, axis = t.out_dtype(), dim % (xs[0].rank + 1)
    return t.concat([t.unsqueeze(t.cast(x, dtype), [axis]) for x in xs], axis)


@aten("repeat.default", "tile.default")
def repeat(t, x, repeats):
    rank = max(x.rank, len(repeats))
    x = t.reshape(x, [*[1] * (rank - x.rank), *x.dims])
    return t.op("Tile", x, t.sizes([*[1] * (rank - len(repeats)), *repeats]))


@aten("repeat_interleave.self_int")
def repeat_interleave(t, x, repeats, dim=None, *, output_size=None):
    if dim is None:
        x, dim = t.op("Reshape", x, t.ints([-1])), 0
    axis = dim % x.rank
    wide = t.unsqueeze(x, [axis + 1])
    wide = t.expand(wide, [*x.dims[: axis + 1], repeats, *x.dims[axis + 1 :]])
    return t.reshape(wide, t.out_dims())


@aten("flip.default")
def flip(t, x, dims):
    if t.standard:  # onnxruntime's optimiser makes an empty tensor of the ranges below
        first, beyond = t.ints([-1] * len(dims)), t.ints([-INT64_MAX] * len(dims))
        return t.op("Slice", x, first, beyond, t.ints(dims), first) if dims else x
    for dim in dims:
        last = t.op("Sub", t.g.size(x.dims[dim]), t.scalar(1, "int64"))
        backwards = t.op("Range", last, t.scalar(-1, "int64"), t.scalar(-1, "int64"))
        x = t.op("Gather", x, t.fit(backwards, [x.dims[dim]], "int64"), axis=dim % x.rank)
    return x


@aten("roll.default")
def roll(t, x, shifts, dims=()):
    if not dims:
        flat = t.op("Reshape", x, t.ints([-1]))
        return t.reshape(_rolled(t, flat, shifts[0], 0), x.dims)
    for shift, dim in zip(shifts, dims, strict=False):
        x = _rolled(t, x, shift, dim % x.rank)
    return x


def _rolled(t, x, shift, axis):
    shift = t.static(shift, "the shift of roll")
    size = x.dims[axis]
    shift = shift % size if isinstance(size, int) and size else shift
    if shift == 0:
        return x
    return t.concat([t.slice(x, axis, -shift, INT64_MAX), t.slice(x, axis, 0, -shift)], axis)


@aten("pad.default", "constant_pad_nd.default")
def pad(t, x, pads, mode="constant", value=None):
    if isinstance(mode, (int, float)):  # constant_pad_nd(x, pads, value)
        mode, value = "constant", mode
    onnx = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    axes = [x.rank - 1 - i for i in range(len(pads) // 2)]
    grows = all(isinstance(number, int) and number >= 0 for number in pads)
    if mode == "reflect" and not grows:  # around the end of what is not cut off
        return NotImplemented
    if mode == "circular" and not all(_once_around(x, *ends) for ends in _ends(axes, pads)):
        if not grows and not all(isinstance(size, int) for size in x.dims):
            t.refuse("what circular padding cuts off depends on sizes", kind=NeedsExactSizes)
        return NotImplemented
    amounts = t.sizes([*pads[0::2], *pads[1::2]])
    value = 0 if value is None else value
    fill = t.scalar(value, x.dtype) if mode == "constant" else None
    return t.op("Pad", x, amounts, fill, t.ints(axes), mode=onnx[mode])


def _ends(axes, pads):
    return zip(axes, pads[0::2], pads[1::2], strict=True)


def _once_around(x, axis, before, after):
    """torch's own circular padding has meanings of its own beyond this."""
    numbers = all(isinstance(n, int) for n in (x.dims[axis], before, after))
    return numbers and before >= 0 and after >= 0 and max(before, after) <= x.dims[axis]


for _rank in (1, 2, 3):
    for _mode in ("reflection", "replication"):
        _onnx_mode = "reflect" if _mode == "reflection" else "replicate"
        aten(f"{_mode}_pad{_rank}d.default")(
            lambda t, x, pads, mode=_onnx_mode: pad(t, x, pads, mode)
        )


@aten("tril.default")
def tril(t, x, diagonal=0):
    return t.op("Trilu", x, t.scalar(diagonal, "int64"), upper=0)


@aten("triu.default")
def triu(t, x, diagonal=0):
    return t.op("Trilu", x, t.scalar(diagonal, "int64"), upper=1)


@aten("unfold.default")
def unfold(t, x, dim, size, step):
    if x.rank == 0 or x.dtype in COMPLEX:
        return NotImplemented
    axis = dim % x.rank
    count = t.out_dims()[axis]
    starts = t.op("Range", t.scalar(0, "int64"), t.g.size(count), t.scalar(1, "int64"))
    starts = t.op("Mul", t.unsqueeze(starts, [1]), t.scalar(step, "int64"))
    positions = t.op("Add", starts, t.ints(range(size)))
    windows = t.op("Gather", x, positions, axis=axis)  # [..., count, size, ...]
    order = [i for i in range(windows.rank) if i != axis + 1]
    return t.transpose(windows, [*order, axis + 1])


@inverse("unfold.default")
def undo_unfold(t, base, view, dim, size, step):
    if size > step:
        t.refuse("forward writes to an element that a tensor shows twice")
    return NotImplemented


@aten("view.dtype")
def view_dtype(t, x, dtype):
    """Other numbers in the same bytes; of another size torch takes several for one."""
    if t.out_dims() != x.dims:
        return NotImplemented
    return t.op("BitCast", x, to=dtype_name(dtype))


@inverse("view.dtype")
def undo_view_dtype(t, base, view, _dtype):
    if view.dims != base.dims:
        t.refuse("forward writes through a view of another dtype, of another size")
    return t.op("BitCast", view, to=base.dtype)


@aten("_shape_as_tensor.default")
def shape_as_tensor(t, x):
    return t.sizes(x.dims)


@aten("broadcast_tensors.default")
def broadcast_tensors(t, xs):
    return [t.expand(x, t.out_dims(i)) for i, x in enumerate(xs)]


@aten("meshgrid.default", "meshgrid.indexing")
def meshgrid(t, xs, *, indexing="ij"):
    outs = []
    for i, x in enumerate(xs):
        axis = {0: 1, 1: 0}.get(i, i) if indexing == "xy" and len(xs) > 1 else i
        shape = [1] * len(xs)
        shape[axis] = x.dims[0] if x.rank else 1
        outs.append(t.expand(t.reshape(x, shape), t.out_dims(i)))
    return outs
