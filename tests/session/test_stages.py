"""Graphs whose sizes are known only when a part has run, bodies, sequences: against onnx's
reference and onnx's own tests."""

import glob
import threading
import warnings

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.reference import ReferenceEvaluator

from ortmodule import InferenceSession, _native, backend

from . import backend_nodes

C = _native.core()
RUNNERS = {"bfloat16": 2**-6}  # what onnx's own runner takes for near
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
READERS = {
    "tensor_type": (onnx.TensorProto, numpy_helper.to_array),
    "sequence_type": (onnx.SequenceProto, numpy_helper.to_list),
    "optional_type": (onnx.OptionalProto, numpy_helper.to_optional),
}


def read(path, kind):
    proto, convert = READERS[kind.WhichOneof("value")]
    with open(path, "rb") as file:
        return convert(proto.FromString(file.read()))


def plain(x):
    return numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x


def data_of(case, model):
    """(inputs, outputs) of each data set."""
    if case.data_sets is not None:
        return [[[plain(x) for x in part] for part in parts] for parts in case.data_sets]
    sets = []
    for folder in sorted(glob.glob(f"{case.model_dir}/test_data_set_*")):
        parts = []
        for word, ports in (("input", model.graph.input), ("output", model.graph.output)):
            count = len(glob.glob(f"{folder}/{word}_*.pb"))
            parts.append([read(f"{folder}/{word}_{i}.pb", ports[i].type) for i in range(count)])
        sets.append(parts)
    return sets


def same(got, want, rtol, atol, units):
    if want is None or isinstance(want, list):
        return (got is None) == (want is None) and (
            want is None
            or len(got) == len(want)
            and all(same(g, w, rtol, atol, units) for g, w in zip(got, want, strict=True))
        )
    want = np.asarray(want)
    if got.dtype != want.dtype or got.shape != want.shape:
        return False
    if want.dtype.kind in "biuO":
        return np.array_equal(got, want)
    unit = units.get(want.dtype.name, 0)
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    return np.allclose(got.astype(wide), want.astype(wide), max(unit, rtol), atol, equal_nan=True)


@pytest.mark.slow
def test_onnx_cases_pass_or_say_why():
    """Each that is taken is right; those that are not raise an error of ours. docs/ops.md has the
    count."""
    passed, wrong, cases = 0, [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in (case for kind in KINDS for case in load_model_tests(kind=kind)):
            cases += 1
            model = case.model or onnx.load(f"{case.model_dir}/model.onnx")
            try:
                ready = backend.prepare(model)
                results = [(ready.run(i), o) for i, o in data_of(case, model)]
            except C.Error:
                continue
            pairs = [(g, w) for got, want in results for g, w in zip(got, want, strict=True)]
            near = [all(same(g, w, case.rtol, case.atol, units) for g, w in pairs)
                    for units in (RUNNERS, backend_nodes.UNITS)]  # fmt: skip
            passed += near[0]
            wrong += [] if near[1] else [case.name]
    assert set(wrong) - backend_nodes.DRAWN == backend_nodes.DISPUTED
    assert (passed, cases) == (backend_nodes.PASSING, backend_nodes.CASES)


def session(text, **options):
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]>\n' + text)
    onnx.checker.check_model(model)
    return InferenceSession(model.SerializeToString(), **options), model


