"""What holds tensors goes in and out of a session: maps as dicts, and every result in memory of its
own."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from ortmodule import InferenceSession
from ortmodule._native import core

from .models import ints, node, normal, port

C = core()
FLOAT, LONG, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
NUMBER = helper.make_tensor_type_proto(FLOAT, [])
ROW = helper.make_tensor_type_proto(FLOAT, ["n"])
ROWS = helper.make_sequence_type_proto(ROW)
NUMBERS = helper.make_map_type_proto(LONG, NUMBER)


def value(name, kind):
    return helper.make_value_info(name, kind)


def named(name):
    return onnx.ValueInfoProto(name=name)


def model(nodes, inputs, outputs, weights=None):
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    outputs = [named(name) if isinstance(name, str) else name for name in outputs]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def session(*parts, **options):
    return InferenceSession(model(*parts).SerializeToString(), **options)


def body(nodes, inputs, outputs):
    return helper.make_graph(nodes, "body", inputs, [named(name) for name in outputs])


# --- memory of results ---

X = value("x", ROW)
APPEND = body(
    [node("Identity", "c_in", "c_out"), node("SequenceInsert", "q_in x", "q_out")],
    [value("i", helper.make_tensor_type_proto(LONG, [])),
     value("c_in", helper.make_tensor_type_proto(TensorProto.BOOL, [])), value("q_in", ROWS)],
    ["c_out", "q_out"],
)  # fmt: skip
SHARED = {
    "a fed tensor": ([node("Identity", "x", "q"), node("Identity", "q", "r")], [X], ["q", "r"]),
    "one item twice": ([node("SequenceConstruct", "x x", "q")], [X], ["q"]),
    "an initializer": ([node("SequenceConstruct", "w x", "q")], [X], ["q"]),
    "an optional initializer": ([node("Optional", "w", "q")], [X], ["q"]),
    "two sequences": (
        [node("SequenceConstruct", "x x", "q"), node("SequenceInsert", "q x", "r"),
         node("SequenceErase", "r zero", "s"), node("Identity", "q", "t")],
        [X], ["q", "r", "s", "t"],
    ),
    "a fed sequence": ([node("Identity", "p", "q"), node("SequenceInsert", "p w", "r")],
                       [value("p", ROWS)], ["q", "r"]),
    "one optional": ([node("Optional", "x", "q"), node("Identity", "q", "r")], [X], ["q", "r"]),
    "a loop": ([node("SequenceEmpty", "", "e"), node("Loop", "three yes e", "q", body=APPEND),
                node("Identity", "q", "r")], [X], ["q", "r"]),
    "an item": ([node("SequenceConstruct", "x w", "q"), node("SequenceAt", "q zero", "a"),
                 node("SequenceAt", "q one", "b")], [X], ["q", "a", "b"]),
}  # fmt: skip
WEIGHTS = {"w": normal(3), "zero": np.int64(0), "one": np.int64(1), "three": np.int64(3),
           "yes": np.True_}  # fmt: skip


def arrays(x):
    return [y for z in x for y in arrays(z)] if isinstance(x, list) else [x]


@pytest.mark.parametrize("case", SHARED)
def test_a_result_shares_memory_with_nothing(case):
    nodes, inputs, outputs = SHARED[case]
    made = model(nodes, inputs, outputs, {k: np.asarray(v) for k, v in WEIGHTS.items()})
    ready = InferenceSession(made.SerializeToString())
    feed = {"x": normal(3)} if inputs == [X] else {"p": [normal(3), normal(2)]}
    want = [a.copy() for a in arrays(ReferenceEvaluator(made).run(None, feed))]
    got = arrays(ready.run(None, feed))
    fed = arrays(list(feed.values()))
    before = [x.copy() for x in fed]
    for x in fed:
        x += 1  # a feed is read before the run ends
    for i, array in enumerate(got):
        np.testing.assert_array_equal(array, want[i])
        array += 100 + i
    for x, old in zip(fed, before, strict=True):
        np.testing.assert_array_equal(x, old + 1)
        x -= 1
    for array, again in zip(want, arrays(ready.run(None, feed)), strict=True):
        np.testing.assert_allclose(again, array, atol=1e-6)


def test_an_output_named_twice_is_given_twice():
    ready = session([node("SequenceConstruct", "x", "q")], [X], ["q"])
    q, r = ready.run(["q", "q"], {"x": normal(3)})
    q[0] += 1
    np.testing.assert_array_equal(r[0], normal(3))


# --- maps ---

STRINGS = helper.make_map_type_proto(STRING, ROW)
LISTS = helper.make_map_type_proto(STRING, ROWS)
NESTED = helper.make_map_type_proto(LONG, STRINGS)
TEXTS = helper.make_map_type_proto(LONG, helper.make_tensor_type_proto(STRING, []))
MAPS = {
    "numbers": (NUMBERS, {3: 1.5, -1: np.float32(2), 2**40: np.array(4, np.float32)}),
    "rows": (STRINGS, {"a": normal(3), "": normal(0), "äö": normal(2)}),
    "lists": (LISTS, {"a": [normal(3), normal(1)], "b": []}),
    "nested": (NESTED, {1: {"a": normal(3)}, 0: {}}),
    "texts": (TEXTS, {1: "one", 2: np.array("two", object)}),
    "empty": (NUMBERS, {}),
}


def same(a, b):
    if isinstance(b, dict):
        assert list(a) == list(b) and [type(k) for k in a] == [type(k) for k in b]
        a, b = list(a.values()), list(b.values())
    if isinstance(b, list):
        assert len(a) == len(b)
        return all(same(x, y) for x, y in zip(a, b, strict=True))
    return a is b if b is None else np.array_equal(a, b)


@pytest.mark.parametrize("case", MAPS)
def test_a_map_passes(case):
    kind, feed = MAPS[case]
    ready = session([node("Identity", "m", "y")], [value("m", kind)], [value("y", kind)])
    assert ready.get_inputs()[0].type.startswith("map(")
    assert same(ready.run(None, {"m": feed})[0], feed)


def test_maps_in_sequences_and_optionals():
    maps = helper.make_sequence_type_proto(NUMBERS)
    maybe = helper.make_optional_type_proto(NUMBERS)
    nodes = [
        node("Identity", "s", "t"),
        node("SequenceAt", "s zero", "first"),
        node("Optional", "first", "o"),
        node("OptionalGetElement", "o", "held"),
        node("OptionalHasElement", "p", "has"),
        node("SequenceConstruct", "first held", "q"),
        node("SequenceInsert", "s first", "longer"),
        node("SequenceLength", "longer", "n"),
    ]
    outputs = ["t", "o", "held", "has", "q", "n"]
    ready = session(nodes, [value("s", maps), value("p", maybe)], outputs, {"zero": np.array(0)})
    a, b = {1: 1.0}, {2: 2.0, 3: 3.0}
    for p in (None, b):
        got = ready.run(None, {"s": [a, b], "p": p})
        assert same(got[:3], [[a, b], a, a]) and same(got[4], [a, a])
        assert got[3] == (p is not None) and got[5] == 3


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_gives_a_map(taken):
    one, other = (body([node("Identity", name, f"{name}_")], [], [f"{name}_"]) for name in "ab")
    ready = session(
        [node("If", "c", "y", then_branch=one, else_branch=other)],
        [port("c", [], "bool"), value("a", NUMBERS), value("b", NUMBERS)],
        [value("y", NUMBERS)],
    )
    a, b = {1: 1.0}, {2: 2.0}
    feed = {"c": np.array(taken), "a": a, "b": b}
    assert same(ready.run(None, feed)[0], a if taken else b)


def test_a_map_is_a_state():
    swap = body(
        [node("Identity", "c_in", "c"), node("Identity", "p", "q_"), node("Identity", "q", "p_")],
        [value("i", helper.make_tensor_type_proto(LONG, [])),
         value("c_in", helper.make_tensor_type_proto(TensorProto.BOOL, [])),
         value("p", NUMBERS), value("q", NUMBERS)],
        ["c", "p_", "q_"],
    )  # fmt: skip
    ready = session(
        [node("Loop", "trips yes a b", "y z", body=swap)],
        [port("trips", [], "int64"), value("a", NUMBERS), value("b", NUMBERS)],
        ["y", "z"],
        {"yes": np.array(True)},
    )
    a, b = {1: 1.0}, {2: 2.0}
    for trips in range(4):
        got = ready.run(None, {"trips": np.array(trips), "a": a, "b": b})
        assert same(got, [b, a] if trips % 2 else [a, b])


def test_a_file_with_maps_is_written(tmp_path):
    kinds = [NUMBERS, LISTS, helper.make_sequence_type_proto(NESTED)]
    ports = [value(f"x{i}", kind) for i, kind in enumerate(kinds)]
    nodes = [node("Identity", f"x{i}", f"y{i}") for i in range(len(kinds))]
    outputs = [value(f"y{i}", kind) for i, kind in enumerate(kinds)]
    onnx.save(model(nodes, ports, outputs), tmp_path / "in.onnx")
    C.write_onnx(C.read_onnx(str(tmp_path / "in.onnx")), str(tmp_path / "out.onnx"))
    written = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(written)
    assert [p.type for p in written.graph.input] == kinds
    assert [p.type for p in written.graph.output] == kinds
    feed = {"x0": {1: 2.0}, "x1": {"a": [normal(2)]}, "x2": [{1: {"b": normal(3)}}]}
    got = InferenceSession(str(tmp_path / "out.onnx")).run(None, feed)
    assert same(got, list(feed.values()))


WRONG = {
    "no dict": (NUMBERS, normal(3), "input 'm' is a tensor, expected map.int64, float32"),
    "no map": (ROW, {1: 1.0}, "input 'm' is a map, expected float32"),
    "kinds of keys": (NUMBERS, {1: 1.0, "a": 2.0}, "keys that are int and keys that are str"),
    "a key of float": (NUMBERS, {1.5: 1.0}, "'m' has a key of type float, expected int or str"),
    "a bool": (NUMBERS, {True: 1.0}, "has a key of type bool"),
    "a large key": (NUMBERS, {2**63: 1.0}, "has key 9223372036854775808, which is no int64"),
    "keys of another dtype": (NUMBERS, {"a": 1.0}, "has keys of string, expected int64"),
    "a value's dtype": (NUMBERS, {7: np.int64(1)}, "value 7 of input 'm' has dtype int64, exp"),
    "a value's shape": (NUMBERS, {7: normal(2)}, "value 7 of input 'm' has shape"),
    "a value's kind": (LISTS, {"a": normal(2)}, "value 'a' of input 'm' is a tensor, expected seq"),
    "no value": (NUMBERS, {7: None}, "value 7 of input 'm' is nothing"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_map_is_refused(case):
    kind, feed, message = WRONG[case]
    ready = session([node("Identity", "m", "y")], [value("m", kind)], ["y"])
    with pytest.raises(C.Error, match=message):
        ready.run(None, {"m": feed})


def test_keys_of_other_dtypes_are_refused():
    kind = helper.make_map_type_proto(TensorProto.INT32, NUMBER)
    with pytest.raises(C.Error, match="a map has keys of type int32, expected int64 or string"):
        session([node("Identity", "m", "y")], [value("m", kind)], ["y"])


# --- appending, and what it weighs ---


def endless(nodes, states, scans=()):
    inner = body(
        [node("Identity", "yes", "c"), *nodes],
        [value("i", helper.make_tensor_type_proto(LONG, [])),
         value("c_in", helper.make_tensor_type_proto(TensorProto.BOOL, [])), *states],
        ["c", *(f"{s.name}_" for s in states), *scans],
    )  # fmt: skip
    results = [f"out_{i}" for i in range(len(states) + len(scans))]
    made = node("Loop", "trips yes e" if states else "trips yes", " ".join(results), body=inner)
    return [node("SequenceEmpty", "", "e"), made], results


ENDLESS = {
    "items": ([node("SequenceInsert", "q x", "q_")], [value("q", ROWS)], ()),
    "empty items": ([node("SequenceInsert", "q none", "q_")], [value("q", ROWS)], ()),
    "scalars": ([node("Cast", "i", "s", to=FLOAT)], [], ["s"]),
    "empty tensors": ([node("Mul", "none none", "s")], [], ["s"]),
    "an empty tensor": ([node("Identity", "none", "s")], [], ["s"]),
    "rows": ([node("Add", "x x", "s")], [], ["s"]),
    "optionals": ([node("SequenceInsert", "q x", "w"), node("Optional", "w", "o"),
                   node("OptionalGetElement", "o", "q_")], [value("q", ROWS)], ()),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDLESS)
def test_an_endless_loop_that_collects_is_refused(case):
    nodes, results = endless(*ENDLESS[case])
    ports = [X, port("trips", [], "int64")]
    weights = {"yes": np.array(True), "none": normal(0)}
    ready = session(nodes, ports, results, weights, max_bytes=1_000_000)
    ready.run(None, {"x": normal(100), "trips": np.array(100)})
    with pytest.raises(C.Error, match="bytes, the session's limit is 1000000"):
        ready.run(None, {"x": normal(100), "trips": np.array(2**62)})
    ready.run(None, {"x": normal(100), "trips": np.array(100)})


def test_what_is_dropped_is_counted_no_more():
    """A state that is replaced by each trip: thousands pass, two are live."""
    nodes = [node("Add", "s x", "s_")]
    inner = body(
        [node("Identity", "yes", "c"), *nodes],
        [value("i", helper.make_tensor_type_proto(LONG, [])),
         value("c_in", helper.make_tensor_type_proto(TensorProto.BOOL, [])), value("s", ROW)],
        ["c", "s_"],
    )  # fmt: skip
    made = model([node("Loop", "trips yes x", "y", body=inner)], [X, port("trips", [], "int64")],
                 ["y"], {"yes": np.array(True)})  # fmt: skip
    ready = InferenceSession(made.SerializeToString(), max_bytes=100_000)
    got = ready.run(None, {"x": np.ones(1000, np.float32), "trips": np.array(3000)})[0]
    np.testing.assert_array_equal(got, np.full(1000, 3001, np.float32))


def test_feeds_count():
    made = model([node("SequenceLength", "q", "y")], [value("q", ROWS)], ["y"])
    ready = InferenceSession(made.SerializeToString(), max_bytes=10_000)
    assert ready.run(None, {"q": [normal(10)] * 10})[0] == 10
    for rows in ([normal(10_000)], [normal(0)] * 1000):
        with pytest.raises(C.Error, match="the session's limit is 10000"):
            ready.run(None, {"q": rows})


def test_ints_are_positions():
    """What is inserted in place keeps its order."""
    nodes = [node("SequenceInsert", "p x", "q"), node("SequenceInsert", "q w zero", "r"),
             node("SequenceErase", "r one", "y"), node("SequenceConstruct", "x", "z"),
             node("Identity", "p", "p_")]  # fmt: skip
    weights = {"w": normal(2), "zero": np.array(0), "one": ints(1)[0]}
    made = model(nodes, [X, value("p", ROWS)], ["y", "p_", "r"], weights)
    feed = {"x": normal(3), "p": [normal(4), normal(5)]}
    want = ReferenceEvaluator(made).run(None, feed)
    assert same(InferenceSession(made.SerializeToString()).run(None, feed), want)
