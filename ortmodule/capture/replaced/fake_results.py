"""Results of common operators on fake tensors, straight from their operands' sizes.

Where sizes are symbols torch decomposes an operator in Python and asks the symbols dozens of
questions: 5 to 50 ms an operator, most of a small capture. Here are those whose result is plain to
see: operands of one floating dtype that lie row by row, and views; no symbol is asked anything. All
else is None, which leaves it to torch.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false

from ...torch_internals.tracing import FakeTensor, as_meta

_aten = torch.ops.aten
_FLOATS = frozenset({torch.float32, torch.float64, torch.bfloat16, torch.float16})
_FULL = frozenset({torch.float32, torch.float64})  # their statistics have the same dtype
Size = int | torch.SymInt


def _of(x: FakeTensor, shape: Sequence[Size], dtype: torch.dtype | None = None) -> FakeTensor:
    """A result of this shape that lies row by row, on x's device; dtype None: x's."""
    made = torch.empty(shape, dtype=dtype or x.dtype, device="meta")
    return FakeTensor(x.fake_mode, made, x.fake_device)


def _view(x: FakeTensor, shape: Sequence[Size], strides: Sequence[Size]) -> FakeTensor:
    """A view of x's memory, from x's first element on."""
    with as_meta(x.fake_mode):
        made = _aten.as_strided.default(x, shape, strides, x.storage_offset())
    return FakeTensor(x.fake_mode, made, x.fake_device)


def _is_ordinary(x: Any) -> bool:
    """Whether it is a fake tensor with strides whose numbers torch does not know."""
    return (
        type(x) is FakeTensor
        and x.constant is None
        and x.real_tensor is None
        and x.layout is torch.strided
        and not (x.is_quantized or x.is_neg() or x.is_complex())
    )


def _plain(*tensors: Any, dtypes: frozenset[torch.dtype] = _FLOATS) -> bool:
    """Whether all are ordinary, of one of these dtypes, on one device, and lie row by row."""
    first = tensors[0]
    return all(
        _is_ordinary(x)
        and x.dtype in dtypes
        and (x.dtype, x.fake_device) == (first.dtype, first.fake_device)
        and _lies_row_by_row(x)
        for x in tensors
    )


def _lies_row_by_row(x: FakeTensor) -> bool:
    """Whether the strides are the products of the sizes, also as expressions: asks no symbol."""
    stride: Any = 1
    for size, found in zip(reversed(x.shape), reversed(x.stride()), strict=True):
        if not _same(stride, found):
            return False
        stride = stride * size
    return True


def _is_empty(x: FakeTensor) -> bool:
    """Whether a size is the number 0."""
    return any(_same(size, 0) for size in x.shape)


def _same(a: Size, b: Size) -> bool:
    """Whether they are one number, or one expression."""
    if isinstance(a, int) or isinstance(b, int):
        return isinstance(a, int) and isinstance(b, int) and a == b
    return a.node.expr == b.node.expr


def _all_same(a: Sequence[Size], b: Sequence[Size]) -> bool:
    return len(a) == len(b) and all(map(_same, a, b))


def _numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)


def _element_wise(x: Any, *numbers: Any) -> FakeTensor | None:
    """x of any shape and numbers: like x."""
    return _of(x, x.shape) if _plain(x) and _numbers(numbers) else None


def _gelu(x: Any, *, approximate: str = "none") -> FakeTensor | None:
    return _of(x, x.shape) if _plain(x) and approximate in ("none", "tanh") else None


def _clamp(x: Any, *bounds: Any) -> FakeTensor | None:
    given = [bound for bound in bounds if bound is not None]
    return _of(x, x.shape) if given and _plain(x) and _numbers(given) else None


def _softmax(x: Any, axis: int, to_float: bool) -> FakeTensor | None:
    """x of any shape with at least one axis: like x."""
    fits = _plain(x) and not to_float and -x.dim() <= axis < x.dim()
    return _of(x, x.shape) if fits else None


def _cumulated(x: Any, axis: int, **named: Any) -> FakeTensor | None:
    fits = not named and _plain(x) and -x.dim() <= axis < x.dim()
    return _of(x, x.shape) if fits else None


def _mm(a: Any, b: Any) -> FakeTensor | None:
    """a (M, K), b (K, N): (M, N). Weights are transposed, so only a lies row by row. Asks whether K
    is K, as torch does: of a first layer a free size meets the weight's."""
    fits = _plain(a) and _is_matrix_of(a, b) and a.dim() == 2
    fits = fits and guard_or_false(a.shape[1] == b.shape[0])
    return _of(a, (a.shape[0], b.shape[1])) if fits else None


