"""Products with weights that no run changes: packed once, for all sizes and by each session."""

import gc

import numpy as np
import pytest

from ortmodule import InferenceSession

from ..against import agree
from ..models import model, node, normal, port

ROWS = (1, 3, 4, 5, 6, 33, 200)


def product(k, n, kind="float32", transposed=False, bias=False, scale=1.0):
    weights = {"w": scale * normal(*(n, k) if transposed else (k, n)).astype(kind)}
    if bias:
        weights["b"] = normal(n).astype(kind)
    nodes = [node("Gemm", "x w" + " b" * bias, "y", transB=int(transposed))]
    return model(nodes, [port("x", ["m", k], kind)], [port("y", ["m", n], kind)], weights)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("k, n", [(64, 48), (1030, 17), (7, 1), (600, 200)])
def test_a_product_of_any_number_of_rows(k, n, transposed, bias, kind):
    made = product(k, n, kind, transposed, bias)
    session, (w, *b) = InferenceSession(made.SerializeToString()), weights_of(made)
    for m in (*ROWS, *reversed(ROWS)):
        x = normal(m, k).astype(kind)
        y = session.run(None, {"x": x})[0]
        expected = x.astype("float64") @ (w.T if transposed else w) + (b[0] if b else 0)
        bound = 1e-5 if kind == "float32" else 1e-13
        assert np.abs(y - expected).max() <= bound * np.sqrt(k) * max(np.abs(expected).max(), 1)


def weights_of(made):
    from onnx import numpy_helper

    return [numpy_helper.to_array(tensor).astype("float64") for tensor in made.graph.initializer]


def test_sessions_of_other_weights_at_the_same_address():
    """Made and dropped in turns, so that memory comes again."""
    for i in range(20):
        made = product(128, 96, scale=np.float32(i))
        x, (w,) = normal(64, 128), weights_of(made)
        session = InferenceSession(made.SerializeToString())
        np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ w, rtol=1e-4, atol=1e-4)
        del session
        gc.collect()


def test_one_weight_of_two_products():
    """As embeddings that are tied: read as it lies and packed, along both of its axes."""
    weights = {"w": normal(40, 56)}
    nodes = [node("MatMul", "x w", "h"), node("Gemm", "h w", "y", transB=1)]
    made = model(nodes, [port("x", ["m", 40])], [port("y", ["m", 40])], weights)
    for m in (33, 2):
        agree(made, {"x": normal(m, 40) / 8})


@pytest.mark.parametrize("direction, count", [("forward", 1), ("reverse", 1), ("bidirectional", 2)])
def test_a_recurrent_layer(direction, count):
    weights = {
        "w": normal(count, 4 * 24, 40) / 8,
        "r": normal(count, 4 * 24, 24) / 8,
        "b": normal(count, 8 * 24) / 8,
    }
    nodes = [node("LSTM", "x w r b", "y", hidden_size=24, direction=direction)]
    made = model(nodes, [port("x", ["t", "n", 40])], [port("y", ["t", count, "n", 24])], weights)
    for steps, rows in ((5, 3), (1, 40), (7, 1)):
        agree(made, {"x": normal(steps, rows, 40)})
