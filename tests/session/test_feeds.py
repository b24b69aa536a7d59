"""What sessions, files and the backend take; an error of theirs says what, where, what is taken."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from ortmodule import InferenceSession, backend
from ortmodule._native import core

from .models import model, node, normal, port
from .test_items import ROWS, value
from .test_items import model as of_items

Error = core().Error
TWICE = model([node("Add", "x x", "y")], [port("x", ["n"])], [port("y", None)])


def test_bytes_in_another_order_are_converted():
    x = normal(5)
    swapped = x.astype(x.dtype.newbyteorder())
    ready = InferenceSession(TWICE.SerializeToString())
    np.testing.assert_array_equal(ready.run(None, {"x": swapped})[0], x + x)
    items = of_items([node("SequenceAt", "q zero", "y")], [value("q", ROWS)], ["y"],
                     {"zero": np.array(0)})  # fmt: skip
    ready = InferenceSession(items.SerializeToString())
    np.testing.assert_array_equal(ready.run(None, {"q": [swapped, x]})[0], x)
    for dtype in (">i8", ">i2", ">f2", ">f8", ">u4", ">c8"):
        array = np.arange(4).astype(dtype)
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype[1:]))
        ports = [helper.make_tensor_value_info(name, kind, [4]) for name in "xy"]
        made = helper.make_graph([node("Identity", "x", "y")], "g", ports[:1], ports[1:])
        opsets = [helper.make_opsetid("", 21)]
        made = helper.make_model(made, opset_imports=opsets, ir_version=10)
        got = InferenceSession(made.SerializeToString()).run(None, {"x": array})[0]
        assert got.dtype.isnative and got.tolist() == array.tolist()


def test_arrays_of_any_layout_are_read():
    """Whatever memory a session borrows, and what it has to copy."""
    wide = normal(12)
    packed = np.zeros(1 + 6 * 4, np.uint8)[1:].view(np.float32)  # at an odd address
    packed[:] = normal(6)
    fixed = normal(6)
    fixed.flags.writeable = False
    ready = InferenceSession(TWICE.SerializeToString())
    for x in (wide, wide[::2], wide[::-1], wide[3:], packed, fixed, normal(0), np.float32([1])):
        np.testing.assert_array_equal(ready.run(None, {"x": x})[0], x + x)


def test_a_feed_may_be_written_to_between_runs():
    """Also where its elements decide what is compiled."""
    made = model([node("Reshape", "x s", "y")], [port("x", ["n"]), port("s", ["r"], "int64")],
                 [port("y", None)])  # fmt: skip
    ready = InferenceSession(made.SerializeToString())
    x, s = normal(12), np.array([3, 4])
    for shape in ((3, 4), (-1, 6), (12, 1), (3, 4)):
        s[:] = shape
        (y,) = ready.run(None, {"x": x, "s": s})
        np.testing.assert_array_equal(y, x.reshape(shape))
        x += 1
        assert not np.shares_memory(x, y)


def texts(nodes=None):
    kinds = [helper.make_tensor_value_info(name, TensorProto.STRING, None) for name in "xy"]
    graph = helper.make_graph(nodes or [node("Identity", "x", "y")], "g", kinds[:1], kinds[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


NO_TEXTS = {
    "None": (np.array(["a", None], object), "'x': element 1 is of type NoneType, expected str"),
    "a float": (np.array([1.5], object), "element 0 is of type float, expected str"),
    "a surrogate": (np.array(["\ud800"], object), "input 'x': a string has a lone surrogate"),
    "no UTF-8": (np.array([b"\xff"]), "input 'x': a string of 1 bytes is no UTF-8"),
    "a dict": ({"a": 1}, "input 'x' is a map, expected string"),
    "an object": (object(), "input 'x': element 0 is of type object, expected str"),
}  # fmt: skip


@pytest.mark.parametrize("case", NO_TEXTS)
def test_what_is_no_text_is_refused(case):
    feed, message = NO_TEXTS[case]
    with pytest.raises(Error, match=message):
        InferenceSession(texts().SerializeToString()).run(None, {"x": feed})


def test_a_str_is_a_string():
    ready = InferenceSession(texts().SerializeToString())
    assert ready.run(None, {"x": "abc"})[0].item() == "abc"
    assert ready.run(None, {"x": b"abc"})[0].item() == "abc"


NO_NUMBERS = {
    "a str": ("abc", "input 'x' is of type str, expected float32"),
    "a dict": ({}, "input 'x' is a map, expected float32"),
    "an object": (object(), "input 'x': element 0 is of type object"),
    "dates": (np.array(["2020-01-01"], "datetime64[D]"), "input 'x': unknown dtype 'datetime64"),
    "ragged": (([1.0], [1.0, 2.0]), "input 'x' is no float32"),
}


@pytest.mark.parametrize("case", NO_NUMBERS)
def test_what_is_no_number_is_refused(case):
    feed, message = NO_NUMBERS[case]
    with pytest.raises(Error, match=message):
        InferenceSession(TWICE.SerializeToString()).run(None, {"x": feed})


def test_a_number_is_of_the_dtype_asked_for():
    made = model([node("Neg", "x", "y")], [port("x", [])], [port("y", [])])
    ready = InferenceSession(made.SerializeToString())
    assert [ready.run(None, {"x": x})[0] for x in (2, 2.5)] == [-2, -2.5]
    made = model([node("Neg", "x", "y")], [port("x", [], "int64")], [port("y", [], "int64")])
    ready = InferenceSession(made.SerializeToString())
    for x, message in [(2.5, "dtype float64, expected int64"), (2**63, "input 'x' is no int64")]:
        with pytest.raises(Error, match=message):
            ready.run(None, {"x": x})


def test_names_are_str():
    ready = InferenceSession(TWICE.SerializeToString())
    x = normal(2)
    for names, feed in [("y", {"x": x}), ([1], {"x": x}), (None, {1: x}), (None, [x])]:
        with pytest.raises(TypeError, match="expected"):
            ready.run(names, feed)
    for names, feed in [(["\ud800"], {"x": x}), (None, {"x": x, "\ud800": x})]:
        with pytest.raises(Error, match="lone surrogate"):
            ready.run(names, feed)


def test_a_result_that_numpy_cannot_hold_is_an_error():
    weights = {"w": np.ones((1,) * 64, np.float32)}
    made = model([node("Identity", "w", "y")], [], [port("y", None)], weights)
    assert InferenceSession(made.SerializeToString()).run(None, {})[0].ndim == 64
    made.graph.initializer[0].dims.extend([1] * 5000)
    with pytest.raises(Error, match="output 'y': a tensor has rank 5064, numpy's arrays have"):
        InferenceSession(made.SerializeToString()).run(None, {})
    made = texts([helper.make_node("Identity", ["w"], ["y"])])
    made.graph.initializer.append(helper.make_tensor("w", TensorProto.STRING, [1], [b"\xff"]))
    with pytest.raises(Error, match="output 'y': a string of 1 bytes is no UTF-8"):
        InferenceSession(made.SerializeToString()).run(None, {"x": "a"})


# --- files ---


def test_a_path_with_a_nul_is_refused(tmp_path):
    inside = tmp_path / "m"
    inside.mkdir()
    (inside / "w.bin").write_bytes(b"\0" * 8)
    made = model([node("Add", "x w", "y")], [port("x", [2])], [port("y", [2])], {"w": normal(2)})
    weight = made.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    place = weight.external_data.add()
    place.key, place.value = "location", "w.bin"
    (inside / "m.onnx").write_bytes(made.SerializeToString())
    InferenceSession(str(inside / "m.onnx"))
    place.value = "w.bin\0../out.bin"
    (inside / "m.onnx").write_bytes(made.SerializeToString())
    for path in (f"{inside}/m.onnx", f"{inside}/m.onnx\0x"):
        with pytest.raises(Error, match=r"path '.*\\0.*' has a NUL in it"):
            InferenceSession(path)
    graph = core().read_onnx(_saved(tmp_path, TWICE))
    with pytest.raises(Error, match="has a NUL in it"):
        core().write_onnx(graph, f"{tmp_path}/a\0b")


def _saved(folder, made):
    onnx.save(made, folder / "saved.onnx")
    return str(folder / "saved.onnx")


CONTRADICTIONS = {
    "dtype": (port("y", ["n"], "int64"), r"'y' is declared int64\[n\], .* gives float32\[n\]"),
    "kind": (value("y", ROWS), r"declared seq\(.*\), what makes it gives float32"),
}  # fmt: skip


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_declared_output_that_contradicts_is_refused(case):
    declared, message = CONTRADICTIONS[case]
    made = model([node("Add", "x x", "y")], [port("x", ["n"])], [declared])
    with pytest.raises(Error, match=message):
        InferenceSession(made.SerializeToString())


def test_two_opsets_of_one_domain_are_refused():
    for first, second, domain in ((21, 13, ""), (21, 13, "ai.onnx"), (1, 2, "mine")):
        made = model([node("Neg", "x", "y")], [port("x", ["n"])], [port("y", None)])
        if domain == "mine":
            made.opset_import.append(helper.make_opsetid("mine", first))
        made.opset_import.append(helper.make_opsetid(domain, second))
        with pytest.raises(Error, match=f"imports opset {first} and opset {second} of domain"):
            InferenceSession(made.SerializeToString())
    made = model([node("Neg", "x", "y")], [port("x", ["n"])], [port("y", None)])
    made.opset_import.append(helper.make_opsetid("", 21))
    InferenceSession(made.SerializeToString())


UNKNOWN = {
    ("NonZero", TensorProto.COMPLEX64): "complex64",
    ("Unique", TensorProto.FLOAT8E4M3FN): "float8_e4m3fn",
    ("Unique", TensorProto.COMPLEX128): "complex128",
}


@pytest.mark.parametrize("op, kind", UNKNOWN)
@pytest.mark.parametrize("late", [False, True])
def test_an_allocating_kernel_refuses_at_load(op, kind, late):
    """Where it runs after what tells sizes, too."""
    ports = [helper.make_tensor_value_info("x", kind, ["n"]), port("f", ["n"])]
    nodes = [node("NonZero", "f", "z"), node("Transpose", "z", "t"), node("GatherND", "x t", "g")]
    nodes = [*nodes, node(op, "g", "y")] if late else [node(op, "x", "y")]
    graph = helper.make_graph(nodes, "g", ports, [onnx.ValueInfoProto(name="y")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    dtype = UNKNOWN[op, kind]
    with pytest.raises(Error, match=rf"\[{op}\] input 0 is {dtype}, expected .*node_y"):
        InferenceSession(made.SerializeToString())


def test_an_error_inside_of_an_allocating_kernel_names_the_node():
    made = of_items([node("ConcatFromSequence", "q", "y", axis=0)], [value("q", ROWS)], ["y"])
    rows = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    made.graph.input[0].type.CopyFrom(rows)
    with pytest.raises(Error, match=r"shapes \[2\] and \[2, 2\]|are to be joined.*node_y"):
        InferenceSession(made.SerializeToString()).run(None, {"q": [normal(2), normal(2, 2)]})


# --- the backend ---


def test_backend_takes_sequences():
    x = normal(3)
    at = backend.run_node(node("SequenceAt", "q i", "y"), [[x, x + 1], np.array(1)])
    np.testing.assert_array_equal(at[0], x + 1)
    joined = backend.run_node(node("ConcatFromSequence", "q", "y", axis=0), [[x, normal(2)]])
    np.testing.assert_array_equal(joined[0], np.concatenate([x, normal(2)]))
    assert backend.run_node(node("SequenceLength", "q", "y"), [[x, x]])[0] == 2
    with pytest.raises(Error, match="an empty sequence tells no type"):
        backend.run_node(node("SequenceLength", "q", "y"), [[]])


def test_backend_takes_absent_inputs():
    x = normal(3)
    assert not backend.run_node(node("OptionalHasElement", "o", "y"), [None])[0]
    clip = helper.make_node("Clip", ["a", "", "c"], ["y"])
    top = np.float32(0.1)
    for inputs in ([x, None, top], [x, top]):
        np.testing.assert_array_equal(backend.run_node(clip, inputs)[0], np.minimum(x, top))
    twice = helper.make_node("Add", ["a", "a"], ["y"])
    np.testing.assert_array_equal(backend.run_node(twice, [x, x])[0], x + x)
    with pytest.raises(Error, match="input 'a' is given two values"):
        backend.run_node(twice, [x, x + 1])


def test_backend_counts_inputs():
    add = node("Add", "a b", "y")
    for inputs in ([normal(3)], [normal(3)] * 3):
        with pytest.raises(Error, match=f"got {len(inputs)} inputs, expected 2: a, b"):
            backend.run_node(add, inputs)
    for inputs in ([], [normal(3)] * 2):
        with pytest.raises(Error, match=f"got {len(inputs)} inputs, expected 1: x"):
            backend.prepare(TWICE).run(inputs)


def test_backend_devices_and_opsets():
    for device in ("CUDA", "XYZ"):
        assert not backend.supports_device(device) and not backend.is_compatible(TWICE, device)
        with pytest.raises(Error, match=f"device '{device}' runs no models, expected CPU"):
            backend.prepare(TWICE, device)
    unknown = model([node("Nothing", "x", "y")], [port("x", ["n"])], [port("y", None)])
    assert backend.is_compatible(TWICE)
    assert not backend.is_compatible(unknown) and not backend.is_compatible(None)
    squeeze = node("Squeeze", "x", "y", axes=[0])
    got = backend.run_node(squeeze, [normal(1, 3)], opset_version=11)
    np.testing.assert_array_equal(got[0], normal(1, 3)[0])


# --- text of numbers ---


def digits(text):
    return len(text.split("e")[0].replace(".", "").replace("-", "").strip("0"))


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_text_reads_back_as_the_same_number(kind):
    """Every number of 16 bits."""
    import ml_dtypes

    dtype = np.dtype(kind if kind == "float16" else ml_dtypes.bfloat16)
    numbers = np.arange(2**16, dtype=np.uint16).view(dtype)
    element = helper.np_dtype_to_tensor_dtype(dtype)
    x = helper.make_tensor_value_info("x", element, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.STRING, ["n"])
    graph = helper.make_graph([node("Cast", "x", "y", to=TensorProto.STRING)], "g", [x], [y])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    got = InferenceSession(made.SerializeToString()).run(None, {"x": numbers})[0]
    back = np.array([float(text) for text in got]).astype(dtype)
    nan = np.isnan(numbers.astype(np.float32))
    assert np.array_equal(np.isnan(back.astype(np.float32)), nan)
    np.testing.assert_array_equal(back[~nan].view(np.uint16), numbers[~nan].view(np.uint16))
    if kind == "float16":  # with no more digits than numpy's
        shortest = [np.format_float_scientific(x, trim="-") for x in numbers[~nan]]
        assert [digits(x) for x in got[~nan]] == [digits(x) for x in shortest]
