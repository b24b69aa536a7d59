"""Element-wise arithmetic, comparisons, logic and casts."""

import math

import torch

from .emit import FLOATING, is_value
from .registry import aten, inverse

_UNARY = {
    "abs": "Abs", "neg": "Neg", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin",
    "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh",
    "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf",
    "tanh": "Tanh", "sigmoid": "Sigmoid", "reciprocal": "Reciprocal", "sign": "Sign",
    "sgn": "Sign", "positive": "Identity",
}  # fmt: skip
_KEEPS_INTEGERS = {"floor": "Floor", "ceil": "Ceil", "round": "Round"}
_COMPARE = {
    "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
}  # fmt: skip
_LOGIC = {"and": "And", "or": "Or", "xor": "Xor"}


def _unary(onnx: str):
    def rule(t, x):
        x = t.cast(x, t.out_dtype())
        return x if onnx == "Identity" else t.op(onnx, x)

    return rule


def _rounding(onnx: str):
    return lambda t, x: t.op(onnx, x) if x.dtype in FLOATING else x


for _name, _onnx in _UNARY.items():
    aten(f"{_name}.default")(_unary(_onnx))
for _name, _onnx in _KEEPS_INTEGERS.items():
    aten(f"{_name}.default")(_rounding(_onnx))


@aten("rsqrt.default")
def rsqrt(t, x):
    return t.op("Reciprocal", t.op("Sqrt", t.cast(x, t.out_dtype())))


@aten("square.default")
def square(t, x):
    return t.op("Mul", x, x)


@aten("exp2.default")
def exp2(t, x):
    dtype = t.out_dtype()
    return t.op("Pow", t.scalar(2, dtype), t.cast(x, dtype))


@aten("erfc.default")
def erfc(t, x):
    dtype = t.out_dtype()
    return t.op("Sub", t.scalar(1, dtype), t.op("Erf", t.cast(x, dtype)))


def _log_to(base: float):
    def rule(t, x):
        dtype = t.out_dtype()
        return t.op("Mul", t.op("Log", t.cast(x, dtype)), t.scalar(1 / math.log(base), dtype))

    return rule


aten("log2.default")(_log_to(2))
aten("log10.default")(_log_to(10))


@aten("trunc.default", "fix.default")
def trunc(t, x):
    if x.dtype not in FLOATING:
        return x
    return t.op("Mul", t.op("Sign", x), t.op("Floor", t.op("Abs", x)))


@aten("frac.default")
def frac(t, x):
    return t.op("Sub", x, trunc(t, x))


def _pair(t, x, y, dtype=None):
    dtype = dtype or t.out_dtype()
    return t.operand(x, dtype), t.operand(y, dtype)


def _scaled(t, y, alpha):
    return y if alpha == 1 else t.op("Mul", y, t.scalar(alpha, y.dtype))


def _is_zero(y) -> bool:
    return isinstance(y, (int, float)) and not isinstance(y, bool) and y == 0


@aten("add.Tensor", "add.Scalar")
def add(t, x, y, *, alpha=1):
    if _is_zero(y) and x.dtype == t.out_dtype():
        return x
    x, y = _pair(t, x, y)
    if x.dtype == "bool":
        return t.op("Or", x, y)
    return t.op("Add", x, _scaled(t, y, alpha))


@aten("sub.Tensor", "sub.Scalar")
def sub(t, x, y, *, alpha=1):
    x, y = _pair(t, x, y)
    return t.op("Sub", x, _scaled(t, y, alpha))


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(t, x, y, alpha=1):
    x, y = _pair(t, x, y)
    return t.op("Sub", y, _scaled(t, x, alpha))


@aten("mul.Tensor", "mul.Scalar")
def mul(t, x, y):
    if not is_value(y) and isinstance(y, float) and y == 1.0 and x.dtype == t.out_dtype():
        return x
    x, y = _pair(t, x, y)
    return t.op("And" if x.dtype == "bool" else "Mul", x, y)


@aten("div.Tensor", "div.Scalar", "true_divide.Tensor", "divide.Tensor")
def div(t, x, y):
    return t.op("Div", *_pair(t, x, y))


