"""Products with weights that no run changes: packed once, for all sizes and by each session."""

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from onnx import helper

from ortmodule import InferenceSession, SessionOptions

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


# Large enough to be in pages of their own, which are given back once the weight is packed.
@pytest.mark.parametrize("transposed", [False, True])
def test_any_number_of_rows_by_a_weight_whose_pages_are_gone(transposed):
    made = product(300, 420, transposed=transposed)
    session, (w,) = InferenceSession(made.SerializeToString()), weights_of(made)
    for m in (64, 1, 64, 2, 33):
        x = normal(m, 300)
        expected = x @ (w.T if transposed else w)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-3, atol=1e-3)


def chain_of_products():
    weights = {f"w{i}": normal(256, 256) / 16 for i in range(3)}
    nodes = [node("MatMul", f"{a} w{i}", b) for i, (a, b) in enumerate(["xh", "hg", "gy"])]
    ports = [port(name, ["m", 256]) for name in "hy"]
    return model(nodes, [port("x", ["m", 256])], ports, weights), list(weights.values())


def test_other_outputs_are_asked_when_weights_are_packed():
    made, (w, *_) = chain_of_products()
    session, x = InferenceSession(made.SerializeToString()), normal(40, 256)
    session.run(None, {"x": x})
    for m in (40, 1):
        h = session.run(["h"], {"x": x[:m]})[0]
        np.testing.assert_allclose(h, x[:m] @ w, rtol=1e-3, atol=1e-4)


def test_a_model_is_saved_when_its_weights_are_packed(tmp_path):
    made, _ = chain_of_products()
    options = SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    first = InferenceSession(made.SerializeToString(), options)
    x = normal(40, 256)
    want = first.run(["y"], {"x": x})[0]
    from ortmodule import _native

    _native.core().write_simplified(first._session, options.optimized_model_filepath)
    got = InferenceSession(options.optimized_model_filepath).run(["y"], {"x": x})[0]
    np.testing.assert_array_equal(got, want)


def test_sizes_that_contradict_names_come_when_weights_are_packed():
    """Such a feed has a program of its own, which is compiled then."""
    weights = {"w": normal(256, 256) / 16}
    nodes = [node("MatMul", "x w", "y"), node("MatMul", "v w", "u")]
    ports = [[port(name, ["m", 256]) for name in names] for names in ("xv", "yu")]
    made = model(nodes, *ports, weights)
    session, w = InferenceSession(made.SerializeToString()), weights["w"]
    for rows in ((40, 40), (40, 7), (1, 64), (40, 40)):
        x, v = (normal(m, 256) for m in rows)
        for got, want in zip(session.run(None, {"x": x, "v": v}), (x @ w, v @ w), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_a_branch_reads_a_weight_that_is_packed():
    """A body is compiled at its first run, when the product outside has packed its weight."""
    weights = {"w": normal(256, 256) / 16}
    body = helper.make_graph(
        [node("Transpose", "w", "t"), node("MatMul", "x t", "z")], "then", [], [port("z", None)]
    )
    other = helper.make_graph([node("MatMul", "x w", "z")], "else", [], [port("z", None)])
    nodes = [
        node("MatMul", "x w", "y"),
        node("If", "c", "z", then_branch=body, else_branch=other),
    ]
    inputs = [port("x", ["m", 256]), port("c", [], "bool")]
    made = model(nodes, inputs, [port("y", ["m", 256]), port("z", ["m", 256])], weights)
    session, w = InferenceSession(made.SerializeToString()), weights["w"]
    for m in (40, 1, 64):
        for chosen in (True, False, True):
            x = normal(m, 256)
            y, z = session.run(None, {"x": x, "c": np.array(chosen)})
            np.testing.assert_allclose(y, x @ w, rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(z, x @ (w.T if chosen else w), rtol=1e-3, atol=1e-3)


def test_threads_of_other_sizes_share_a_weight():
    made = product(512, 512)
    session, (w,) = InferenceSession(made.SerializeToString()), weights_of(made)

    def work(seed):
        for i in range(30):
            x = np.random.default_rng(seed * 100 + i).standard_normal(((1, 2, 40)[i % 3], 512))
            y = session.run(None, {"x": x.astype(np.float32)})[0]
            np.testing.assert_allclose(y, x @ w, rtol=1e-2, atol=1e-2)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


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