def _addmm(c: Any, a: Any, b: Any, **named: Any) -> FakeTensor | None:
    """c (N), a (M, K), b (K, N): (M, N)."""
    fits = (
        not named
        and _plain(c, a)
        and c.dim() == 1
        and _is_matrix_of(a, b)
        and _known(c.shape[0], b.shape[1])
    )
    return _mm(a, b) if fits else None


def _is_matrix_of(a: FakeTensor, b: Any) -> bool:
    return _is_ordinary(b) and b.dim() == 2 and (b.dtype, b.device) == (a.dtype, a.device)


def _known(a: Size, b: Size) -> bool:
    """Whether both are numbers, and equal."""
    return isinstance(a, int) and isinstance(b, int) and a == b


def _layer_norm(x: Any, shape: Any, *rest: Any) -> tuple[FakeTensor, ...] | None:
    """x (..., *shape), weight and bias `shape`: like x, and mean and 1 / deviation (..., 1...)."""
    *given, epsilon = rest
    given = [w for w in given if w is not None]
    outer = x.dim() - len(shape)
    fits = (
        _plain(x, *given, dtypes=_FULL)
        and 0 < len(shape) <= x.dim()
        and all(map(_known, x.shape[outer:], shape))
        and all(w.dim() == len(shape) and all(map(_known, w.shape, shape)) for w in given)
    )
    if not fits or not _numbers([epsilon]):
        return None
    each = (*x.shape[:outer], *(1 for _ in shape))
    return _of(x, x.shape), _of(x, each), _of(x, each)


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: Any, *numbers: Any
) -> tuple[FakeTensor, ...] | None:
    """x (N, C, ...), all else (C), in training: like x, and mean and 1 / deviation (C)."""
    each = [t for t in (weight, bias, mean, variance) if t is not None]
    fits = (
        training is True
        and _plain(x, *each, dtypes=_FULL)
        and not _is_empty(x)
        and x.dim() >= 2
        and isinstance(x.shape[1], int)
        and all(t.dim() == 1 and _known(t.shape[0], x.shape[1]) for t in each)
        and _numbers(numbers)
    )
    return (_of(x, x.shape), _of(x, x.shape[1:2]), _of(x, x.shape[1:2])) if fits else None


def _two(x: Any, y: Any, **named: Any) -> FakeTensor | None:
    """Tensors of one shape, or a tensor and a number: like the tensor."""
    if named:
        return None
    if isinstance(y, torch.Tensor):
        return _of(x, x.shape) if _plain(x, y) and _all_same(x.shape, y.shape) else None
    return _element_wise(x, y)


def _dropout(x: Any, share: Any, training: Any) -> tuple[FakeTensor, ...] | None:
    """Like x, and which elements are kept."""
    drops = training is True and _numbers([share]) and 0 < share < 1
    if not drops or not _plain(x) or _is_empty(x):
        return None
    return _of(x, x.shape), _of(x, x.shape, torch.bool)


def _cloned(x: Any, *, memory_format: Any = None) -> FakeTensor | None:
    given = (None, torch.preserve_format, torch.contiguous_format)
    return _of(x, x.shape) if memory_format in given and _plain(x) else None


def _cast(x: Any, *, dtype: Any = None, **named: Any) -> FakeTensor | None:
    return None if named or dtype not in _FLOATS or not _plain(x) else _of(x, x.shape, dtype)


