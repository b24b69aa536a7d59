"""Element-wise arithmetic, comparisons, logic and casts."""

import functools
import math

import torch

from ...torch_internals.asked import asked
from ..emit import FLOATING, HALVES, SymbolicFloat, is_odd, is_value
from ..registry import aten, inverse, wide

_UNARY = {
    "abs": "Abs", "neg": "Neg", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "sin": "Sin",
    "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh",
    "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "erf": "Erf",
    "tanh": "Tanh", "sigmoid": "Sigmoid", "reciprocal": "Reciprocal", "positive": "Identity",
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


@aten("sign.default", "sgn.default")
def sign(t, x):
    found = t.op("Sign", x)
    if x.dtype not in FLOATING:
        return found
    return t.op("Where", t.op("IsNaN", x), t.scalar(0, x.dtype), found)  # ONNX has NaN of it


@aten("rsqrt.default")
@wide
def rsqrt(t, x):
    return t.op("Reciprocal", t.op("Sqrt", t.cast(x, t.out_dtype())))


@aten("square.default")
def square(t, x):
    return t.op("Mul", x, x)


@aten("exp2.default")
def exp2(t, x):
    dtype = t.out_dtype()
    return t.op("Pow", t.scalar(2, dtype), t.cast(x, dtype))


def _precise(name: str):
    return lambda t, x: t.ort(name, t.cast(x, t.out_dtype()))


for _name, _own in {"log1p": "Log1p", "expm1": "Expm1", "log2": "Log2"}.items():
    aten(f"{_name}.default")(_precise(_own))


@aten("trunc.default", "fix.default")
def trunc(t, x):
    if x.dtype not in FLOATING:
        return x
    below = t.op("Less", x, t.scalar(0, x.dtype))
    return t.op("Where", below, t.op("Ceil", x), t.op("Floor", x))


@aten("frac.default")
def frac(t, x):
    return t.op("Sub", x, trunc(t, x))


@aten("erfc.default")
def erfc(t, x):
    if not t.standard:
        return NotImplemented  # 1 - erf(x) is nothing far out
    dtype = t.out_dtype()
    return t.op("Sub", t.scalar(1, dtype), t.op("Erf", t.cast(x, dtype)))


@aten("log10.default")
def log10(t, x):
    if not t.standard:
        return NotImplemented  # not exact at powers of ten
    dtype = t.out_dtype()
    return t.op("Div", t.op("Log", t.cast(x, dtype)), t.scalar(math.log(10), dtype))


@aten("logaddexp.default")
def logaddexp(t, x, y):
    if not t.standard:
        return NotImplemented  # infinities and log1p
    x, y = _pair(t, x, y)
    more, less = t.op("Max", x, y), t.op("Min", x, y)
    same = t.op("Equal", x, y)  # of infinities the difference is none
    gap = t.op("Where", same, t.scalar(0, x.dtype), t.op("Sub", less, more))
    return t.op("Add", more, t.op("Softplus", gap))


def _pair(t, x, y, dtype=None):
    dtype = dtype or t.out_dtype()
    return t.operand(x, dtype), t.operand(y, dtype)


def _scaled(t, y, alpha):
    return y if alpha == 1 else t.op("Mul", y, t.scalar(alpha, y.dtype))


@aten("add.Tensor", "add.Scalar")
def add(t, x, y, *, alpha=1):
    x, y = _pair(t, x, y)
    if x.dtype == "bool":
        return t.op("Or", x, y)
    return t.op("Add", x, _scaled(t, y, alpha))


@aten("sub.Tensor", "sub.Scalar")
def sub(t, x, y, *, alpha=1):
    x, y = _pair(t, x, y)
    if alpha == 0:
        return t.op("Add", x, _scaled(t, y, -alpha))  # as torch, for the sign of a zero
    return t.op("Sub", x, _scaled(t, y, alpha))


@aten("rsub.Tensor", "rsub.Scalar")
def rsub(t, x, y, alpha=1):
    x, y = _pair(t, x, y)
    if alpha == 0:
        return t.op("Add", y, _scaled(t, x, -alpha))
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
    if rounding_mode == "floor":
        return _floor_divide(t, x, y)
    x, y = _pair(t, x, y)
    if rounding_mode is None:
        return t.op("Div", x, y)
    return t.flat(trunc(t, t.op("Div", t.stop(x), t.stop(y))), x, y)


@aten("floor_divide.default", "floor_divide.Scalar")
def floor_divide(t, x, y):
    if t.needs_gradient():
        return NotImplemented  # torch has none, and says so
    return _floor_divide(t, x, y)


def _floor_divide(t, x, y):
    x, y = _pair(t, x, y)
    if x.dtype not in FLOATING:
        one_less = t.cast(_other_side(t, t.op("Mod", x, y, fmod=1), y), x.dtype)
        return t.op("Sub", t.op("Div", x, y), one_less)  # ONNX divides integers towards zero
    return t.flat(_floor_of_quotient(t, t.stop(x), t.stop(y)), x, y)


def _floor_of_quotient(t, x, y):
    """c10::div_floor_floating: by the remainder, as x / y may round up to the next integer."""
    zero, one = t.scalar(0, x.dtype), t.scalar(1, x.dtype)
    quotient, rest = t.op("Div", x, y), t.op("Mod", x, y, fmod=1)
    whole = t.op("Div", t.op("Sub", x, rest), y)
    whole = t.op("Where", _other_side(t, rest, y), t.op("Sub", whole, one), whole)
    floor = t.op("Floor", whole)
    up = t.op("Greater", t.op("Sub", whole, floor), t.scalar(0.5, x.dtype))
    floor = t.op("Where", up, t.op("Add", floor, one), floor)
    signed_zero = t.op("Mul", quotient, zero)
    floor = t.op("Where", t.op("Equal", whole, zero), signed_zero, floor)
    return t.op("Where", t.op("Equal", y, zero), quotient, floor)


def _other_side(t, rest, y):
    """Whether a remainder with the dividend's sign is on the other side of zero than y."""
    zero = t.scalar(0, y.dtype)
    differs = t.op("Xor", t.op("Less", rest, zero), t.op("Less", y, zero))
    return t.op("And", differs, t.op("Not", t.op("Equal", rest, zero)))


@aten("remainder.Tensor", "remainder.Scalar")
def remainder(t, x, y):
    if t.gradient_to(1):
        return NotImplemented
    x, y = _pair(t, x, y)
    if x.dtype not in FLOATING:
        return t.op("Mod", x, y, fmod=0)
    rest = t.op("Mod", x, y, fmod=1)
    return t.op("Where", _other_side(t, rest, y), t.op("Add", rest, y), rest)


@aten("fmod.Tensor", "fmod.Scalar")
def fmod(t, x, y):
    if t.gradient_to(1):
        return NotImplemented
    return t.op("Mod", *_pair(t, x, y), fmod=1)


@aten("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def pow_(t, x, y):
    dtype = t.out_dtype()
    if not is_value(y) and not isinstance(y, str):
        if y == 1:
            return t.operand(x, dtype)
        if y == 0.5 and dtype != "float16":  # of which torch has the power, of -inf too
            return t.op("Sqrt", t.operand(x, dtype))
    base, power = _pair(t, x, y)
    found = t.op("Pow", base, power)
    to_base = t.gradient_to(0) and _is_rounded(y, dtype)
    to_power = t.gradient_to(1) and not is_value(x) and _is_rounded(x, dtype)
    if not to_base and not to_power:
        return found
    if t.gradient_to(0) and t.gradient_to(1):
        return NotImplemented
    if to_base:
        base, slope = t.expand(base, t.out_dims()), _slope_of_base(t, t.stop(base), y, dtype)
        return t.ort("WithSlope", base, found, slope)
    slope = _slope_of_power(t, x, t.stop(power), found)
    return t.ort("WithSlope", t.expand(power, t.out_dims()), found, slope)


def _is_rounded(x, dtype):
    """Whether a power's operand is another number than the one that torch's slope is made of."""
    if is_value(x):
        return x.dtype != dtype and (x.dtype in FLOATING or dtype in HALVES)
    if not isinstance(x, (int, float)):
        return dtype in HALVES
    if dtype in HALVES:
        return is_odd(x, dtype) or is_odd(x - 1, dtype)
    x, less = torch.tensor([x, x - 1], dtype=torch.float64).to(getattr(torch, dtype))
    return bool(x - 1 != less)


def _slope_of_base(t, base, y, dtype):
    """y base^(y - 1), where y is less one before it is rounded."""
    own = y.dtype if is_value(y) else "float64"
    power = t.stop(t.operand(y, own))
    less = t.op("Pow", base, t.cast(t.op("Sub", power, t.scalar(1, own)), dtype))
    wide = "float64" if dtype == "float64" else "float32"
    factor = t.cast(power, dtype) if is_value(y) else power
    slope = t.op("Mul", t.cast(factor, wide), t.cast(less, wide))
    zero = t.op("Equal", power, t.scalar(0, own))
    return t.cast(t.op("Where", zero, t.scalar(0, wide), slope), dtype)


def _slope_of_power(t, x, power, found):
    """x^power log(x), where x is not rounded; zero where x is and power is not negative."""
    own, wide = (
        t.stop(t.operand(x, "float64")),
        "float64" if found.dtype == "float64" else "float32",
    )
    slope = t.op("Mul", t.cast(t.stop(found), wide), t.cast(t.op("Log", own), wide))
    grows = t.op("GreaterOrEqual", power, t.scalar(0, power.dtype))
    flat = t.op("And", t.op("Equal", own, t.scalar(0, "float64")), grows)
    return t.cast(t.op("Where", flat, t.scalar(0, wide), slope), found.dtype)


@aten("maximum.default", "max.other")
def maximum(t, x, y):
    return t.op("Max", *_pair(t, x, y))


@aten("minimum.default", "min.other")
def minimum(t, x, y):
    return t.op("Min", *_pair(t, x, y))


@aten("lerp.Scalar", "lerp.Tensor")
@wide
def lerp(t, start, end, weight):
    """From the end that is nearer, so that weights 0 and 1 give the ends themselves."""
    difference = t.op("Sub", end, start)
    if is_value(weight):
        if t.needs_gradient():
            return NotImplemented
        near = t.op("Less", t.op("Abs", weight), t.scalar(0.5, weight.dtype))
        return t.op("Where", near, _from_start(t, start, weight, difference),
                    _from_end(t, end, weight, difference))  # fmt: skip
    small = not isinstance(weight, (int, float)) or abs(weight) < 0.5
    weight = t.scalar(weight, start.dtype)
    return (_from_start(t, start, weight, difference) if small
            else _from_end(t, end, weight, difference))  # fmt: skip


def _from_start(t, start, weight, difference):
    return t.op("Add", start, t.op("Mul", weight, difference))


def _from_end(t, end, weight, difference):
    rest = t.op("Sub", t.scalar(1, weight.dtype), weight)
    return t.op("Sub", end, t.op("Mul", difference, rest))


@aten("addcmul.default")
def addcmul(t, x, a, b, *, value=1):
    dtype = t.out_dtype()
    product = t.op("Mul", t.cast(a, dtype), t.cast(b, dtype))
    return t.op("Add", t.cast(x, dtype), _scaled(t, product, value))


@aten("addcdiv.default")
def addcdiv(t, x, a, b, *, value=1):
    if t.gradient_to(2):
        return NotImplemented
    dtype = t.out_dtype()
    quotient = t.op("Div", t.cast(a, dtype), t.cast(b, dtype))
    return t.op("Add", t.cast(x, dtype), _scaled(t, quotient, value))


@asked
def _nan_is_no_bound() -> bool:
    """Whether torch's kernel of one bound ignores a NaN; after torch 2.11 it gives NaN."""
    return not torch.zeros(1, device="cpu").clamp(min=math.nan).isnan().any()


@asked
def _numbers_are_inside() -> bool:
    """Whether x has the gradient where it equals a bound that is a number: up to torch 2.11."""
    x = torch.zeros(1, device="cpu", requires_grad=True)
    return bool(torch.autograd.grad(x.clamp(min=0.0), x)[0])


@asked
def _bounds_have_half() -> bool:
    """Whether x and a bound that is a tensor share the gradient where they are equal, and both have
    it beside a NaN, as in maximum. Up to torch 2.11 x has it all, and nobody beside a NaN."""
    x = torch.zeros(1, device="cpu", requires_grad=True)
    return torch.autograd.grad(x.clamp_min(torch.zeros_like(x)), x)[0].item() == 0.5


@aten("clamp.default", "clip.default")
def clamp(t, x, low=None, high=None):
    dtype, alone = t.out_dtype(), (low is None or high is None) and _nan_is_no_bound()
    if alone and any(b != b for b in (low, high) if isinstance(b, float)):
        return NotImplemented
    bounds = [None if b is None else t.scalar(b, dtype) for b in (low, high)]
    x = t.cast(x, dtype)
    y = t.op("Clip", x, *bounds)
    for number, bound in zip((low, high), bounds, strict=True):
        if alone and isinstance(number, SymbolicFloat) and dtype in FLOATING:
            y = t.op("Where", t.op("IsNaN", bound), t.stop(x), y)
    if not t.needs_gradient() or dtype not in FLOATING or _numbers_are_inside():
        return y
    inside = [t.op(order, x, bound)
              for order, bound in zip(("Greater", "Less"), bounds, strict=True)
              if bound is not None]  # fmt: skip
    return t.op("Where", functools.reduce(lambda a, b: t.op("And", a, b), inside), x, t.stop(y))


@aten("clamp_min.default")
def clamp_min(t, x, low):
    return clamp(t, x, low, None)


@aten("clamp_max.default")
def clamp_max(t, x, high):
    return clamp(t, x, None, high)


@aten("clamp.Tensor", "clip.Tensor")
def clamp_tensor(t, x, low=None, high=None):
    if low is not None and high is not None and t.needs_gradient():
        return NotImplemented
    dtype = t.out_dtype()
    x = t.cast(x, dtype)
    low, high = (None if b is None else t.cast(b, dtype) for b in (low, high))
    y = x if low is None else t.op("Max", x, low)
    y = y if high is None else t.op("Min", y, high)
    if not t.needs_gradient() or _bounds_have_half():
        return y
    return _clamped_with_gradient(t, x, low, high, y)


def _clamped_with_gradient(t, x, low, high, y):
    """y, with the older torch's choice of whose gradient it is: x's at a bound, nobody's beside a
    NaN."""
    beyond, within, bound = ("Less", "GreaterOrEqual", low)
    if low is None:
        beyond, within, bound = ("Greater", "LessOrEqual", high)
    y = t.op("Where", t.op(beyond, x, bound), bound, t.stop(y))
    return t.op("Where", t.op(within, x, bound), x, y)


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
    y = t.op("Where", is_nan, t.scalar(nan or 0.0, x.dtype), y)
    return t.masked(x, y, t.op("Or", infinite, is_nan))


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


for _name in ("Float", "Double", "Half", "Long", "Int"):
    aten(f"_cast_{_name}.default")(to)


@aten("copy.default")
def copy(t, x, source, non_blocking=False):
    return t.flat(t.expand(t.cast(source, x.dtype), x.dims), x)


@aten("fill.Scalar", "fill.Tensor")
def fill(t, x, value):
    return t.flat(t.full(x.dims, value, x.dtype), x)


@aten("zero.default")
def zero(t, x):
    return t.flat(t.full(x.dims, 0, x.dtype), x)