@aten("div.Tensor_mode", "div.Scalar_mode")
def div_mode(t, x, y, *, rounding_mode=None):
    x, y = _pair(t, x, y)
    if rounding_mode == "floor":
        return _floor_divide(t, x, y)
    quotient = t.op("Div", x, y)
    return quotient if rounding_mode is None else trunc(t, quotient)


@aten("floor_divide.default", "floor_divide.Scalar")
def floor_divide(t, x, y):
    return _floor_divide(t, *_pair(t, x, y))


def _floor_divide(t, x, y):
    if x.dtype in FLOATING:
        return t.op("Floor", t.op("Div", x, y))
    # ONNX divides integers towards zero; Mod has the sign of the divisor.
    return t.op("Div", t.op("Sub", x, t.op("Mod", x, y, fmod=0)), y)


@aten("remainder.Tensor", "remainder.Scalar")
def remainder(t, x, y):
    x, y = _pair(t, x, y)
    if x.dtype in FLOATING:
        return t.op("Sub", x, t.op("Mul", t.op("Floor", t.op("Div", x, y)), y))
    return t.op("Mod", x, y, fmod=0)


@aten("fmod.Tensor", "fmod.Scalar")
def fmod(t, x, y):
    return t.op("Mod", *_pair(t, x, y), fmod=1)


