"""Signs of zeros, which a division shows, by every provider as by numpy."""

import numpy as np
import onnx
import pytest

from ortmodule import InferenceSession

FORMULAS = {
    "Abs": np.abs,
    "Neg": np.negative,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.rint,
    "Sqrt": np.sqrt,
    "Identity": np.array,
    "Reciprocal": np.reciprocal,
}
DTYPES = {"float": np.float32, "double": np.float64, "float16": np.float16}


@pytest.mark.parametrize("providers", [("reference",), None], ids=["reference", "default"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", FORMULAS)
def test_signs_of_zeros(op, dtype, providers):
    head = '<ir_version: 9, opset_import: ["": 20]>'
    text = f"{head} m ({dtype}[n] x) => ({dtype}[n] y) {{ y = {op} (x) }}"
    model = onnx.parser.parse_model(text)
    x = np.array([-0.0, 0.0, 0.4, 2.0, np.inf], DTYPES[dtype])
    session = InferenceSession(model.SerializeToString(), providers=providers)
    (y,) = session.run(None, {"x": x})
    with np.errstate(divide="ignore"):
        want = FORMULAS[op](x)
    np.testing.assert_allclose(y, want)
    np.testing.assert_array_equal(np.signbit(y), np.signbit(want))