def _reshaped(x: Any, shape: Sequence[Size]) -> FakeTensor | None:
    """x that lies row by row, of the same elements in another shape; one size may be -1."""
    if not _is_ordinary(x) or not _lies_row_by_row(x) or any(_same(size, 0) for size in shape):
        return None
    missing = [i for i, size in enumerate(shape) if _same(size, -1)]
    sizes, elements = list(shape), math.prod(x.shape)
    if len(missing) == 1:
        sizes[missing[0]] = elements // math.prod(s for s in sizes if not _same(s, -1))
    if any(isinstance(s, int) and s <= 0 for s in sizes) or not _same(math.prod(sizes), elements):
        return None
    return _view(x, sizes, torch.empty(sizes, device="meta").stride())


def _transposed(x: Any, a: int, b: int) -> FakeTensor | None:
    if not _is_ordinary(x) or not (-x.dim() <= a < x.dim() and -x.dim() <= b < x.dim()):
        return None
    axes = list(range(x.dim()))
    axes[a], axes[b] = axes[b], axes[a]
    return _permuted(x, axes)


def _matrix_transposed(x: Any) -> FakeTensor | None:
    return _permuted(x, (1, 0)) if _is_ordinary(x) and x.dim() == 2 else None


def _permuted(x: Any, axes: Sequence[int]) -> FakeTensor | None:
    if not _is_ordinary(x) or any(not -x.dim() <= a < x.dim() for a in axes):
        return None
    if sorted(a % x.dim() for a in axes) != list(range(x.dim())):
        return None
    shape, strides = x.shape, x.stride()
    return _view(x, [shape[a] for a in axes], [strides[a] for a in axes])


def _unsqueezed(x: Any, axis: int) -> FakeTensor | None:
    if not _is_ordinary(x) or not -x.dim() - 1 <= axis <= x.dim():
        return None
    shape, strides, axis = list(x.shape), list(x.stride()), axis % (x.dim() + 1)
    strides.insert(axis, shape[axis] * strides[axis] if axis < x.dim() else 1)
    shape.insert(axis, 1)
    return _view(x, shape, strides)


# Of a tensor; numbers after it change no size.
_ELEMENT_WISE = """abs acos acosh asin asinh atan atanh ceil cos cosh elu erf erfc exp exp2 expm1
    floor hardsigmoid hardswish hardtanh leaky_relu log log10 log1p log2 mish neg reciprocal relu
    round rsqrt sigmoid sign silu sin sinh softplus sqrt tan tanh trunc"""
RESULTS: dict[Any, Callable[..., Any]] = {
    **{getattr(_aten, name).default: _element_wise for name in _ELEMENT_WISE.split()},
    _aten.pow.Tensor_Scalar: _element_wise,
    _aten.gelu.default: _gelu,
    _aten.clamp.default: _clamp,
    _aten.clamp_min.default: _clamp,
    _aten.clamp_max.default: _clamp,
    _aten._softmax.default: _softmax,
    _aten._log_softmax.default: _softmax,
    _aten.cumsum.default: _cumulated,
    _aten.cumprod.default: _cumulated,
    _aten.view.default: _reshaped,
    _aten.transpose.int: _transposed,
    _aten.t.default: _matrix_transposed,
    _aten.permute.default: _permuted,
    _aten.unsqueeze.default: _unsqueezed,
    _aten.add.Tensor: _two,
    _aten.sub.Tensor: _two,
    _aten.mul.Tensor: _two,
    _aten.div.Tensor: _two,
    _aten.native_dropout.default: _dropout,
    _aten.clone.default: _cloned,
    _aten._to_copy.default: _cast,
    _aten.mm.default: _mm,
    _aten.addmm.default: _addmm,
    _aten.native_layer_norm.default: _layer_norm,
    _aten._native_batch_norm_legit.default: _batch_norm,
    _aten.native_batch_norm.default: _batch_norm,
}
