"""What a Python op is given and what becomes of its results, beside functions in onnxruntime."""

import threading
import weakref

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

from ortmodule import InferenceSession, SessionOptions, TensorType, custom_op

from .models import model, session

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@custom_op("test.custom::Scale", types=lambda x, *, factor=1.0: x)
def scale(x, *, factor=1.0):
    return x * np.float32(factor)


@custom_op("test.custom::AddScaled", types=lambda x, y=None, *, by: x)
def add_scaled(x, y=None, *, by):
    return x if y is None else x + np.float32(by[0]) * y


@custom_op("test.custom::Total", types=lambda *xs: xs[0])
def total(*xs):
    return sum(xs[1:], xs[0])


@custom_op("test.custom::Extremes", types=lambda x: (x, x))
def extremes(x):
    return np.maximum(x, 0), np.minimum(x, 0)


@custom_op("test.custom::Named", types=lambda x, *, how, at, weights: x)
def named(x, *, how, at, weights):
    assert (type(how), type(at)) == (str, list)
    return x * weights if how == "weighted" and at == [1, 2] else x


FUNCTIONS = """
<domain: "test.custom", opset_import: ["" : 21]>
Scale <factor: float = 1.0> (x) => (y) {
  f = Constant <value_float: float = @factor>() y = Mul(x, f) }
<domain: "test.custom", opset_import: ["" : 21]>
Total (a, b, c) => (y) { t = Add(a, b) y = Add(t, c) }
<domain: "test.custom", opset_import: ["" : 21]>
Extremes (x) => (high, low) {
  zero = Constant <value_float: float = 0.0>() high = Max(x, zero) low = Min(x, zero) }
<domain: "test.custom", opset_import: ["" : 21]>
Named <how: string, at: ints, weights: tensor> (x) => (y) {
  w = Constant <value: tensor = @weights>() y = Mul(x, w) }
"""
GRAPHS = {
    "a default of an attribute": "(float[n,3] x) => (float[n,3] y) { y = test.custom.Scale(x) }",
    "an attribute, between other ops": """(float[n,3] x) => (float[n,3] y) {
        a = Exp(x) b = test.custom.Scale <factor = -0.3> (a) y = Tanh(b) }""",
    "any number of inputs": """(float[n,3] x) => (float[n,3] y) {
        a = Neg(x) b = Exp(x) y = test.custom.Total(x, a, b) }""",
    "two results": """(float[n,3] x) => (float[n,3] y) {
        c = Constant <value_float = 2.0>() d = Sub(x, c)
        h, l = test.custom.Extremes(d) y = Sub(l, h) }""",
    "one of two results": """(float[n,3] x) => (float[n,3] l) {
        c = Constant <value_float = 2.0>() d = Sub(x, c) h, l = test.custom.Extremes(d) }""",
    "a text, numbers and a tensor": """(float[n,3] x) => (float[n,3] y) { y = test.custom.Named
        <how = "weighted", at = [1, 2], weights = float[3] {1.0, 2.0, 4.0}> (x) }""",
    "a chain": """(float[n,3] x) => (float[n,3] y) {
        a = test.custom.Scale <factor = 2.0> (x) b = test.custom.Scale <factor = 3.0> (a)
        y = Add(a, b) }""",
    "a branch": """(float[n,3] x) => (float[n,3] y) {
        s = ReduceSum <keepdims = 0> (x) zero = Constant <value_float = 0.0>()
        positive = Greater(s, zero)
        y = If (positive) <
          then_branch = t () => (float[n,3] p) { p = test.custom.Scale <factor = 5.0> (x) },
          else_branch = e () => (float[n,3] q) { q = Neg(x) }> }""",
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_python_op_is_the_function_of_that_name(name):
    """onnxruntime has the functions in the file, we have none there but those in Python."""
    theirs = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21, "test.custom" : 1]> g ' + GRAPHS[name] + FUNCTIONS
    )
    ours = InferenceSession(model(GRAPHS[name]).SerializeToString())
    other = onnxruntime.InferenceSession(
        theirs.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for x in (X, -X, X[:1]):
        for mine, expected in zip(ours.run(None, {"x": x}), other.run(None, {"x": x}), strict=True):
            assert mine.dtype == expected.dtype
            np.testing.assert_allclose(mine, expected, rtol=1e-6)


def test_an_absent_input_has_its_default():
    text = """(float[n,3] x, float[n,3] z) => (float[n,3] a, float[n,3] b) {{
        a = test.custom.AddScaled <by = [2.0]> (x{})
        b = test.custom.AddScaled <by = [2.0]> (x, z) }}"""
    for absent in ("", ", "):
        a, b = session(text.format(absent)).run(None, {"x": X, "z": X})
        np.testing.assert_array_equal(a, X)
        np.testing.assert_array_equal(b, 3 * X)


def test_told_sizes_make_a_step_of_the_plan():
    @custom_op("test.custom::Halved", types=lambda x: TensorType(x.dtype, (x.shape[0] // 2, 3)))
    def halved(x):
        return x[: len(x) // 2]

    opened = session("""(float[n,3] x) => (float[m,3] y) {
        a = Add(x, x) b = test.custom.Halved(a) y = Tanh(b) }""")
    for rows in (2, 5, 4):
        x = np.random.default_rng(rows).normal(size=(rows, 3)).astype(np.float32)
        (y,) = opened.run(None, {"x": x})
        np.testing.assert_allclose(y, np.tanh(2 * x[: rows // 2]), rtol=1e-6)
    assert opened._session.providers()["host"] == 1
    bound = opened.bind({"x": x}, {"y": (into := np.empty((2, 3), np.float32))})
    bound.run()
    np.testing.assert_allclose(into, np.tanh(2 * x[:2]), rtol=1e-6)


SIZES = {
    "sum": (lambda n: n + 1, 5),
    "difference": (lambda n: 9 - n, 5),
    "product": (lambda n: 2 * n * n, 32),
    "quotient": (lambda n: (n + 1) // 2, 2),
    "rest": (lambda n: n % 3, 1),
    "number": (lambda n: 7, 7),
    "of the run": (lambda n: None, 6),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_counted_with(name):
    size, expected = SIZES[name]

    @custom_op("test.custom::Sized", types=lambda x: TensorType("int64", (size(x.shape[0]),)))
    def sized(x):
        return np.arange(expected)

    text = "(float[n] x) => (int64[m] y) { a = test.custom.Sized(x) y = Add(a, a) }"
    (y,) = session(text).run(None, {"x": np.zeros(4, np.float32)})
    np.testing.assert_array_equal(y, 2 * np.arange(expected))


def test_sizes_of_the_run():
    @custom_op("test.custom::Positive")
    def positive(x):
        return x[x > 0]

    text = """(float[n,3] x) => (float[k] y, float[k] z) {
        a = Sub(x, x) b = Add(x, a) y = test.custom.Positive(b) z = Exp(y) }"""
    opened = session(text)
    for x in (X, -X, X - 3):
        y, z = opened.run(None, {"x": x})
        np.testing.assert_array_equal(y, x[x > 0])
        np.testing.assert_allclose(z, np.exp(x[x > 0]), rtol=1e-6)


DTYPES = [
    np.float64, np.float16, np.int8, np.uint64, np.bool_, ml_dtypes.bfloat16, ml_dtypes.int4,
    ml_dtypes.float8_e4m3fn, np.complex64,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("rule", [lambda x: x, None], ids=["types", "no types"])
def test_dtypes(dtype, rule):
    seen = []

    @custom_op("test.custom::Flip", types=rule)
    def flip(x):
        seen.append(x.dtype)
        return x[::-1]

    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ports = [onnx.helper.make_tensor_value_info(name, number, ["n"]) for name in "xy"]
    node = onnx.helper.make_node("Flip", ["x"], ["y"], domain="test.custom")
    graph = onnx.helper.make_graph([node], "g", ports[:1], ports[1:])
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("test.custom", 1)]
    file = onnx.helper.make_model(graph, opset_imports=opsets).SerializeToString()
    x = np.array([0, 1, 1, 0, 1]).astype(dtype)
    (y,) = InferenceSession(file).run(None, {"x": x})
    assert y.dtype == x.dtype == seen[0]
    np.testing.assert_array_equal(y, x[::-1])


def test_strings():
    @custom_op("test.custom::Words", types=("string", "int64"))
    def words(text, *, apart):
        parts = [part for line in text for part in line.split(apart)]
        return np.array(parts, object), np.array([len(part) for part in parts])

    opened = session("""(string[n] x) => (string[m] y, int64[m] z) {
        y, l = test.custom.Words <apart = "-"> (x) z = Add(l, l) }""")
    y, z = opened.run(None, {"x": np.array(["a-bc", "löß"], object)})
    assert y.tolist() == ["a", "bc", "löß"]
    assert z.tolist() == [2, 4, 6]


def test_sequences():
    @custom_op("test.custom::Reversed", types=lambda xs: xs)
    def reversed_(xs):
        assert isinstance(xs, list)
        return xs[::-1]

    opened = session("""(float[n,3] x) => (float[k,3] y) {
        a = Neg(x) s = SequenceConstruct(x, a) r = test.custom.Reversed(s)
        y = ConcatFromSequence <axis = 0> (r) }""")
    np.testing.assert_array_equal(opened.run(None, {"x": X})[0], np.concatenate([-X, X]))


def test_maps():
    @custom_op("test.custom::Counts", types=lambda x: {"string": TensorType("int64", ())})
    def counts(x):
        return {str(text): np.int64(sum(x == text)) for text in x}

    @custom_op("test.custom::Most", types="int64")
    def most(counted):
        return np.array([max(counted.values())])

    opened = session("""(string[n] x) => (int64[1] y) {
        c = test.custom.Counts(x) y = test.custom.Most(c) }""")
    assert opened.run(None, {"x": np.array(["a", "b", "a"], object)})[0].tolist() == [2]


def test_a_loop_calls_it_each_trip():
    calls = []

    @custom_op("test.custom::Once", types=lambda x: x)
    def once(x):
        calls.append(1)
        return x + 1

    opened = session("""(int64 trips, float[3] x) => (float[3] y) {
        true = Constant <value = bool {1}>()
        y = Loop (trips, true, x) <body = b (int64 i, bool c, float[3] s) => (bool d, float[3] t) {
            d = Identity(c) t = test.custom.Once(s) }> }""")
    (y,) = opened.run(None, {"trips": np.array(4), "x": X[0]})
    np.testing.assert_array_equal(y, X[0] + 4)
    assert len(calls) == 4


def test_what_nobody_asks_for_is_not_run():
    calls = []

    @custom_op("test.custom::Counted", types=lambda x: x)
    def counted(x):
        calls.append(1)
        return x

    opened = session("""(float[n,3] x) => (float[n,3] y, float[n,3] z) {
        y = Neg(x) z = test.custom.Counted(x) }""")
    opened.run(["y"], {"x": X})
    assert calls == []
    opened.run(None, {"x": X})
    assert calls == [1]


def test_what_it_is_given_may_be_kept_and_not_written():
    kept = []

    @custom_op("test.custom::Keep", types=lambda x, w: x)
    def keep(x, w):
        kept.append((x, w))
        return x + w

    opened = session("""(float[n,3] x) => (float[n,3] y) <float[3] w = {1.0, 2.0, 3.0}> {
        a = Add(x, x) b = test.custom.Keep(a, w) c = Exp(b) y = Log(c) }""")
    for by in (1, 2):
        opened.run(None, {"x": by * X})
    del opened
    for by, (x, w) in zip((1, 2), kept, strict=True):
        np.testing.assert_array_equal(x, 2 * by * X)
        np.testing.assert_array_equal(w, [1, 2, 3])
        assert not x.flags.writeable and not w.flags.writeable


def test_a_weight_that_is_packed_may_be_kept():
    """The product gives the weight's bytes back, unless a function keeps what it was given."""
    kept = []

    @custom_op("test.custom::KeepWeight", types=lambda x, w: x)
    def keep_weight(x, w):
        kept.append(w)
        return x + w[0]

    w = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    made = model("""(float[n,256] x) => (float[n,256] y, float[n,256] z) {
        y = MatMul(x, w) z = test.custom.KeepWeight(x, w) }""")
    made.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    opened = InferenceSession(made.SerializeToString())
    x = np.ones((40, 256), np.float32)
    for names in (None, ["y"], ["z"], None):
        opened.run(names, {"x": x})
    del opened
    for each in kept:
        np.testing.assert_array_equal(each, w)


def test_versions():
    """A node has the newest function of those that its opset has."""
    custom_op("test.versions::Times", types=lambda x: x)(lambda x: np.float32(10) * x)
    custom_op("test.versions::Times", types=lambda x: x, since=3)(lambda x: np.float32(30) * x)
    text = "(float[n,3] x) => (float[n,3] y) { y = test.versions.Times(x) }"
    for opset, by in ((1, 10), (2, 10), (3, 30), (7, 30)):
        (y,) = session(text, "test.versions", opset).run(None, {"x": X})
        np.testing.assert_array_equal(y, by * X)


def test_an_open_session_keeps_its_functions():
    text = "(float[n,3] x) => (float[n,3] y) { y = test.custom.Again(x) }"

    def given(by):
        @custom_op("test.custom::Again", types=lambda x: x)
        def again(x):
            return np.float32(by) * x

        return weakref.ref(again)

    first = given(1)
    before = session(text)
    second = given(2)
    after = session(text)
    for opened, by in ((before, 1), (after, 2)):
        np.testing.assert_array_equal(opened.run(None, {"x": X})[0], by * X)
    assert first() and second()
    del before, opened  # with its sessions an op that was replaced is gone
    assert second() and not first()


def test_threads_share_a_session():
    opened = session("""(float[n,3] x) => (float[n,3] y) {
        a = test.custom.Scale <factor = 2.0> (x) b = Tanh(a) y = test.custom.Scale(b) }""")
    wrong = []

    def work(by):
        for _ in range(50):
            (y,) = opened.run(None, {"x": by * X})
            if not np.allclose(y, np.tanh(2 * by * X)):
                wrong.append(by)

    threads = [threading.Thread(target=work, args=(by,)) for by in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_function_may_run_a_session():
    inner = session("(float[n,3] x) => (float[n,3] y) { y = test.custom.Scale <factor = 3.0> (x) }")

    @custom_op("test.custom::Inner", types=lambda x: x)
    def run_inner(x):
        return inner.run(None, {"x": x})[0]

    outer = session("(float[n,3] x) => (float[n,3] y) { a = Neg(x) y = test.custom.Inner(a) }")
    np.testing.assert_array_equal(outer.run(None, {"x": X})[0], -3 * X)


def test_an_optimised_model_keeps_the_node(tmp_path):
    options = SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    text = """(float[n,3] x) => (float[n,3] y) {
        a = Identity(x) y = test.versions.Times <at = "b"> (a) }"""

    @custom_op("test.versions::Times", types=lambda x, *, at: x, since=5)
    def times(x, *, at):
        return x + ord(at)

    session(text, "test.versions", 9, sess_options=options)
    written = onnx.load(options.optimized_model_filepath)
    assert [(node.domain, node.op_type) for node in written.graph.node] == [
        ("test.versions", "Times")
    ]
    assert {opset.domain: opset.version for opset in written.opset_import}["test.versions"] == 5
    (y,) = InferenceSession(written.SerializeToString()).run(None, {"x": X})
    np.testing.assert_array_equal(y, X + ord("b"))
