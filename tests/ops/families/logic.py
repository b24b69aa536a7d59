"""Comparisons, boolean and bit-wise logic."""

import numpy as np
import torch

from ..table import Op, b, bad, i, sample, special, t


def comparison(name, f, *extra):
    made = [
        sample(t(3, 5), t(3, 5)),
        sample(i(2, 1, 7, high=3), i(3, 1, high=3)),
        sample(i(4, dtype="int32"), i(dtype="int32")),
        sample(special(), np.roll(special(), 1)),
        sample(t(0, 3), t(3)),
    ]
    return Op(name, f, [*made, *extra], [bad("do not broadcast", t(3), t(4))])


def boolean(name, f):
    return Op(
        name,
        f,
        [sample(b(3, 5), b(3, 5)), sample(b(2, 1, 3), b(4, 1))],
        [bad(f"[{name}] input 'a' has dtype int64", i(2), i(2))],
    )


def bitwise(name, f):
    return Op(
        name,
        f,
        [
            sample(i(3, 5, low=-99, high=99), i(5, low=-99, high=99)),
            sample(i(3, dtype="uint8", high=200), i(3, dtype="uint8", high=200)),
        ],
        [bad(f"[{name}] input 'a' has dtype bool", b(2), b(2))],
    )


def shift(x, bits, direction):
    wide, amount = x.to(torch.int64), bits.to(torch.int64)
    return (wide << amount if direction == "LEFT" else wide >> amount).to(x.dtype)


def is_inf(x, detect_negative=1, detect_positive=1):
    return (x == np.inf) & bool(detect_positive) | (x == -np.inf) & bool(detect_negative)


OPS = [
    comparison("Equal", torch.eq, sample(b(4), b(4))),
    comparison("Greater", torch.gt),
    comparison("GreaterOrEqual", torch.ge),
    comparison("Less", torch.lt),
    comparison("LessOrEqual", torch.le),
    boolean("And", torch.logical_and),
    boolean("Or", torch.logical_or),
    boolean("Xor", torch.logical_xor),
    Op("Not", torch.logical_not, [sample(b(3, 5)), sample(b(0))]),
    bitwise("BitwiseAnd", torch.bitwise_and),
    bitwise("BitwiseOr", torch.bitwise_or),
    bitwise("BitwiseXor", torch.bitwise_xor),
    Op("BitwiseNot", torch.bitwise_not, [sample(i(4, low=-9)), sample(i(4, dtype="uint8"))]),
    Op(
        "BitShift",
        shift,
        [
            sample(i(6, dtype="uint8", high=200), i(6, dtype="uint8", high=9), direction=direction)
            for direction in ("LEFT", "RIGHT")
        ]
        + [
            sample(i(6, dtype=dtype, low=-99, high=99), i(6, dtype=dtype, high=7), direction=side)
            for side in ("LEFT", "RIGHT")
            for dtype in ("int8", "int64")
        ],
        [bad("attribute 'direction' is required", i(2, dtype="uint8"), i(2, dtype="uint8"))],
    ),
    Op(
        "ort::Check",
        lambda ok, error: ok,
        [sample(np.ones((2, 3), bool), error="no"), sample(b(0), error="no")],
        [bad("[ort::Check] it is below zero", np.array([True, False]), error="it is below zero")],
    ),
    Op(
        "BitCast",
        lambda x, to: x.view(getattr(torch, to)),
        [
            sample(special().astype("float32"), to="int32"),
            sample(i(2, 3, low=-(2**30), high=2**30, dtype="int32"), to="float32"),
            sample(i(5, low=-999, high=999), to="float64"),
            sample(i(3, low=-9, high=9, dtype="int8"), to="uint8"),
            sample(t(4).astype("float16"), to="int16"),
            sample(i(4, high=30000, dtype="uint16"), to="int16"),
            sample(b(2, 3), to="uint8"),
            sample(i(6, high=2, dtype="uint8"), to="bool"),
            sample(i(dtype="uint64"), to="int64"),
            sample(i(3, 0), to="int64"),
        ],
        [
            bad("x is int32 of 32 bits, 'to' is float64 of 64", i(2, dtype="int32"), to="float64"),
            bad("attribute 'to' is 8, which is no dtype of numbers", i(2), to=8),
            bad("attribute 'to' is 77, which is no dtype of numbers", i(2), to=77),
        ],
    ),
    Op("IsNaN", torch.isnan, [sample(special()), sample(t(2, 3))]),
    Op(
        "IsInf",
        is_inf,
        [
            sample(special()),
            sample(special(), detect_negative=0),
            sample(special(), detect_positive=0),
        ],
    ),
]
