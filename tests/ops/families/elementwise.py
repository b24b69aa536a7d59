"""Element-wise arithmetic and functions."""

import functools

import numpy as np
import torch

from ..table import Op, b, bad, const, i, sample, special, t

# Both broadcast, odd sizes, a scalar, nothing at all.
PAIRS = [
    lambda f: sample(f(3, 5), f(3, 5)),
    lambda f: sample(f(2, 1, 7), f(3, 1)),
    lambda f: sample(f(4), f()),
    lambda f: sample(f(0, 3), f(3)),
]


def pairs(*extra, f=t, **attrs):
    made = [make(f) for make in PAIRS]
    for one in made:
        one.attrs.update(attrs)
    return [*made, *extra]


def integers(**attrs):
    return [
        sample(i(3, 4, low=-9), i(4, low=1), **attrs),
        sample(i(3, 4, low=-9, dtype="int32"), i(3, 1, low=1, dtype="int32"), **attrs),
        sample(i(5, dtype="uint8"), i(5, low=1, dtype="uint8"), **attrs),
    ]


def shapes_error(name):
    return [
        bad("shapes [3] and [4] do not broadcast", t(3), t(4)),
        bad(f"[{name}] input 'b' has dtype int64, expected", t(3), i(3)),
    ]


def mod(a, b, fmod=0):
    return torch.fmod(a, b) if fmod else torch.remainder(a, b)


def variadic(f):
    return lambda *xs: functools.reduce(f, xs)


def where(condition, a, b):
    return torch.where(condition, a, b)


def clip(x, low=None, high=None):
    """Its gradient at a bound is one, as torch.clamp's is."""
    bounds = [None if bound is None else bound.item() for bound in (low, high)]
    return x.clone() if bounds == [None, None] else torch.clamp(x, *bounds)


def cast(x, to, saturate=1):
    return x.to(getattr(torch, to))


def sign(x):
    """ONNX's, as numpy has it: NaN of NaN."""
    return torch.where(torch.isnan(x), x, torch.sign(x)) if x.is_floating_point() else x.sign()


def with_slope(x, value, slope):
    return value.detach() + (x - x.detach()) * slope.detach()


# What no integer is, and what some have no place for.
NO_INTEGERS = np.array(
    [np.nan, np.inf, -np.inf, -0.5, 127.9, 300.0, -300.0, 4e4, 3e9, -3e9, 1.8e19, -1e20, 2.0**31]
)


def power(x, exponent):
    return torch.pow(x, exponent.to(x.dtype) if x.is_floating_point() else exponent)


def unary(name, f, *extra, low=None, high=None, gradient=True, samples=True):
    made = [sample(t(3, 5, low=low, high=high), gradient=gradient)]
    made += [sample(t(low=low, high=high), gradient=gradient), sample(t(2, 0, 3))]
    made += [sample(special(), gradient=False)] if samples else []
    return Op(name, f, [*made, *extra], errors=[bad("takes at most 1", t(2), t(2))])


BELOW_ONE = {"low": -0.9, "high": 0.9}
POSITIVE = {"low": 0.1, "high": 3.0}
NEAR_ZERO = sample(np.array([1e-9, -1e-9, 3e-5, -2e-3, 0.3]))

