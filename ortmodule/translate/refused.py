"""What torch's kernels refuse although a trace does not: eager raises its own error.

Which dtypes these are is asked of torch itself: the op runs once on a few ones. What its fake
kernels do not check of sizes and numbers is a table here.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from .. import devices
from ..calls.tree import Const
from ..records.sizes import hint_of
from ..side_effects.told_warnings import hidden
from ..torch_internals.tracing import OpOverload
from ..torch_internals.trees import tree_leaves

_CHECKS: dict[str, Callable] = {}
_RANDOM = torch.Tag.nondeterministic_seeded
# Operands whose dtypes are tried in turn, to learn whether they are at fault.
_OPERANDS = 5
# What kernels take that take floating numbers at all.
_USUAL = (torch.float32, torch.float64)
_FLOATING = (*_USUAL, torch.float16, torch.bfloat16)
# Elements of an axis of what is tried: more, where an op takes no axes as short as that.
_SIZES = (2, 16)
_MOST = 2**18  # elements


class _Ones(NamedTuple):
    """Stands for a tensor of an op: as many axes, of a few elements."""

    dtype: torch.dtype
    device: torch.device
    sizes: tuple[int, ...]

    def made(self) -> torch.Tensor:
        return torch.ones(self.sizes, dtype=self.dtype, device=self.device)


class _Flag(NamedTuple):
    """Stands for a bool among an op's operands, which has a say in their dtype."""

    value: Any

    def made(self) -> Any:
        return self.value


class _Unknown(Exception):
    """An argument that only a run of the module tells."""


def is_refused(t: Any) -> bool:
    """Whether torch's kernel of the running op raises for the dtypes of its operands."""
    target = t.node.target
    if not isinstance(target, OpOverload) or _RANDOM in target.tags:
        return False
    return next((found for size in _SIZES if (found := _refuses(t, target, size)) is not None),
                False)  # fmt: skip


def _refuses(t: Any, target: OpOverload, size: int) -> bool | None:
    """Whether it does for operands that have axes of `size` elements at most; None where their
    sizes are at fault."""
    try:
        args, kwargs = t.traced_arguments(lambda value, _: _stand_in(value, size))
        numbers = [str(a.type) in ("number", "Tensor") for a in target._schema.arguments]
        args = tuple(_frozen(a, n) for a, n in zip(args, numbers, strict=False))
        given = args, tuple((name, _frozen(value)) for name, value in kwargs.items())
    except _Unknown:
        return False
    tensors = [x for x in _operands(given) if isinstance(x, _Ones)]
    # Of several operands the sizes belong together; torch's kernels do not all check that they do.
    usual = _USUAL if len(tensors) == 1 else _FLOATING
    odd = [x for x in _operands(given) if isinstance(x, _Flag) or x.dtype not in usual]
    dtypes = {x.dtype for x in tensors}
    return bool(odd or len(dtypes) > 1) and _kernel_refuses(target, given)


@functools.lru_cache(maxsize=4096)
def _kernel_refuses(target: OpOverload, given: tuple) -> bool | None:
    """Whether it raises for these operands, but not where some of them are float32; None where it
    raises for all of them."""
    if _runs(target, given, {}):
        return False
    other = [isinstance(x, _Flag) or x != _as_float(x) for x in _operands(given)]
    operands = [k for k, is_other in enumerate(other) if is_other][:_OPERANDS]
    others = (
        chosen
        for count in range(1, len(operands) + 1)
        for chosen in itertools.combinations(operands, count)
    )
    return True if any(_runs(target, given, set(chosen)) for chosen in others) else None


def _runs(target: OpOverload, given: tuple, floats: Any) -> bool:
    numbered = itertools.count()

    def made(x: Any) -> Any:
        if isinstance(x, (_Ones, _Flag)):
            return (_as_float(x) if next(numbered) in floats else x).made()
        return [made(item) for item in x] if isinstance(x, tuple) else x.value

    args, kwargs = made(given[0]), {name: made(value) for name, value in given[1]}
    # An operator of ours, or one made of others, may draw without a tag that says so.
    device = next((x.device for x in _operands(given) if isinstance(x, _Ones)), devices.HOST)
    states = devices.random_states(device)
    with torch.no_grad(), hidden():
        try:
            target(*args, **kwargs)
        except Exception:
            return False
        finally:
            devices.set_random_states(device, states)
    return True


def _as_float(x: Any) -> Any:
    return _Flag(1.0) if isinstance(x, _Flag) else x._replace(dtype=torch.float32)


def _operands(given: Any) -> Iterator[Any]:
    if isinstance(given, (_Ones, _Flag)):
        yield given
    elif isinstance(given, tuple):
        for item in given:
            yield from _operands(item)


def _stand_in(value: Any, most: int) -> Any:
    if isinstance(value, torch.Tensor):
        sizes = tuple(min(_number(size), most) for size in value.shape)
        if math.prod(sizes) > _MOST:
            sizes = tuple(min(size, min(_SIZES)) for size in sizes)
        return _Ones(value.dtype, value.device, sizes)
    return _number(value)