@aten("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def pow_(t, x, y):
    dtype = t.out_dtype()
    if not is_value(y) and not isinstance(y, str):
        if y == 1:
            return t.operand(x, dtype)
        if y == 0.5:
            return t.op("Sqrt", t.operand(x, dtype))
    return t.op("Pow", *_pair(t, x, y))


@aten("maximum.default", "max.other")
def maximum(t, x, y):
    return t.op("Max", *_pair(t, x, y))


@aten("minimum.default", "min.other")
def minimum(t, x, y):
    return t.op("Min", *_pair(t, x, y))


@aten("lerp.Scalar", "lerp.Tensor")
def lerp(t, start, end, weight):
    weight = t.operand(weight, start.dtype)
    return t.op("Add", start, t.op("Mul", weight, t.op("Sub", end, start)))


@aten("addcmul.default")
def addcmul(t, x, a, b, *, value=1):
    dtype = t.out_dtype()
    product = t.op("Mul", t.cast(a, dtype), t.cast(b, dtype))
    return t.op("Add", t.cast(x, dtype), _scaled(t, product, value))


@aten("addcdiv.default")
def addcdiv(t, x, a, b, *, value=1):
    dtype = t.out_dtype()
    quotient = t.op("Div", t.cast(a, dtype), t.cast(b, dtype))
    return t.op("Add", t.cast(x, dtype), _scaled(t, quotient, value))


@aten("clamp.default", "clip.default")
def clamp(t, x, low=None, high=None):
    dtype = t.out_dtype()
    bounds = [None if b is None else t.scalar(b, dtype) for b in (low, high)]
    return t.op("Clip", t.cast(x, dtype), *bounds)


@aten("clamp_min.default")
def clamp_min(t, x, low):
    return clamp(t, x, low, None)


@aten("clamp_max.default")
def clamp_max(t, x, high):
    return clamp(t, x, None, high)


@aten("clamp.Tensor", "clip.Tensor")
def clamp_tensor(t, x, low=None, high=None):
    dtype = t.out_dtype()
    x = t.cast(x, dtype)
    x = x if low is None else t.op("Max", x, t.cast(low, dtype))
    return x if high is None else t.op("Min", x, t.cast(high, dtype))


@aten("clamp_min.Tensor")
def clamp_min_tensor(t, x, low):
    return clamp_tensor(t, x, low, None)


@aten("clamp_max.Tensor")
def clamp_max_tensor(t, x, high):
    return clamp_tensor(t, x, None, high)


def _compare(onnx: str):
    return lambda t, x, y: t.op(onnx, *_pair(t, x, y, t.result_type(x, y)))


for _name, _onnx in _COMPARE.items():
    aten(f"{_name}.Tensor", f"{_name}.Scalar")(_compare(_onnx))


@aten("ne.Tensor", "ne.Scalar", "not_equal.Tensor", "not_equal.Scalar")
def ne(t, x, y):
    return t.op("Not", _compare("Equal")(t, x, y))


def _logical(onnx: str):
    return lambda t, x, y: t.op(onnx, t.cast(x, "bool"), t.cast(y, "bool"))


def _bitwise(word: str):
    def rule(t, x, y):
        x, y = _pair(t, x, y)
        return t.op(_LOGIC[word] if x.dtype == "bool" else f"Bitwise{_LOGIC[word]}", x, y)

    return rule


for _word, _onnx in _LOGIC.items():
    aten(f"logical_{_word}.default")(_logical(_onnx))
    aten(
        f"bitwise_{_word}.Tensor", f"bitwise_{_word}.Scalar",
        f"__{_word}__.Tensor", f"__{_word}__.Scalar",
    )(_bitwise(_word))  # fmt: skip


@aten("logical_not.default")
def logical_not(t, x):
    return t.op("Not", t.cast(x, "bool"))


@aten("bitwise_not.default")
def bitwise_not(t, x):
    return t.op("Not" if x.dtype == "bool" else "BitwiseNot", x)


def _never(t, x):
    return t.full(t.out_dims(), False, "bool")


@aten("isnan.default")
def isnan(t, x):
    return t.op("IsNaN", x) if x.dtype in FLOATING else _never(t, x)


@aten("isinf.default")
def isinf(t, x):
    return t.op("IsInf", x) if x.dtype in FLOATING else _never(t, x)


@aten("isfinite.default")
def isfinite(t, x):
    return t.op("Not", t.op("Or", isnan(t, x), isinf(t, x)))


@aten("nan_to_num.default")
def nan_to_num(t, x, nan=None, posinf=None, neginf=None):
    if x.dtype not in FLOATING:
        return x
    limits = torch.finfo(getattr(torch, x.dtype))
    zero = t.scalar(0, x.dtype)
    high = t.scalar(limits.max if posinf is None else posinf, x.dtype)
    low = t.scalar(limits.min if neginf is None else neginf, x.dtype)
    infinite, is_nan = t.op("IsInf", x), t.op("IsNaN", x)
    positive = t.op("And", infinite, t.op("Greater", x, zero))
    y = t.op("Where", positive, high, t.op("Where", infinite, low, x))
    return t.op("Where", is_nan, t.scalar(nan or 0.0, x.dtype), y)


@aten("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(t, condition, x, y):
    return t.op("Where", t.cast(condition, "bool"), *_pair(t, x, y))


@aten("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(t, x, mask, value):
    return t.op("Where", mask, t.operand(value, x.dtype), x)


@aten("to.dtype", "to.dtype_layout", "to.device", "to.other", "_to_copy.default", "type_as.default")
def to(t, x, *_args, **_kwargs):
    return t.cast(x, t.out_dtype())


@inverse("to.dtype", "to.dtype_layout", "to.device", "to.other")
def undo_to(t, base, view, *_args, **_kwargs):
    return view


for _name in ("float", "double", "half", "bfloat16", "long", "int", "bool"):
    aten(f"{_name}.default", f"_cast_{_name.capitalize()}.default")(to)


@aten("copy.default")
def copy(t, x, source, non_blocking=False):
    return t.expand(t.cast(source, x.dtype), x.dims)


@aten("fill.Scalar", "fill.Tensor")
def fill(t, x, value):
    return t.full(x.dims, value, x.dtype)


@aten("zero.default")
def zero(t, x):
    return t.full(x.dims, 0, x.dtype)


@aten("logaddexp.default")
def logaddexp(t, x, y):
    x, y = _pair(t, x, y)
    low = t.op("Neg", t.op("Abs", t.op("Sub", x, y)))
    one = t.scalar(1, x.dtype)
    return t.op("Add", t.op("Max", x, y), t.op("Log", t.op("Add", one, t.op("Exp", low))))
