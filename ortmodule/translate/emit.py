"""What rules emit nodes with: the graph's ops in short words, with explicit casts.

Base of Context (context.py); a rule's first argument `t` is one of these.
"""

import functools
import re
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import sympy
import torch

from .. import _native
from ..errors import NotCapturable
from ..records.sizes import Dim, dim_of, express, late_names, with_names
from .alike import Alike

CAST = "Cast"
# By the class of a sympy expression.
_INTEGERS = {"Add": "Add", "Mul": "Mul", "FloorDiv": "Div", "Mod": "Mod", "PythonMod": "Mod"}
_COMPARISONS = {
    "StrictLessThan": "Less", "LessThan": "LessOrEqual", "StrictGreaterThan": "Greater",
    "GreaterThan": "GreaterOrEqual", "Equality": "Equal",
}  # fmt: skip
_FOUND = re.compile(r"\bu\d+\b")  # a graph's name for a size that a node finds
INT64_MAX = 9223372036854775807
DTYPES = {
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
    "complex64", "complex128",
}  # fmt: skip
HALVES = {"float16", "bfloat16"}
FLOATING = {"float32", "float64", *HALVES}
COMPLEX = {"complex64", "complex128"}
WITH_GRADIENT = FLOATING | COMPLEX
HAS_COMPLEX = "it has complex numbers"  # why torch's own runs


class MissingOp(Exception):
    """The engine has no such op, or not for these types and sizes; the ATen op is kept whole."""


class OddNumber(Exception):
    """A number would become a half that it is not."""


class SymbolicFloat:
    """A Python float that forward made of sizes, as in 1 / sqrt(x.shape[-1]); or of a number that
    it read out of a tensor: then it is a 0-d `value`, in Python's precision."""

    def __init__(self, expr: Any, value: Any = None):
        self.expr, self.value = expr, value


class CountedNumber:
    """A Python number that a loop counts: made of values, and known only as it runs."""

    def __init__(self, expr: Any):
        self.expr = expr


class SymbolicTruth:
    """A Python bool that forward made of sizes: no guard holds it, so nothing may ask for it."""

    def __init__(self, expr: Any):
        self.expr = expr

    def __bool__(self) -> bool:
        raise NotCapturable(f"a bool that is made of sizes, {self.expr}, is given to an operator")


def dtype_name(dtype: torch.dtype) -> str:
    """torch.float32 -> "float32"; raises NotCapturable for a dtype that graphs do not have."""
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise NotCapturable(f"a value has dtype {name}, which graphs do not have")
    return name


def is_value(x: Any) -> bool:
    """Whether a rule's argument is a tensor."""
    return hasattr(x, "dims")


