"""The precision that a file asks of Attention's softmax, by onnx's reference."""

import numpy as np
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from ..against import ours
from ..models import KINDS, model, node, normal, port

NEAR = {  # some last places: of scores as large as these what differs is multiplied
    TensorProto.FLOAT: 2**-16,
    TensorProto.FLOAT16: 2**-8,
    TensorProto.DOUBLE: 2**-45,
    TensorProto.BFLOAT16: 2**-5,
}


@pytest.mark.parametrize("precision", NEAR)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_softmax_is_computed_as_asked(kind, precision):
    attrs = {"softmax_precision": precision, "qk_matmul_output_mode": 3}
    nodes = [node("Attention", "q k v", "y a b p", **attrs)]
    shapes = {"q": [1, 2, 5, 8], "k": [1, 2, 6, 8], "v": [1, 2, 6, 4]}
    inputs = [port(name, shape, kind) for name, shape in shapes.items()]
    outputs = [port(name, ["n"] * 4, kind) for name in "yp"]
    made = model(nodes, inputs, outputs, opset=23)
    feed = {name: 3 * normal(*shape).astype(kind) for name, shape in shapes.items()}
    near = max(NEAR[precision], NEAR[KINDS[kind]])
    wants = ReferenceEvaluator(made).run(None, feed)
    for got, want in zip(ours(made, feed), wants, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=near, atol=near)
    asked = {TensorProto.FLOAT16: np.float16}.get(precision)
    if asked:  # no more bits than were asked for
        p = ours(made, feed)[1]
        np.testing.assert_array_equal(p, p.astype(asked).astype(kind))
