"""FlexAttention (ai.onnx.preview) with graphs of a file's own, against onnx's reference."""

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from ortmodule import InferenceSession
from ortmodule._native import core

HEAD = '<ir_version: 13, opset_import: ["": 26, "ai.onnx.preview": 1]>\n'
PORTS = "float[b, 4, t, 8] q, float[b, 2, s, 8] k, float[b, 2, s, 6] v"
TWICE = "g (float[b, 4, t, s] x) => (float[b, 4, t, s] y) { y = Add (x, x) }"
CASES = {
    "plain": "y = ai.onnx.preview.FlexAttention (q, k, v)",
    "scale": "y = ai.onnx.preview.FlexAttention <scale = 0.3> (q, k, v)",
    "double": "y = ai.onnx.preview.FlexAttention <softmax_precision = 11> (q, k, v)",
    "scores": f"y = ai.onnx.preview.FlexAttention <score_mod = {TWICE}> (q, k, v)",
    "both": f"""y = ai.onnx.preview.FlexAttention <score_mod = {TWICE}, prob_mod =
        h (float[b, 4, t, s] p) => (float[b, 4, t, s] r) {{
          half = Constant <value_float = 0.5> ()
          r = Mul (p, half)
        }}> (q, k, v)""",
    "twice": f"""a = ai.onnx.preview.FlexAttention <score_mod = {TWICE}> (q, k, v)
        c = ai.onnx.preview.FlexAttention (q, k, v)
        y = Sub (a, c)""",
}


def made(text, ports=PORTS):
    return onnx.parser.parse_model(f"{HEAD} m ({ports}) => (float[b, 4, t, d] y) {{ {text} }}")


def feed(batch=2, queries=3, keys=5):
    rng = np.random.default_rng(0)
    shapes = {"q": (batch, 4, queries, 8), "k": (batch, 2, keys, 8), "v": (batch, 2, keys, 6)}
    return {name: rng.standard_normal(shape).astype("f") for name, shape in shapes.items()}


@pytest.mark.parametrize("providers", [("reference",), None], ids=["reference", "default"])
@pytest.mark.parametrize("name", CASES)
def test_values(name, providers):
    model = made(CASES[name])
    session = InferenceSession(model.SerializeToString(), providers)
    for sizes in ((2, 3, 5), (1, 1, 9)):
        (got,) = session.run(None, feed(*sizes))
        (want,) = ReferenceEvaluator(model).run(None, feed(*sizes))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_graph_reads_what_is_around_it():
    graph = "g (float[b, 4, t, s] x) => (float[b, 4, t, s] y1) { y1 = Add (x, bias) }"
    text = f"y = ai.onnx.preview.FlexAttention <score_mod = {graph}> (q, k, v)"
    model = made(text, PORTS + ", float[t, s] bias")
    given = feed() | {"bias": np.arange(15, dtype="f").reshape(3, 5)}
    (got,) = InferenceSession(model.SerializeToString()).run(None, given)
    q, k, v = (given[name].astype("d") for name in "qkv")
    scores = q @ np.repeat(k, 2, 1).swapaxes(2, 3) / np.sqrt(8) + given["bias"]
    e = np.exp(scores - scores.max(-1, keepdims=True))
    want = e / e.sum(-1, keepdims=True) @ np.repeat(v, 2, 1)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


ONE = "g (float[b, 4, t, s] x) => (float[b, 4, t, s] y1) "
REFUSED = {
    "graph 'score_mod' has 2 inputs and 1 outputs, expected one of each": (
        "<score_mod = g (float[a] x, float[a] z) => (float[a] y1) { y1 = Add (x, z) }>"
    ),
    "graph 'score_mod' makes int64.*, expected the same type": (
        f"<score_mod = {ONE} {{ y1 = Cast <to = 7> (x) }}>"
    ),
    "graph 'prob_mod' is made by no node": f"<prob_mod = {ONE} {{ y2 = Neg (x) }}>",
    "it has no graph 'other_mod'": f"<other_mod = {ONE} {{ y1 = Neg (x) }}>",
    "softmax_precision is 7, expected 1": "<softmax_precision = 7>",
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message):
    model = made(f"y = ai.onnx.preview.FlexAttention {REFUSED[message]} (q, k, v)")
    model.graph.node[0].name = "the_node"
    with pytest.raises(core().Error, match=message) as caught:
        InferenceSession(model.SerializeToString())
    assert "the_node" in str(caught.value)
