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
    session = InferenceSession(model.SerializeToString(), providers=providers)
    for sizes in ((2, 3, 5), (1, 1, 9)):
        (got,) = session.run(None, feed(*sizes))
        (want,) = ReferenceEvaluator(model).run(None, feed(*sizes))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


# Names of a graph are its own, also where the graph around it has them, or another one inside.
SHADOWS = {
    "input": "y = F <score_mod = g (S q) => (S y1) { y1 = Add (q, q) }> (q, k, v)",
    "inner": """n = Neg (q)
        y = F <score_mod = g (S x) => (S y) { n = Add (x, x) y = Mul (n, x) }> (n, k, v)""",
    "constant": """y = F <score_mod = g (S x) => (S y) <float k = {2.5}> { y = Mul (x, k) },
        prob_mod = h (S x) => (S y) <float k = {0.5}> { y = Mul (x, k) }> (q, k, v)""",
    "none": "y = F <score_mod = g (S x) => (S x) { }> (q, k, v)",
}


@pytest.mark.parametrize("name", SHADOWS)
def test_names_of_a_graph_are_its_own(name):
    text = SHADOWS[name].replace("S ", "float[b, 4, t, s] ")
    model = made(text.replace("F <", "ai.onnx.preview.FlexAttention <"))
    (got,) = InferenceSession(model.SerializeToString()).run(None, feed())
    (want,) = ReferenceEvaluator(model).run(None, feed())
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def attended(given, change):
    q, k, v = (given[name].astype("d") for name in "qkv")
    scores = change(q @ np.repeat(k, 2, 1).swapaxes(2, 3) / np.sqrt(8))
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ np.repeat(v, 2, 1)


# onnx's reference hands its graphs nothing of what is around them.
ADD = "ai.onnx.preview.FlexAttention <score_mod = g (S x) => (S y) { y = Add (x, bias) }> (q, k, v)"
TIMES = ADD.replace("Add", "Mul")
AROUND = {
    "graph": (f"y = {ADD}", lambda of, bias: of(lambda x: x + bias)),
    "twice": (
        f"a = {ADD} c = {TIMES} y = Sub (a, c)",
        lambda of, bias: of(lambda x: x + bias) - of(lambda x: x * bias),
    ),
    "if": (
        f"""no = Constant <value = bool {{0}}> ()
        y = If (no) <then_branch = t () => (R a) {{ a = {ADD} }},
                     else_branch = e () => (R a) {{ a = {TIMES} }}>""",
        lambda of, bias: of(lambda x: x * bias),
    ),
    "loop": (
        """n = Constant <value_int = 3> () yes = Constant <value = bool {1}> ()
        y = Loop (n, yes, zero) <body = l (int64 i, bool x, R a) => (bool go, R y) {
          go = Identity (x) f = Cast <to = 1> (i)
          c = ai.onnx.preview.FlexAttention <score_mod = g (S x) => (S y) {
            f = Mul (x, f) y = Add (f, bias)
          }> (q, k, v)
          y = Add (a, c)
        }>""",
        lambda of, bias: sum(of(lambda x, i=i: x * i + bias) for i in range(3)),
    ),
    "nested": (
        f"""y = ai.onnx.preview.FlexAttention <score_mod = g (S x) => (S y) {{
          a = {ADD} m = ReduceMean <keepdims = 0> (a) y = Mul (x, m)
        }}> (q, k, v)""",
        lambda of, bias: of(lambda x: x * of(lambda z: z + bias).mean()),
    ),
}


@pytest.mark.parametrize("name", AROUND)
def test_a_graph_reads_what_is_around_it(name):
    text, formula = AROUND[name]
    text = text.replace("S ", "float[b, 4, t, s] ").replace("R ", "float[b, 4, t, 6] ")
    model = made(text, PORTS + ", float[t, s] bias, float[b, 4, t, 6] zero")
    bias = np.arange(15, dtype="f").reshape(3, 5) / 8
    given = feed() | {"bias": bias, "zero": np.zeros((2, 4, 3, 6), "f")}
    (got,) = InferenceSession(model.SerializeToString()).run(None, given)
    want = formula(lambda change: attended(given, change), bias)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


ONE = "g (float[b, 4, t, s] x) => (float[b, 4, t, s] y1) "
REFUSED = {
    "graph 'score_mod' has 2 inputs and 1 outputs, expected one of each": (
        "<score_mod = g (float[a] x, float[a] z) => (float[a] y1) { y1 = Add (x, z) }>"
    ),
    "graph 'score_mod' makes int64.*, expected the same type": (
        f"<score_mod = {ONE} {{ y1 = Cast <to = 7> (x) }}>"
    ),
    "graph 'score_mod' makes float32.1, 1, 1, 1. of float32.b, 4, t, s., expected the same": (
        f"<score_mod = {ONE} {{ y1 = ReduceMax (x) }}>"
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


def test_ranks_are_known():
    model = made("y = ai.onnx.preview.FlexAttention (q, k, v)", "float[] q, float[] k, float[] v")
    with pytest.raises(core().Error, match=r"input 'Q' is float32\[\.\.\], expected a known rank"):
        InferenceSession(model.SerializeToString())