class Emitter:
    """Emits nodes into a graph; `standard`: for a file, which prefers ops of the standard."""

    def __init__(self, graph: Any, standard: bool = False):
        self.g = graph
        self.standard = standard
        self._known = _known_ops()
        self._alike = Alike(graph)
        self._pairs: dict[Any, Any] = {}  # complex value -> pairs of its parts
        self._canonical: dict[str, Dim] = {}
        self.counted: dict[str, Any] = {}  # symbol -> its 0-d int64, in the graph emitted into
        self._late: dict[str, Dim] = {}  # sizes that depend on data, from torch's names
        self.rounds_numbers = True  # to halves, as the running op's kernel does

    def op(
        self,
        name: str,
        *inputs: Any,
        n: int = 1,
        domain: str = "",
        bodies: Sequence[tuple[str, Any]] = (),
        **attrs: Any,
    ) -> Any:
        """Emits one node, which then owns `bodies`; returns its output, or the list of its `n`
        outputs."""
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        if (f"{domain}::{name}" if domain else name) not in self._known:
            raise MissingOp(f"the engine has no op {name}")
        try:
            outs = self.g.emit(name, given, attrs, n, domain, list(bodies))
        except _native.core().NotAccepted as error:  # of these types or sizes, and nothing else
            raise MissingOp(str(error).partition("; node")[0]) from error
        if domain in ("", "ort") and not bodies:
            self._alike.note(self.g, domain + name, given, attrs, outs)
        return outs[0] if n == 1 else list(outs)

    def ort(self, name: str, *inputs: Any, n: int = 1, **attrs: Any) -> Any:
        """Emits one node of the domain ort."""
        return self.op(name, *inputs, n=n, domain="ort", **attrs)

    def aten(
        self, name: str, inputs: list, made: tuple[Sequence[Dim], str], reason: str, **attrs: Any
    ) -> Any:
        """One node of an operator of torch's own that gives one tensor, of this type."""
        dims, dtype = made
        types = [f"{dtype}[{', '.join(map(str, dims))}]"]
        attrs |= {"schema": f"aten::{name}", "reason": reason, "effect": "none", "types": types}
        return self.g.emit(name, inputs, attrs, 1, "aten")[0]

    def as_real(self, x: Any) -> Any:
        """Complex numbers as pairs, along one more axis."""
        if (known := self.pairs_of(x)) is not None:
            return known
        dtype = "float32" if x.dtype == "complex64" else "float64"
        return self.aten("view_as_real", [x], ([*x.dims, 2], dtype), HAS_COMPLEX)

    def as_complex(self, x: Any) -> Any:
        """Pairs along the last axis as complex numbers."""
        dtype = "complex64" if x.dtype == "float32" else "complex128"
        made = self.aten("view_as_complex", [x], (x.dims[:-1], dtype), HAS_COMPLEX)
        self._pairs[made] = x
        return made

    def pairs_of(self, x: Any) -> Any:
        """What complex numbers were made of, along one more axis; None where that is not known."""
        return self._pairs.get(x)

    def constant(self, array: Any) -> Any:
        """An array or a torch tensor as a value."""
        if isinstance(array, torch.Tensor):
            array = array_of(array.detach().cpu())
        return self.g.constant(np.ascontiguousarray(array) if np.ndim(array) else np.array(array))

    def ints(self, values: Sequence[int]) -> Any:
        """A constant int64 vector."""
        return self.g.constant(np.array(list(values), dtype=np.int64).reshape(-1))

    def scalar(self, value: Any, dtype: str) -> Any:
        """A 0-d constant; sizes and symbolic floats become 0-d values. Raises OddNumber."""
        if dtype in HALVES and not self.rounds_numbers and is_odd(value, dtype):
            raise OddNumber
        if isinstance(value, str):
            return self.cast(self.g.size(self.canonical(value)), dtype)
        if isinstance(value, CountedNumber):
            return self.cast(self._integer(value.expr), dtype)
        if isinstance(value, SymbolicFloat):
            if value.value is not None:
                return self.cast(value.value, dtype)
            return self._float(value.expr, dtype)
        if isinstance(value, SymbolicTruth):
            return self.cast(self.truth(value.expr), dtype)
        if dtype == "bool":
            value = bool(value)
        elif dtype not in FLOATING:
            value = _wrapped(int(value), dtype)
        else:
            value = float(value)
        if dtype not in FLOATING and int(float(value)) != value:  # the engine's scalars are doubles
            out = self.constant(np.array(value).astype(dtype))
        else:
            out = self.g.scalar(value, dtype)
        self._alike.note(self.g, dtype, [], {"value": value}, [out])
        return out

    def operand(self, x: Any, dtype: str) -> Any:
        """A tensor cast to `dtype`, or a Python number as a 0-d value."""
        return self.cast(x, dtype) if is_value(x) else self.scalar(x, dtype)

    def cast(self, x: Any, dtype: str) -> Any:
        return x if x.dtype == dtype else self.op(CAST, x, to=dtype)

    def widened(self, x: Any) -> Any:
        """A half as float32; anything else as it is."""
        is_half = is_value(x) and x.dtype in HALVES
        return self.cast(x, "float32") if is_half else x

    def result_type(self, *args: Any) -> str:
        """torch's result dtype of tensors and Python numbers; a 0-d tensor gives way."""
        return dtype_name(_result_type([_dummy(a) for a in args]))

    def canonical(self, dim: Dim) -> Dim:
        """A size as the engine prints it, so that equal sizes are equal strings."""
        if isinstance(dim, int):
            return dim
        if late_names(dim):
            dim = self.named(dim)
        if dim not in self._canonical:
            known = self.g.sizes([dim]).contents
            self._canonical[dim] = known[0] if known else dim
        return self._canonical[dim]

    def learn(self, value: Any, traced: torch.Tensor) -> None:
        """Sizes of `traced` that depend on data and have not been met are those of `value`."""
        for ours, theirs in zip(value.dims, traced.shape, strict=True):
            theirs = dim_of(theirs)
            if late_names(theirs) == [theirs]:
                self._late.setdefault(theirs, ours)

    def is_told(self, size: Dim | torch.SymInt) -> bool:
        """Whether the graph has all that the size is made of."""
        names = late_names(size if isinstance(size, str) else dim_of(size))
        return all(name in self._late or name in self.counted for name in names)

    def depends_on_data(self, size: Dim) -> bool:
        """Whether the size of a value is one that only a run tells."""
        return isinstance(size, str) and _FOUND.search(size) is not None

    def check_not(self, size: Dim, number: int, error: str) -> None:
        """Where the size is that number the call raises."""
        equal = self.op("Equal", self.scalar(size, "int64"), self.scalar(number, "int64"))
        self.check(self.op("Not", equal), error)

    def named(self, dim: str) -> str:
        """A size that depends on data by the graph's own names."""
        if missing := [name for name in late_names(dim) if name not in self._late]:
            raise NotCapturable(
                f"a size is {dim}, where {missing[0]} is a number read out of a tensor"
            )
        return with_names(dim, self._late)

    def sizes(self, dims: Sequence[Dim]) -> Any:
        """An int64 vector of sizes."""
        return self.g.sizes(list(dims))

    def reshape(self, x: Any, dims: Sequence[Dim]) -> Any:
        if list(dims) == list(x.dims):
            return x
        empty = {"allowzero": 1} if 0 in dims else {}  # else a 0 means the input's size
        return self.op("Reshape", x, self.sizes(dims), **empty)

    def expand(self, x: Any, dims: Sequence[Dim]) -> Any:
        return x if list(dims) == list(x.dims) else self.op("Expand", x, self.sizes(dims))

    def transpose(self, x: Any, perm: Sequence[int]) -> Any:
        perm = [int(p) % x.rank for p in perm]
        return x if perm == list(range(x.rank)) else self.op("Transpose", x, perm=perm)

    def swap(self, x: Any, a: int, b: int) -> Any:
        """x with axes a and b exchanged."""
        perm = list(range(x.rank))
        perm[a], perm[b] = perm[b], perm[a]
        return self.transpose(x, perm)

    def unsqueeze(self, x: Any, axes: Sequence[int]) -> Any:
        return self.op("Unsqueeze", x, self.ints(axes)) if axes else x

    def squeeze(self, x: Any, axes: Sequence[int]) -> Any:
        return self.op("Squeeze", x, self.ints(axes)) if axes else x

    def concat(self, xs: Sequence[Any], axis: int) -> Any:
        return xs[0] if len(xs) == 1 else self.op("Concat", *xs, axis=axis)

    def slice(
        self, x: Any, axis: int, start: Dim, end: Dim, step: int = 1, inside: bool = True
    ) -> Any:
        """x[start:end:step] along `axis`, with Python's meaning of bounds.

        `inside` says that symbolic bounds lie inside the axis, which is checked when sizes are
        known; without it they are clamped, and the length is min and max of sizes.
        """
        if start == 0 and step == 1 and end in (INT64_MAX, x.dims[axis]):
            return x
        bounds = (self._bound(start), self._bound(end))
        attrs = {"inside": 1} if inside else {}
        return self.op("Slice", x, *bounds, self.ints([axis]), self.ints([step]), **attrs)

    def reduce(self, op: str, x: Any, axes: Sequence[int] | None, keepdim: bool) -> Any:
        """A Reduce* op; no axes means all."""
        axes = range(x.rank) if axes is None or len(axes) == 0 else axes
        if x.rank == 0:
            axes = []
        return self.op(op, x, self.ints(a % max(x.rank, 1) for a in axes), keepdims=int(keepdim))

    def full(self, dims: Sequence[Dim], value: Any, dtype: str) -> Any:
        """A tensor of `dims` filled with a number or a 0-d tensor."""
        value = self.operand(value, dtype)
        return self.expand(value, dims) if dims else value

    def stop(self, x: Any) -> Any:
        """x without a gradient."""
        return self.ort("StopGradient", x)

    def found(self, x: Any) -> Any:
        """Where x is not zero, as NonZero tells. Masks that are computed alike give one size."""
        x = self.stop(x) if x.dtype in FLOATING else x
        return self._alike.once(self.g, x, lambda x: self.op("NonZero", x))

    def check(self, ok: Any, error: str) -> None:
        """Where an element of `ok` is false the call raises; a file has no such checks, and is for
        calls that do not."""
        if not self.standard:
            self.ort("Check", ok, error=error)

    def _bound(self, dim: Dim) -> Any:
        return self.ints([dim]) if isinstance(dim, int) else self.sizes([dim])

    def is_counted(self, expr: Any) -> bool:
        """Whether a sympy expression has a number that a loop counts."""
        return any(s.name in self.counted for s in expr.free_symbols)

    def number_of(self, expr: Any) -> Dim | CountedNumber:
        """A sympy expression of integers as rules take it."""
        return CountedNumber(expr) if self.is_counted(expr) else express(expr)

    def _integer(self, expr: Any) -> Any:
        """Emits a sympy expression of integers, as int64."""
        if not self.is_counted(expr):
            return self.scalar(express(expr), "int64")
        if expr.is_Symbol:
            return self.counted[expr.name]
        if isinstance(expr, sympy.Piecewise) and expr.args[-1].cond == sympy.true:
            total = self._integer(expr.args[-1].expr)
            for value, condition in reversed(expr.args[:-1]):
                total = self.op("Where", self.truth(condition), self._integer(value), total)
            return total
        name = _INTEGERS.get(type(expr).__name__)
        if name is None:
            kind = type(expr).__name__
            raise NotCapturable(f"a number that a loop counts is {expr}: {kind} has no translation")
        total, *others = (self._integer(a) for a in expr.args)
        for other in others:
            if name == "Div":  # floored, where an integer Div rounds to zero
                total = self.op("Sub", total, self.op("Mod", total, other))
            total = self.op(name, total, other)
        return total

    def truth(self, expr: Any) -> Any:
        """Emits a sympy condition on integers, as a 0-d bool."""
        name = type(expr).__name__
        if name in ("And", "Or"):
            total, *others = (self.truth(a) for a in expr.args)
            for other in others:
                total = self.op(name, total, other)
            return total
        if name == "Not":
            return self.op("Not", self.truth(expr.args[0]))
        if name == "Unequality":
            return self.op("Not", self.op("Equal", *map(self._integer, expr.args)))
        if name not in _COMPARISONS:
            raise NotCapturable(f"a condition is {expr}: {name} has no translation")
        return self.op(_COMPARISONS[name], *map(self._integer, expr.args))

    def _float(self, expr: Any, dtype: str) -> Any:
        """Emits a sympy expression of floats, by way of float32 unless `dtype` is wider."""
        if dtype not in ("float32", "float64"):
            return self.cast(self._float(expr, "float32"), dtype)
        name = type(expr).__name__
        if name == "ToFloat":
            return self.scalar(self.number_of(expr.args[0]), dtype)
        if expr.is_number:
            return self.g.scalar(float(expr), dtype)
        args = [self._float(a, dtype) for a in expr.args] if name != "IntTrueDiv" else None
        if name in ("FloatTrueDiv", "IntTrueDiv"):
            args = args or [self.scalar(self.number_of(a), dtype) for a in expr.args]
            return self.op("Div", *args)
        if name in ("FloatPow", "Pow"):
            return self.op("Pow", *args)
        if name in ("Add", "Mul"):
            total = args[0]
            for arg in args[1:]:
                total = self.op(name, total, arg)
            return total
        if name == "OpaqueUnaryFn_sqrt":
            return self.op("Sqrt", args[0])
        raise NotCapturable(
            f"the number {expr} is made of sizes by {name}, which has no translation"
        )


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """A CPU tensor as numpy has it, bfloat16 by ml_dtypes."""
    if tensor.dtype == torch.bfloat16:  # which numpy has by name only
        return tensor.contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _wrapped(value: int, dtype: str) -> int:
    """What a cast makes of it in torch, for one that the dtype does not hold."""
    ends = np.iinfo(dtype)
    return (value - int(ends.min)) % 2**ends.bits + int(ends.min)


