"""What begins or ends in bytes is one pass on the cpu provider: as the reference and onnxruntime
have it."""

import numpy as np
import onnxruntime
import pytest
from onnx import parser

from ortmodule import InferenceSession

HEAD = '<ir_version: 10, opset_import: ["": 21]>\n'
ODD = [np.inf, -np.inf, 1e30, -1e30, 0.05, 0.15, 0.25, -0.05, 300, -300, -0.0]


def numbers(size):
    rng = np.random.default_rng(size)
    x = (rng.standard_normal(size) * 15).astype(np.float32)
    x[: len(ODD)] = ODD[:size]
    return x


BODIES = {
    "constants": "Y = QuantizeLinear(X, S, Z)",
    "no zero point": "Y = QuantizeLinear(X, S)",
    "fed": "T = Abs(s) U = Identity(z) Y = QuantizeLinear(X, T, U)",
    "made in the program": "E = Exp(X) N = Neg(E) Y = QuantizeLinear(N, S, Z)",
    "rounding is read twice":
        "D = Div(X, S) R = Round(D) N = Neg(R) A = Clip(R, L, H) Y = Cast<to = {kind}>(A)",
    **{
        f"{name} is a result":
            "D = Div(X, S) R = Round(D) B = Max(R, L) A = Min(B, H) Y = Cast<to = {kind}>(A)"
            .replace(f"{name} =", "N =").replace(f"({name}", "(N")
        for name in "DRBA"
    },
    "bounds alone": "R = Round(X) A = Clip(R, L, H) Y = Cast<to = {kind}>(A)",
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("size", [1, 7, 16, 33, 5000])
@pytest.mark.parametrize("name", BODIES)
def test_as_others(name, size, dtype):
    low, high = (0, 255) if dtype == "uint8" else (-128, 127)
    body = BODIES[name].replace("{kind}", "2" if dtype == "uint8" else "3")
    dtype = "uint8" if name == "no zero point" else dtype
    more = ", float[n] N" if "N =" in body else ""
    model = parser.parse_model(
        f"{HEAD}g (float[n] X, float[] s, {dtype}[] z) => ({dtype}[n] Y{more}) "
        f"<float S = {{0.1}}, {dtype} Z = {{3}}, float L = {{{low}.0}}, float H = {{{high}.0}}> "
        f"{{ {body} }}"
    ).SerializeToString()
    feed = {"X": numbers(size), "s": np.array(0.25, np.float32), "z": np.array(7, dtype)}
    results = [
        InferenceSession(model).run(None, feed),
        InferenceSession(model, providers=("reference",)).run(None, feed),
        onnxruntime.InferenceSession(model).run(None, feed),
    ]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0][0], other[0])
        for mine, theirs in zip(results[0][1:], other[1:], strict=True):
            np.testing.assert_allclose(mine, theirs, 1e-5)


def test_what_is_no_number():
    model = parser.parse_model(
        f"{HEAD}g (float[n] X) => (int8[n] Y) <float S = {{0.1}}, int8 Z = {{3}}> "
        "{ Y = QuantizeLinear(X, S, Z) }"
    ).SerializeToString()
    x = np.full(40, np.nan, np.float32)
    for providers in (None, ("reference",)):
        y = InferenceSession(model, providers=providers).run(None, {"X": x})[0]
        np.testing.assert_array_equal(y, np.zeros(40, np.int8))


@pytest.mark.parametrize("scale", [0.1, 1 / 3, 1.0, -0.7, 1e-3, 2.0**-126, 1e-40, 3e38])
@pytest.mark.parametrize(("dtype", "low", "high"), [("uint8", 0, 255), ("int8", -128, 127)])
def test_quotients_beside_a_half(dtype, low, high, scale):
    """A product with the inverse is now above and now below it, where a quotient is not."""
    model = parser.parse_model(
        f"{HEAD}g (float[n] X, float s, {dtype} z) => ({dtype}[n] Y) "
        "{ Y = QuantizeLinear(X, s, z) }"
    ).SerializeToString()
    scale, zero = np.float32(scale), np.array(3, dtype)
    with np.errstate(over="ignore", under="ignore"):
        x = (np.arange(-1200, 1200) / 2).astype(np.float32) * scale
        x = np.concatenate([np.nextafter(x, np.float32(end)) for end in (-np.inf, 0, np.inf)] + [x])
        want = np.clip(np.rint(x / scale) + zero, low, high).astype(dtype)
    (y,) = InferenceSession(model).run(None, {"X": x, "s": scale, "z": zero})
    np.testing.assert_array_equal(y, want)


READ = {
    "constants": "Y = DequantizeLinear(X, S, Z)",
    "no zero point": "Y = DequantizeLinear(X, S)",
    "fed": "T = Abs(s) U = Identity(z) Y = DequantizeLinear(X, T, U)",
    "scale first": "F = Cast<to = 1>(X) Y = Mul(s, F)",
    "from a number": "F = Cast<to = 1>(X) D = Sub(s, F) Y = Mul(D, S)",
    "the difference is read twice": "F = Cast<to = 1>(X) D = Sub(F, s) M = Mul(D, S) Y = Add(M, D)",
    "the floats are a result": "N = Cast<to = 1>(X) D = Sub(N, s) Y = Mul(D, S)",
    "and goes on": "D = DequantizeLinear(X, S, Z) E = Tanh(D) Y = Mul(E, D)",
    "by channel": "D = DequantizeLinear(X, S, Z) Y = Mul(D, c)",
    "to bytes again": "D = DequantizeLinear(X, S, Z) E = Neg(D) Q = QuantizeLinear(E, s, z) "
                      "Y = Cast<to = 1>(Q)",
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (33, 16), (3, 5000), (0, 4)])
@pytest.mark.parametrize("name", READ)
def test_what_is_read_as_others_read_it(name, shape, dtype):
    more = ", float[m, n] N" if "N =" in READ[name] else ""
    model = parser.parse_model(
        f"{HEAD}g ({dtype}[m, n] X, float s, {dtype} z, float[n] c) => (float[m, n] Y{more}) "
        f"<float S = {{0.1}}, {dtype} Z = {{3}}> {{ {READ[name]} }}"
    ).SerializeToString()
    info = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(info.min, info.max + 1, shape).astype(dtype)
    feed = {"X": x, "s": np.array(0.3, np.float32), "z": np.array(7, dtype),
            "c": np.linspace(-1, 1, shape[1], dtype=np.float32)}  # fmt: skip
    results = [
        InferenceSession(model).run(None, feed),
        InferenceSession(model, providers=("reference",)).run(None, feed),
        onnxruntime.InferenceSession(model).run(None, feed),
    ]
    for other in results[1:]:
        for mine, theirs in zip(results[0], other, strict=True):
            np.testing.assert_allclose(mine, theirs, 1e-6, 1e-6)