def check(text, *feeds):
    ours, model = session(text)
    theirs = ReferenceEvaluator(model)
    for feed in feeds:
        for got, want in zip(ours.run(None, feed), theirs.run(None, feed), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


X = np.linspace(-2, 2, 12, dtype="f").reshape(3, 4)


def test_if_captures_and_joins_sizes():
    check(
        """g (bool c, float[n, 4] x) => (float[m, 4] y) {
          y = If (c) <
            then_branch = t () => (float[k, 4] a) { a = Concat <axis = 0> (x, x) },
            else_branch = e () => (float[j, 4] b) { b = Relu (x) }>
        }""",
        {"c": np.array(True), "x": X},
        {"c": np.array(False), "x": X},
        {"c": np.array(True), "x": X[:1]},
    )


LOOP = """g (int64 m, float[n] x) => (float[n] last, float[t, n] all) {
  c = Constant <value = bool {1}> ()
  last, all = Loop (m, c, x) <
    body = b (int64 i, bool go, float[n] s) => (bool on, float[n] next, float[n] seen) {
      f = CastLike (i, s)
      g = Add (f, x)
      next = Add (s, g)
      total = ReduceSum <keepdims = 0> (next)
      limit = Constant <value = float {1000}> ()
      on = Less (total, limit)
      seen = Identity (s)
    }>
}"""


def test_loop_ends_by_its_condition_or_its_count():
    x = np.ones(3, "f")
    feeds = [{"m": np.array(m), "x": x * k} for m, k in ((0, 1), (1, 1), (5, 2), (100, 3))]
    ours, model = session(LOOP)
    theirs = ReferenceEvaluator(model)
    for feed in feeds[1:]:
        for got, want in zip(ours.run(None, feed), theirs.run(None, feed), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-6)
    last, everything = ours.run(None, feeds[0])
    np.testing.assert_array_equal(last, x)
    assert everything.shape[0] == 0


def test_a_state_may_grow():
    check(
        """g (int64 m, float[1] x) => (float[k] y) {
          c = Constant <value = bool {1}> ()
          y = Loop (m, c, x) <
            body = b (int64 i, bool go, float[s] a) => (bool on, float[r] z) {
              on = Identity (go)
              z = Concat <axis = 0> (a, a)
            }>
        }""",
        *({"m": np.array(m), "x": X[0, :1]} for m in (0, 1, 3)),
    )


def test_scan_backwards():
    ours, _ = session(
        """g (float[4] s, float[n, 4] x) => (float[4] t, float[n, 4] y) {
          t, y = Scan (s, x) <num_scan_inputs = 1, scan_input_directions = [1],
            body = b (float[4] a, float[4] r) => (float[4] c, float[4] d) {
              c = Add (a, r)
              d = Mul (c, r)
            }>
        }"""
    )
    state, rows = X[0], []
    for row in X[::-1]:
        state = state + row
        rows.append(state * row)
    last, made = ours.run(None, {"s": X[0], "x": X})
    np.testing.assert_allclose(last, state, rtol=1e-6)
    np.testing.assert_allclose(made, np.stack(rows), rtol=1e-6)


def test_sizes_that_only_a_run_tells():
    check(
        """g (float[n, m] x, int64[k] shape, int64 end) => (float[a, b] y, int64[c] r, float[d] z) {
          s = ReduceSum <keepdims = 0> (x)
          where = NonZero (x)
          t = Transpose (where)
          picked = GatherND (x, t)
          z = Mul (picked, s)
          y = Reshape (x, shape)
          one = Constant <value = int64 {1}> ()
          zero = Constant <value = int64 {0}> ()
          r = Range (zero, end, one)
        }""",
        {"x": X, "shape": np.array([2, 6]), "end": np.array(5)},
        {"x": X, "shape": np.array([-1, 3]), "end": np.array(0)},
        {"x": np.maximum(X, 0), "shape": np.array([0, -1]), "end": np.array(2)},
    )


def test_a_size_of_zero_that_only_a_run_tells_is_a_size():
    text = """
    agraph (float[N] x, int64[2] shape) => (float[A, B, 1] y)
        <int64[1] axis = {2}> {
        rows = Reshape<allowzero = 1>(x, shape)
        y = Unsqueeze(rows, axis)
    }
    """
    feeds = [((6,), (3, 2)), ((0,), (3, 0)), ((0,), (0, 5)), ((4,), (1, 4))]
    check(text, *[{"x": X.flat[: n[0]], "shape": np.array(s)} for n, s in feeds])


def test_a_size_counts_though_no_element_of_it_is_read():
    """What finds it is neither dead nor merged with its like while its name is used."""
    check(
        """g (float[n, m] x) => (float[a, b] y) {
          zero = Constant <value = float {0}> ()
          one = NonZero (x)
          other = NonZero (x)
          s = Shape <start = 1> (one)
          t = Shape <start = 1> (other)
          both = Concat <axis = 0> (s, t)
          y = Expand (zero, both)
        }""",
        {"x": X},
        {"x": np.maximum(X, 0)},
        {"x": X * 0},
    )


def test_what_comes_before_a_late_size_is_computed_once():
    """A limit that leaves room for one product, not for two."""
    text = """g (float[n, 64] x, float[64, 64] w) => (float[k] y, float[n, 64] h) {
          h = MatMul (x, w)
          p = NonZero (h)
          q = Transpose <perm = [1, 0]> (p)
          y = GatherND (h, q)
        }"""
    product = 2 * 64**3
    ours, _ = session(text, max_operations=1.5 * product)
    w = np.eye(64, dtype="f")
    x = np.zeros((64, 64), "f")
    x[3, 5] = 2
    y, h = ours.run(None, {"x": x, "w": w})
    np.testing.assert_array_equal(y, [2])
    np.testing.assert_array_equal(h, x)
    ours, _ = session(text, max_operations=0.9 * product)
    with pytest.raises(C.Error, match="operations, the session's limit is"):
        ours.run(None, {"x": x, "w": w})


def test_a_size_is_said_that_another_node_would_find():
    """Reshapes are merged into one, which says the size that the first of them names."""
    check(
        """g (bool c, int64[2] x) => (int64[a, b, d] w, int64[e, f, k] last) {
          first = Constant <value = int64[1] {0}> ()
          all = Constant <value = int64[1] {-1}> ()
          r = If (c) <
            then_branch = t () => (int64[i] p) { p = ReduceSum <keepdims = 0> (x) },
            else_branch = e () => (int64[j] q) { q = Identity (x) }>
          flat = Reshape (r, all)
          u = Unsqueeze (flat, first)
          w = Unsqueeze (u, first)
          trips = Constant <value = int64 {2}> ()
          yes = Constant <value = bool {1}> ()
          last = Loop (trips, yes, w) <
            body = b (int64 n, bool go, int64[l, m, o] s) => (bool on, int64[v, y, z] t) {
              on = Identity (go)
              t = Add (w, s)
            }>
        }""",
        {"c": np.array(True), "x": np.array([3, 4])},
        {"c": np.array(False), "x": np.array([3, 4])},
    )


def test_sequences_come_and_go():
    ours, _ = session(
        """g (seq(float[n, 4]) s, float[n, 4] x) => (seq(float[n, 4]) t, float[m, 4] y) {
          t = SequenceInsert (s, x)
          y = ConcatFromSequence <axis = 0> (t)
        }"""
    )
    t, y = ours.run(None, {"s": [X, X[:1]], "x": X[:2]})
    assert [part.shape for part in t] == [(3, 4), (1, 4), (2, 4)]
    np.testing.assert_array_equal(y, np.concatenate([X, X[:1], X[:2]]))
    with pytest.raises(C.Error, match="input 's' is a tensor, expected seq"):
        ours.run(None, {"s": X, "x": X})
    with pytest.raises(C.Error, match="item 1 of input 's' has dtype float64, expected float32"):
        ours.run(None, {"s": [X, X.astype("d")], "x": X})


ITEMS = """
  i = Constant <value = int64 {0}> ()
  j = Constant <value = int64 {1}> ()
  u = SequenceAt (q, i)
  v = SequenceAt (q, j)
  size = Shape (v)
  wide = Expand (u, size)
  z = Add (wide, v)
}"""
OF_SIZES = {
    "constructed": "g (float[n] x, float[m] y) => (float[k] z) { q = SequenceConstruct (x, y)",
    "inserted": """g (float[n] x, float[m] y) => (float[k] z) {
      p = SequenceConstruct (x)
      q = SequenceInsert (p, y)""",
    "named alike": """g (float[n] x, float[n] y) => (float[k] z) {
      one = SequenceConstruct (x, x)
      none = Constant <value = int64 {0}> ()
      less = SequenceErase (one, none)
      q = SequenceInsert (less, y)""",
    "mapped": """g (float[n] x, float[m] y) => (float[k] z) {
      p = SequenceConstruct (x, y)
      q = SequenceMap <body = b (float[n] a) => (float[n] c) { c = Add (a, a) }> (p)""",
    "split": """g (float[n] x, float[m] y) => (float[k] z) {
      xy = Concat <axis = 0> (x, y)
      parts = Constant <value = int64[2] {1, 3}> ()
      q = SplitToSequence (xy, parts)""",
    "chosen": """g (float[n] x, float[m] y) => (float[k] z) {
      two = SequenceConstruct (x, y)
      yes = Constant <value = bool {1}> ()
      q = If (yes) <
        then_branch = a () => (seq(float[n]) s) { s = Identity (two) },
        else_branch = b () => (seq(float[n]) s) { s = SequenceConstruct (y, x) }>""",
}


@pytest.mark.parametrize("text", OF_SIZES.values(), ids=OF_SIZES)
def test_items_have_sizes_of_their_own(text):
    ours, _ = session(text + ITEMS)
    feed = {"x": np.ones(1, "f"), "y": np.arange(3, dtype="f")}
    factor = 2 if "SequenceMap" in text else 1
    np.testing.assert_array_equal(ours.run(None, feed)[0], factor * np.array([1, 2, 3], "f"))


def test_a_state_may_be_one_item_after_another():
    ours, _ = session(
        """g (seq(float[n]) q, float[n] x) => (float[k] z) {
          trips = SequenceLength (q)
          z = Loop (trips, , x) <
            body = b (int64 i, bool go, float[n] s) => (bool on, float[n] t) {
              on = Identity (go)
              item = SequenceAt (q, i)
              sum = ReduceSum <keepdims = 0> (s)
              t = Add (item, sum)
            }>
        }"""
    )
    feed = {"q": [np.ones(n, "f") for n in (3, 1, 2)], "x": np.ones(4, "f")}
    np.testing.assert_array_equal(ours.run(None, feed)[0], [17, 17])  # ((4 + 1) * 3 + 1) + 1


def test_no_trip_collects_rows_of_what_is_known():
    """Of a size that only a run tells; of an unknown rank."""
    ours, _ = session(
        """g (float[n] x, int64 trips, int64[r] shape) => (int64[a, b, c] all, float odd) {
          found = NonZero (x)
          yes = Constant <value = bool {1}> ()
          all, odd = Loop (trips, yes) <
            body = b (int64 i, bool go) => (bool on, int64[l, k] o, float[p] f) {
              on = Identity (go)
              o = Identity (found)
              f = Reshape (x, shape)
            }>
        }"""
    )
    feed = {"x": np.array([1, 0, 2], "f"), "shape": np.array([3, 1])}
    for trips in (0, 2):
        all_, odd = ours.run(None, feed | {"trips": np.array(trips)})
        assert all_.shape == (trips, 1, 2)
        assert odd.shape == ((2, 3, 1) if trips else (0,))


def test_what_is_not_asked_for_is_not_run():
    """The loop has no end."""
    ours, _ = session(
        """g (float[n] x) => (float[n] y, float[n] z) {
          y = Relu (x)
          c = Constant <value = bool {1}> ()
          z = Loop ( , c, x) <
            body = b (int64 i, bool go, float[n] s) => (bool on, float[n] t) {
              on = Identity (go)
              t = Neg (s)
            }>
        }""",
        max_operations=10000,
    )
    np.testing.assert_array_equal(ours.run(["y"], {"x": X[0]})[0], np.maximum(X[0], 0))
    with pytest.raises(C.Error, match="operations, the session's limit is 10000"):
        ours.run(["z"], {"x": X[0]})


def test_an_endless_loop_is_ended_from_another_thread():
    ours, _ = session(
        """g (float[n] x) => (float[n] z) {
          c = Constant <value = bool {1}> ()
          z = Loop ( , c, x) <
            body = b (int64 i, bool go, float[n] s) => (bool on, float[n] t) {
              on = Identity (go)
              t = Neg (s)
            }>
        }"""
    )
    stop = threading.Timer(0.2, ours.terminate)
    stop.start()
    with pytest.raises(C.Error, match="the run was terminated"):
        ours.run(None, {"x": X[0]})


def test_bodies_are_printed_read_and_written(tmp_path):
    model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]>\n' + LOOP)
    onnx.save(model, tmp_path / "loop.onnx")
    graph = C.read_onnx(str(tmp_path / "loop.onnx"))
    text = graph.text()
    once = C.parse(text).text()  # names of fresh sizes and places are not kept
    assert "with body = graph (" in once and C.parse(once).text() == once
    C.write_onnx(graph, str(tmp_path / "again.onnx"))
    onnx.checker.check_model(onnx.load(tmp_path / "again.onnx"), full_check=True)
    feed = {"m": np.array(4), "x": X[0]}
    for name in ("loop", "again"):
        got = InferenceSession(str(tmp_path / f"{name}.onnx")).run(None, feed)
        for ours, theirs in zip(got, ReferenceEvaluator(model).run(None, feed), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)