def is_odd(value: Any, dtype: str) -> bool:
    """Whether a number may be none of this dtype; a size's may be any."""
    if isinstance(value, (str, SymbolicFloat, CountedNumber)):
        return True
    if isinstance(value, SymbolicTruth):
        return False
    value = float(value)
    return value == value and torch.tensor(value, dtype=getattr(torch, dtype)).item() != value


@functools.cache
def _known_ops() -> frozenset[str]:
    """The names of the engine's ops."""
    return frozenset(schema["name"] for schema in _native.core().schemas())


def _dummy(arg: Any) -> Any:
    """Stands for an argument in torch.result_type: (dtype, has dims) or a Python type."""
    if is_value(arg):
        return arg.dtype, arg.rank > 0
    if isinstance(arg, (str, CountedNumber)):
        return int
    if isinstance(arg, SymbolicTruth):
        return bool
    return float if isinstance(arg, SymbolicFloat) else type(arg)


def _result_type(dummies: list[Any]) -> torch.dtype:
    made = [
        torch.empty((1,) if d[1] else (), dtype=getattr(torch, d[0]))
        if isinstance(d, tuple)
        else d(1)
        for d in dummies
    ]
    if len(made) == 1:
        return torch.result_type(made[0], made[0])
    result = torch.result_type(made[0], made[1])
    for i in range(2, len(made)):
        result = torch.promote_types(result, torch.result_type(made[i], made[i]))
    return result