OPS = [
    Op(
        "Add",
        torch.add,
        pairs(sample(special(), special(), smooth=False), *integers()),
        shapes_error("Add"),
    ),
    Op(
        "Sub",
        torch.sub,
        pairs(sample(special(), special(), smooth=False), *integers()),
        shapes_error("Sub"),
    ),
    Op("Mul", torch.mul, pairs(*integers()), shapes_error("Mul")),
    Op(
        "Div",
        lambda a, b: (
            a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc").to(a.dtype)
        ),
        [
            *pairs(f=lambda *s: t(*s, low=0.5, high=2.0)),
            sample(special(), t(9), gradient=False),
            *integers(),
        ],
        [*shapes_error("Div"), bad("[Div] integer division by zero", i(3), np.zeros(3, "int64"))],
    ),
    Op(
        "Mod",
        mod,
        [
            sample(t(3, 5), t(5, low=0.3, high=1.0), fmod=1),
            sample(i(4, 5, low=-9), np.array([-3, -2, 1, 2, 7])),
            sample(i(4, 5, low=-9), np.array([-3, -2, 1, 2, 7]), fmod=1),
            sample(i(4, dtype="uint8"), i(4, low=1, dtype="uint8")),
            sample(i(4, dtype="uint8", low=200, high=255), np.array([255, 7, 250, 255], "uint8")),
        ],
        [bad("[Mod] integer division by zero", i(3), np.zeros(3, "int64"))],
        wrt=(0,),
    ),
    Op(
        "Pow",
        power,
        [
            sample(t(3, 5, **POSITIVE), t(5)),
            sample(t(2, 1, 3), const(2.0, "float64")),
            sample(t(2, 1, 3), const(3.0, "float64")),
            sample(t(4, **POSITIVE), const(-0.5, "float64")),
            sample(t(4), const(0.0, "float64")),
            sample(t(4), const([3, 2, 1, 0])),
            sample(np.array([0.0, 0.0, 2.0, 0.0]), np.array([0.0, 2.0, 0.0, 1.0]), smooth=False),
            sample(i(6), i(6, high=4)),
            sample(i(6, low=-9, dtype="int32"), i(6, high=300, dtype="int32")),
            sample(np.array([1, -1, -1, 2, 0], "int32"), np.array([-1, -3, -2, -1, 70], "int32")),
            sample(special(), t(9), gradient=False),
        ],
    ),
    *[
        Op(
            name,
            variadic(f),
            [
                sample(t(3, 5)),
                sample(t(3, 5), t(5)),
                sample(t(2, 1, 3), t(4, 1), t()),
                sample(i(3, 4), i(4)),
                sample(special(), np.roll(special(), 2), gradient=False),
                sample(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0]), smooth=False),
            ],
            [bad("do not broadcast", t(3), t(4))],
        )
        for name, f in (("Max", torch.maximum), ("Min", torch.minimum))
    ],
    Op("Sum", lambda *xs: sum(xs), [sample(t(3, 5)), sample(t(3, 5), t(5), t(2, 1, 1))]),
    Op("Mean", lambda *xs: sum(xs) / len(xs), [sample(t(3)), sample(t(3, 5), t(5), t(2, 1, 1))]),
    unary("Neg", torch.neg, sample(i(4, low=-9, dtype="int32"))),
    unary("Identity", torch.clone, sample(b(3)), sample(i(4))),
    unary("Abs", torch.abs, sample(i(4, low=-9, dtype="int8"))),
    unary("Exp", torch.exp),
    unary("Log", torch.log, **POSITIVE),
    unary("ort::Log1p", torch.log1p, NEAR_ZERO, **POSITIVE),
    unary("ort::Expm1", torch.expm1, NEAR_ZERO),
    unary("ort::Log2", torch.log2, sample(2.0 ** np.arange(-5, 14)), **POSITIVE),
    unary("Sqrt", torch.sqrt, **POSITIVE),
    unary("Reciprocal", torch.reciprocal, **POSITIVE),
    unary("Erf", torch.erf),
    unary("Sin", torch.sin),
    unary("Cos", torch.cos),
    unary("Tan", torch.tan, **BELOW_ONE),
    unary("Asin", torch.asin, **BELOW_ONE),
    unary("Acos", torch.acos, **BELOW_ONE),
    unary("Atan", torch.atan),
    unary("Sinh", torch.sinh),
    unary("Cosh", torch.cosh),
    unary("Asinh", torch.asinh),
    unary("Acosh", torch.acosh, low=1.1, high=3.0),
    unary("Atanh", torch.atanh, **BELOW_ONE),
    unary(
        "Sign", sign, sample(i(4, low=-2, high=3)), sample(special(), gradient=False), samples=False
    ),
    Op(
        "ort::WithSlope",
        with_slope,
        [sample(t(3, 5), t(3, 5), t(3, 5), smooth=False), sample(t(4), t(4), t(), smooth=False)],
        wrt=(0,),
    ),
    unary("Floor", torch.floor),
    unary("Ceil", torch.ceil),
    unary("Round", torch.round, sample(np.array([0.5, 1.5, 2.5, -0.5, -1.5]), gradient=False)),
    Op(
        "Where",
        where,
        [
            sample(b(3, 5), t(3, 5), t(3, 5)),
            sample(b(2, 1, 3), t(4, 1), t()),
            sample(b(4), i(4), i(4)),
            sample(b(4), b(4), b(4)),
            sample(b(0, 3), t(3), t(1)),
        ],
        [bad("[Where] input 'condition' has dtype float64", t(2), t(2), t(2))],
    ),
    Op(
        "Clip",
        clip,
        [
            sample(t(3, 5), const(-0.5, "float64"), const(0.7, "float64")),
            sample(t(3, 5), None, const(0.2, "float64")),
            sample(t(3, 5), const(0.2, "float64")),
            sample(t(3, 5)),
            sample(
                np.array([0.0, 1.0, 2.0]),
                const(0.0, "float64"),
                const(1.0, "float64"),
                smooth=False,
            ),
            sample(special(), const(-1.0, "float64"), const(1.0, "float64"), gradient=False),
            sample(i(6), const(2), const(5)),
        ],
    ),
    Op(
        "Cast",
        cast,
        [
            sample(t(3, 5), to="float32"),
            sample(t(3, 5), to="float64"),
            sample(t(3, 5), to="float16"),
            sample(t(3, 5), to="bfloat16"),
            sample(t(3, 5, low=-100, high=100), to="int32"),
            sample(t(4, low=0, high=100), to="uint8"),
            sample(np.array([0.0, -0.0, 0.3, np.nan]), to="bool"),
            *(
                sample(NO_INTEGERS, to=dtype)
                for dtype in ("int8", "uint8", "int16", "int32", "int64", "bool")
            ),
            sample(i(4, low=-9), to="bool"),
            sample(b(4), to="float32"),
            sample(i(4, low=-500, high=500, dtype="int32"), to="int8"),
            sample(i(4, dtype="uint64"), to="float64"),
        ],
        [bad("attribute 'to' is 77, which is no dtype", t(3), to=77)],
    ),
    Op(
        "CastLike",
        lambda x, like: x.to(like.dtype),
        [sample(t(3, 5), i(2, dtype="int32")), sample(t(3, 5), np.zeros(1, "float32"))],
    ),
]
