"""Matrix products."""

import torch
import torch.nn.functional as F

from ..table import Op, bad, i, sample, t

ACTIVATIONS = {
    "none": lambda y: y,
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    "hard_swish": F.hardswish,
    "leaky_relu": F.leaky_relu,
    "clip": lambda y, low, high: y.clamp(low, high),
}
NUMBERS = {"leaky_relu": [0.25], "clip": [-0.5, 0.75]}


def with_activations(*inputs, **settings):
    """A sample for each. LeakyRelu's gradient is its definition's, which a definition has not."""
    for name in ACTIVATIONS:
        numbers = {"activation_numbers": NUMBERS[name]} if name in NUMBERS else {}
        slope = name == "leaky_relu"
        yield sample(*inputs, activation=name, **numbers, **{"gradient": not slope, **settings})


def activated(y, activation="none", activation_numbers=()):
    return ACTIVATIONS[activation](y, *activation_numbers)


def gemm(a, b, c=None, alpha=1.0, beta=1.0, transA=0, transB=0):
    y = alpha * ((a.T if transA else a) @ (b.T if transB else b))
    return y if c is None else y + beta * c


def product(a, b, bias=None, trans_a=0, trans_b=0, alpha=1.0, **activation):
    y = (a.mT if trans_a else a) @ (b.mT if trans_b else b)
    y = y * alpha
    return activated(y if bias is None else y + bias, **activation)


def linear(x, w, b=None, **activation):
    return activated(F.linear(x, w, b), **activation)


OPS = [
    Op(
        "MatMul",
        torch.matmul,
        [
            sample(t(3, 5), t(5, 7)),
            sample(t(2, 3, 5), t(5, 7)),
            sample(t(2, 3, 5), t(2, 5, 7)),
            sample(t(4, 1, 3, 5), t(2, 5, 7)),
            sample(t(3, 5), t(2, 5, 7)),
            sample(t(5), t(5)),
            sample(t(5), t(5, 7)),
            sample(t(3, 5), t(5)),
            sample(t(2, 3, 5), t(5)),
            sample(t(5), t(2, 5, 7)),
            sample(t(0, 5), t(5, 7)),
            sample(t(3, 0), t(0, 7)),
            sample(t(1, 1), t(1, 1)),
            sample(i(3, 4), i(4, 2)),
            sample(i(3, 4, dtype="uint8"), i(4, 2, dtype="uint8")),
        ],
        [
            bad("inner sizes 5 and 4 differ", t(3, 5), t(4, 7)),
            bad("batch sizes [2] and [3] do not broadcast", t(2, 3, 5), t(3, 5, 7)),
            bad("operands have ranks 0 and 2", t(), t(3, 5)),
        ],
    ),
    Op(
        "Gemm",
        gemm,
        [
            sample(t(3, 5), t(5, 7), t(7)),
            sample(t(3, 5), t(5, 7)),
            sample(t(5, 3), t(7, 5), t(3, 1), transA=1, transB=1, alpha=0.5, beta=2.0),
            sample(t(3, 5), t(7, 5), t(3, 7), transB=1),
            sample(t(3, 5), t(5, 7), t(), beta=0.0),
        ],
        [bad("inner sizes 3 and 5 differ", t(5, 3), t(5, 7))],
    ),
    Op(
        "ort::MatMul",
        product,
        [
            sample(t(3, 5), t(5, 7)),
            sample(t(5, 3), t(7, 5), t(7), trans_a=1, trans_b=1, alpha=0.5),
            sample(t(2, 4, 3, 5), t(2, 4, 7, 5), trans_b=1, alpha=0.125),
            sample(t(2, 5, 3), t(5, 7), trans_a=1),
            *with_activations(t(3, 5), t(5, 7), t(7)),
        ],
        [
            bad("inner sizes 5 and 4 differ", t(3, 5), t(4, 7)),
            bad("unknown activation 'step'", t(3, 5), t(5, 7), activation="step"),
            bad("activation 'clip' has 0 numbers, expected 2", t(3, 5), t(5, 7), activation="clip"),
            bad("attribute 'to' is 77, which is no dtype", t(3, 5), t(5, 7), to=77),
        ],
    ),
    Op(
        "ort::Linear",
        linear,
        [
            sample(t(3, 5), t(7, 5), t(7)),
            sample(t(2, 3, 5), t(7, 5), t(7)),
            sample(t(2, 3, 5), t(7, 5)),
            sample(t(5), t(7, 5), t(7)),
            sample(t(0, 5), t(7, 5), t(7)),
            *with_activations(t(3, 5), t(7, 5), t(7), gradient=False),
        ],
        [
            bad("w has shape [7, 4], expected [N, 5] (last axis of x)", t(3, 5), t(7, 4)),
            bad("b has shape [3], expected [7]", t(3, 5), t(7, 5), t(3)),
        ],
    ),
]
