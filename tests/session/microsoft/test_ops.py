"""Ops of com.microsoft against onnxruntime, on the reference provider and by default."""

import numpy as np
import onnxruntime
import pytest

from ortmodule import InferenceSession
from ortmodule._native import core

from . import cases, test_without_kernels

FLOATS = cases.FUSED | cases.NORMS | cases.ATTENTION | cases.DECODERS | cases.WEIGHTS
PROVIDERS = [("reference",), None]
# A step of a half is 2^-11 of it; float64 is judged by float32, where -10000 is added to scores.
TOLERANCE = {"float32": (1e-4, 2e-5), "float16": (2e-2, 2e-2), "float64": (2e-3, 2e-3)}


def theirs(model, feed):
    onnxruntime.set_default_logger_severity(4)
    made = onnxruntime.InferenceSession(model.SerializeToString())
    return made.run(None, feed)


def compare(model, feed, tolerance, providers):
    got = InferenceSession(model.SerializeToString(), providers=providers).run(None, feed)
    for mine, other in zip(got, theirs(model, feed), strict=True):
        assert mine.shape == other.shape and mine.dtype == other.dtype
        rtol, atol = tolerance
        np.testing.assert_allclose(mine, other, rtol, atol)


def test_every_op_has_a_case():
    named = {case[0] for case in (FLOATS | cases.QUANTIZED | test_without_kernels.CASES).values()}
    known = {schema["name"] for schema in core().schemas()}
    theirs = {name.partition("::")[2] for name in known if name.startswith("com.microsoft::")}
    # test_dynamic_lstm.py, text/test_tokenizer.py
    assert theirs - named == {"DynamicQuantizeLSTM", "Tokenizer"}


@pytest.mark.parametrize("providers", PROVIDERS, ids=["reference", "default"])
@pytest.mark.parametrize("name", FLOATS)
def test_float(name, providers):
    op, operands, attrs, results = FLOATS[name]
    constants = {"x1", "x2", "x3"} if name in cases.WEIGHTS else ()
    model, feed = cases.made(op, operands, attrs, results, constants)
    compare(model, feed, TOLERANCE["float32"], providers)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("name", FLOATS)
def test_other_dtypes(name, dtype):
    """Where onnxruntime has a kernel; it has none for most."""
    op, operands, attrs, results = FLOATS[name]
    constants = {"x1", "x2", "x3"} if name in cases.WEIGHTS else ()
    other = cases.made(op, cases.in_dtype(operands, dtype), attrs, results, constants)
    try:
        theirs(*other)
    except Exception:  # noqa: BLE001 it has many
        wide = cases.made(op, operands, attrs, results, constants)
        got = alike(other, wide, op)
        if got is None:
            return
        for mine, want in zip(*got, strict=True):
            np.testing.assert_allclose(mine.astype(want.dtype), want, *TOLERANCE[dtype])
        return
    compare(*other, TOLERANCE[dtype], None)


def alike(other, wide, op):
    """Results of ours in the other dtype, and onnxruntime's in float32; None where we refuse."""
    try:
        mine = InferenceSession(other[0].SerializeToString()).run(None, other[1])
    except core().Error as error:
        assert "which it does not take" in str(error) and op in str(error)
        return None
    return mine, theirs(*wide)


@pytest.mark.parametrize("providers", PROVIDERS, ids=["reference", "default"])
@pytest.mark.parametrize("name", cases.QUANTIZED)
def test_quantized(name, providers):
    """Bytes may differ by a step where a quotient lies between two."""
    model, feed = cases.made(*cases.QUANTIZED[name])
    got = InferenceSession(model.SerializeToString(), providers=providers).run(None, feed)
    for mine, other in zip(got, theirs(model, feed), strict=True):
        assert mine.shape == other.shape and mine.dtype == other.dtype
        if mine.dtype.kind in "iu":
            steps = np.abs(mine.astype(np.int64) - other.astype(np.int64))
            assert steps.max() <= 1 and (steps > 0).mean() <= 0.03, steps
        else:
            np.testing.assert_allclose(mine, other, 1e-4, 1e-4)