def _number(value: Any) -> Any:
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value
    if isinstance(value, torch.SymInt):
        return hint_of(value)
    if value.node.hint is None:
        raise _Unknown
    return value.node.hint


def _frozen(value: Any, is_number: bool = False) -> Any:
    """An argument that tells 1 from 1.0 and True; is_number: it is an operand of the op."""
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    if isinstance(value, _Ones):
        return value
    return _Flag(value) if is_number and isinstance(value, bool) else Const(value)


def kernel_raises(t: Any, name: str, args: Sequence[Any], kwargs: dict) -> bool:
    """Whether torch's kernel of the running op, whose rule is that of `name`, does for these."""
    check = _CHECKS.get(name)
    return check is not None and check(*args, **kwargs) or _is_outside(t, args, kwargs)


def _is_outside(t: Any, args: Sequence[Any], kwargs: dict) -> bool:
    """Whether no operand or result has an axis `dim`."""
    if not isinstance(t.target, OpOverload):
        return False
    names = (argument.name for argument in t.target._schema.arguments)
    dim = (dict(zip(names, args, strict=False)) | kwargs).get("dim")
    if type(dim) is not int:
        return False
    operands = [x.rank for x in tree_leaves((args, kwargs)) if hasattr(x, "rank")]
    results = tree_leaves(t.node.meta.get("val"))
    ranks = [*operands, *(x.dim() for x in results if isinstance(x, torch.Tensor))]
    bound = max([1, *ranks])
    return not -bound <= dim < bound


def _check(*names: str) -> Callable:
    def register(check: Callable) -> Callable:
        _CHECKS.update(dict.fromkeys(names, check))
        return check

    return register


# The slope below zero of ops whose backward may read their result: where it is negative, torch's
# raises for their in-place forms.
_SLOPES: dict[str, Callable] = {
    "elu_.default": lambda x, alpha=1.0, *_scales: alpha,
    "celu_.default": lambda x, alpha=1.0: alpha,
    "leaky_relu_.default": lambda x, slope=0.01: slope,
    "rrelu_.default": lambda x, low=1 / 8, high=1 / 3, training=False, *_: (
        0.0 if training else (low + high) / 2),
}  # fmt: skip


def backward_raises(name: str, args: Sequence[Any], kwargs: dict) -> bool:
    """Whether torch's backward of this op in place does, whatever the numbers are."""
    slope = _SLOPES.get(name)
    return slope is not None and slope(*args, **kwargs) < 0


def _enlarges(x: Any, dims: Sequence[Any]) -> bool:
    """Whether `x` broadcasts a tensor of `dims` to more elements, which is not written in place."""
    if x is None:
        return False
    ends = zip(reversed(x.dims), reversed(dims), strict=False)
    return x.rank > len(dims) or any(size != 1 and wanted == 1 for size, wanted in ends)


@_check("addmm.default")
def _of_product(bias, x, y, **_numbers):
    return _enlarges(bias, [x.dims[0], y.dims[1]])


@_check("addmv.default")
def _of_vector(bias, x, y, **_numbers):
    return _enlarges(bias, x.dims[:1])


@_check("binary_cross_entropy.default", "binary_cross_entropy_with_logits.default")
def _of_weights(x, target, weight=None, pos_weight=None, *_reduction, **_named):
    return any(_enlarges(w, x.dims) for w in (weight, pos_weight) if hasattr(w, "dims"))


@_check("smooth_l1_loss.default")
def _of_beta(x, target, reduction=1, beta=1.0):
    return beta < 0


@_check("nll_loss.default", "nll_loss_nd.default", "nll_loss2d.default")
def _of_classes(x, target, *_rest, **_named):
    return target.dtype not in ("int64", "uint8")


@_check("max.default", "min.default")
def _of_nothing(x):
    return 0 in x.dims


@_check("index_put.default", "_index_put_impl.default", "index.Tensor")
def _of_masks(x, indices, *_rest, **_named):
    """A mask is not broadcast."""
    axis = 0
    for index in indices:
        if index is not None and index.dtype in ("bool", "uint8"):
            shown = zip(index.dims, x.dims[axis:], strict=False)
            if any((size == 1) != (wanted == 1) for size, wanted in shown):
                return True
            axis += index.rank
        else:
            axis += 1
    return False


@_check("index_reduce.default")
def _of_positions(x, dim, index, *_rest, **_named):
    return index.dtype not in ("int32", "int64")


@_check("conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input")
def _of_output_padding(x, weight, bias=None, stride=1, padding=0, output_padding=0, *rest, **named):
    space = weight.rank - 2
    dilation = named.get("dilation", rest[1] if len(rest) > 1 else 1)
    numbers = ([v] * space if isinstance(v, int) else (list(v) * space)[:space]
               for v in (output_padding, stride, dilation))  # fmt: skip
    return any(pad >= max(step, apart) for pad, step, apart in zip(*numbers, strict=True))
