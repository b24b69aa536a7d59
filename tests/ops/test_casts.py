"""Cast on the cpu provider between all element types, against numpy and ml_dtypes."""

import itertools

import numpy as np
import onnx
import pytest

from .engine import FLOATS, C, numpy_dtype

INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
NAMES = {"float32": "FLOAT", "float64": "DOUBLE"}  # ONNX's
DTYPES = [*FLOATS, *INTEGERS, "bool"]
# Ties of bfloat16 and of float16, the ends of float16's range, denormals of it and below them.
REALS = [1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 3 * 2**-11, 65504, 65519, 65520, 3e38, 2**-24]
REALS += [2**-25, 2**-26, 5e-6, 1e-40, -0.0, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("from_, to", itertools.permutations(DTYPES, 2))
def test_cast(from_, to):
    values = [0, 1, 2, 2.75, 100, 127] * 13 + ([-0.5] if to in FLOATS else [])
    if from_ in FLOATS and to in (*FLOATS, "bool"):
        values = values + REALS + [-x for x in REALS]
    with np.errstate(all="ignore"):
        x = np.array(values, np.float32)
        x = (np.abs(x) if from_.startswith("u") else x).astype(numpy_dtype(from_))
        want = x.astype(numpy_dtype(to))
    graph = C.Graph()
    (y,) = graph.emit(
        "Cast",
        [graph.input("x", from_, ["n"])],
        {"to": getattr(onnx.TensorProto, NAMES.get(to, to.upper()))},
        1,
    )
    graph.output(y, "y")
    (got,) = C.evaluate(graph, {"x": x}, ["cpu"])
    assert got.dtype == want.dtype
    if to in FLOATS:
        got, want = got.astype(np.float64), want.astype(np.float64)  # whose NaNs numpy knows
        np.testing.assert_array_equal(np.signbit(got[got == 0]), np.signbit(want[want == 0]))
    np.testing.assert_array_equal(got, want)
