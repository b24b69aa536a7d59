"""Reading by index, sorting."""

import math

from ...errors import NeedsExactSizes
from ..emit import COMPLEX
from ..positions import put
from ..registry import aten, inverse


@aten("embedding.default")
def embedding(t, weight, index, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    if scale_grad_by_freq:
        return NotImplemented
    if sparse:
        t.refuse("embedding with sparse gradients has no translation")
    if index.dtype not in ("int64", "int32"):
        t.refuse(f"embedding with indices of {index.dtype}")
    padding_idx = t.static(padding_idx, "the padding of an embedding")  # from the end of weight
    t.hold_positions(index, weight.dims[0])
    return t.ort("Embedding", weight, t.cast(index, "int64"), padding_idx=int(padding_idx))


@aten("embedding_renorm.default")
def embedding_renorm(t, weight, index, max_norm, norm_type):
    return t.refuse("embedding with max_norm writes to its weight")


@aten("gather.default")
def gather(t, x, dim, index, *, sparse_grad=False):
    if x.rank == 0:
        return NotImplemented
    axis = dim % x.rank
    return t.op("GatherElements", x, from_zero(t, index, x.dims[axis]), axis=axis)


@aten("take_along_dim.default")
def take_along_dim(t, x, index, dim=None):
    if dim is None:
        x, index = (t.op("Reshape", v, t.ints([-1])) for v in (x, index))
        return gather(t, x, 0, index)
    axis = dim % x.rank
    dims = [
        o if i != axis else d for i, (o, d) in enumerate(zip(t.out_dims(), x.dims, strict=False))
    ]
    # positions outside of x mean what this torch makes of them: its own call says
    return gather(t, t.expand(x, dims), axis, t.expand(index, t.out_dims()))


@aten("index_select.default")
def index_select(t, x, dim, index):
    if x.rank == 0:
        return NotImplemented
    axis = dim % x.rank
    return t.op("Gather", x, from_zero(t, index, x.dims[axis]), axis=axis)


def from_zero(t, index, size):
    """int64 positions among `size`. Where torch takes no negative one, as ONNX would, it becomes
    one past the end: the kernel refuses it, and eager raises its own error."""
    t.hold_positions(index, size)
    index = t.cast(index, "int64")
    negative = t.op("Less", index, t.scalar(0, "int64"))
    return t.op("Where", negative, t.scalar(size, "int64"), index)


def broadcast_index(t, indices):
    """Index tensors as one int64 tensor [..., k] for GatherND and ScatterND."""
    ranks = max(i.rank for i in indices)
    indices = [t.reshape(i, [*[1] * (ranks - i.rank), *i.dims]) for i in indices]
    dims = [_widest([i.dims[axis] for i in indices]) for axis in range(ranks)]
    wide = [t.expand(t.cast(i, "int64"), dims) for i in indices]
    return t.concat([t.unsqueeze(i, [ranks]) for i in wide], ranks)


def _widest(sizes):
    return next((s for s in sizes if s != 1), 1)


def mask_positions(t, mask):
    """Where a mask is set: for each of its axes a vector of positions."""
    if mask.rank == 0:
        t.refuse("indexing by a mask without axes has no translation")
    where = t.found(mask)
    return [t.op("Gather", where, t.scalar(i, "int64"), axis=0) for i in range(mask.rank)]


def without_masks(t, indices):
    """The indices with positions in the place of each mask; how many they are, only a run tells."""
    result = []
    for given in indices:
        is_mask = given is not None and given.dtype in ("bool", "uint8")
        result += mask_positions(t, given) if is_mask else [given]
    return result


def split_indices(x, indices):
    """(axes that have an index tensor, the other axes, whether the first ones lie together)."""
    indices = [*indices, *[None] * (x.rank - len(indices))]
    axes = [i for i, index in enumerate(indices) if index is not None]
    rest = [i for i, index in enumerate(indices) if index is None]
    return axes, rest, axes == list(range(axes[0], axes[-1] + 1))


@aten("index.Tensor", "_unsafe_index.Tensor")
def index(t, x, indices):
    indices = without_masks(t, indices)
    given = [i for i in indices if i is not None]
    axes, rest, together = split_indices(x, indices)
    for i, axis in zip(given, axes, strict=False):
        t.hold_positions(i, x.dims[axis], from_end=True)
    if len(axes) == 1:
        return t.op("Gather", x, t.cast(given[0], "int64"), axis=axes[0])
    moved = t.transpose(x, [*axes, *rest])
    where = [_wrapped(t, i, x.dims[a]) for i, a in zip(given, axes, strict=False)]
    at = broadcast_index(t, where)
    out = t.op("GatherND", moved, at, batch_dims=0)
    lead = at.rank - 1
    if together and axes[0] > 0:  # the indexed part goes where the first index tensor stood
        order = [lead + i for i in range(axes[0])] + list(range(lead))
        out = t.transpose(out, [*order, *range(lead + axes[0], out.rank)])
    return out


def _wrapped(t, i, size):
    """GatherND takes negative positions, as torch does."""
    return t.cast(i, "int64")


@aten("sort.default", "sort.stable")
def sort(t, x, *args, stable=None, dim=-1, descending=False):
    numbers = [a for a in args if not isinstance(a, bool)]
    flags = [a for a in args if isinstance(a, bool)]
    dim = numbers[0] if numbers else dim
    descending = flags[-1] if flags else descending
    if x.rank == 0:
        return NotImplemented
    axis = dim % x.rank
    return t.op("TopK", x, t.sizes([x.dims[axis]]), n=2, axis=axis, largest=int(descending))


@aten("argsort.default", "argsort.stable")
def argsort(t, x, *args, **kwargs):
    found = sort(t, x, *args, **kwargs)
    return found if found is NotImplemented else found[1]


@aten("topk.default")
def topk(t, x, k, dim=-1, largest=True, sorted=True):  # noqa: A002
    if x.rank == 0 or not t.standard:
        return NotImplemented  # which of several equal numbers it takes is torch's own choice
    attrs = {"largest": int(largest), "sorted": int(sorted)}
    return t.op("TopK", x, t.sizes([k]), n=2, axis=dim % x.rank, **attrs)


@aten("one_hot.default")
def one_hot(t, x, classes=-1):
    if classes == -1:
        t.refuse("one_hot without num_classes gives a size that depends on data")
    where = t.unsqueeze(from_zero(t, x, classes), [x.rank])
    zeros, ones = t.full(t.out_dims(), 0, "int64"), t.full([*x.dims, 1], 1, "int64")
    return t.op("ScatterElements", zeros, where, ones, axis=x.rank)


@aten("diagonal.default")
def diagonal(t, x, offset=0, dim1=0, dim2=1):
    if not isinstance(offset, int) or x.dtype in COMPLEX:
        return NotImplemented
    moved = t.transpose(x, _diagonal_first(x, dim1, dim2))
    at = _of_diagonal(t, t.out_dims()[-1], offset)
    picked = t.op("GatherND", moved, at, batch_dims=0)
    return t.transpose(picked, [*range(1, picked.rank), 0])


@inverse("diagonal.default")
def undo_diagonal(t, base, view, offset=0, dim1=0, dim2=1):
    if not isinstance(offset, int) or base.dtype in COMPLEX:
        return NotImplemented
    order = _diagonal_first(base, dim1, dim2)
    at = _of_diagonal(t, view.dims[-1], offset)
    rows = t.transpose(t.cast(view, base.dtype), [view.rank - 1, *range(view.rank - 1)])
    new = t.op("ScatterND", t.transpose(base, order), at, rows)
    return t.transpose(new, [order.index(axis) for axis in range(base.rank)])


@aten("linalg_diagonal.default")
def linalg_diagonal(t, x, *, offset=0, dim1=-2, dim2=-1):
    return diagonal(t, x, offset, dim1, dim2)


@inverse("linalg_diagonal.default")
def undo_linalg_diagonal(t, base, view, *, offset=0, dim1=-2, dim2=-1):
    return undo_diagonal(t, base, view, offset, dim1, dim2)


@aten("fill_diagonal.default")
def fill_diagonal(t, x, value, wrap=False):
    """As torch has it in place alone. Wrapped, the diagonal of a tall matrix begins again."""
    if not all(isinstance(dim, int) for dim in x.dims):
        t.refuse("fill_diagonal_ of a tensor whose sizes are not known", kind=NeedsExactSizes)
    if wrap and x.rank == 2:
        at = range(0, math.prod(x.dims), x.dims[1] + 1)
    else:
        at = range(0, math.prod(x.dims), sum(math.prod(x.dims[k + 1 :]) for k in range(x.rank)))
        at = at[: min(x.dims)]
    return put(t, x, t.ints(at), t.full([len(at)], value, x.dtype))


def _diagonal_first(x, dim1, dim2):
    """x's axes, the two of the diagonal ahead."""
    first = [dim1 % x.rank, dim2 % x.rank]
    return [*first, *(i for i in range(x.rank) if i not in first)]


def _of_diagonal(t, count, offset):
    """int64 [count, 2]: rows and columns."""
    steps = t.op("Range", t.scalar(0, "int64"), t.g.size(count), t.scalar(1, "int64"))
    rows = t.op("Add", steps, t.scalar(max(-offset, 0), "int64"))
    columns = t.op("Add", steps, t.scalar(max(offset, 0), "int64"))
    return broadcast_index(t, [rows, columns])
