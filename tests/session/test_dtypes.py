"""Dtypes that nothing computes in: read, written, moved and cast, against ml_dtypes and numpy."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ortmodule import InferenceSession
from ortmodule._native import core

C = core()
FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]
SMALL = ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"]
INTEGERS = ["int4", "uint4", "int2", "uint2"]
NARROW = [*FLOAT8, *SMALL, *INTEGERS, "float8_e8m0fnu"]
NUMBER = {
    name: getattr(TensorProto, onnx_name)
    for name, onnx_name in {
        "float8_e4m3fn": "FLOAT8E4M3FN",
        "float8_e4m3fnuz": "FLOAT8E4M3FNUZ",
        "float8_e5m2": "FLOAT8E5M2",
        "float8_e5m2fnuz": "FLOAT8E5M2FNUZ",
        "float8_e8m0fnu": "FLOAT8E8M0",
        "float4_e2m1fn": "FLOAT4E2M1",
        "float6_e2m3fn": "FLOAT6E2M3",
        "float6_e3m2fn": "FLOAT6E3M2",
        "int4": "INT4",
        "uint4": "UINT4",
        "int2": "INT2",
        "uint2": "UINT2",
        "bfloat16": "BFLOAT16",
        "float16": "FLOAT16",
        "float32": "FLOAT",
        "float64": "DOUBLE",
        "int8": "INT8",
        "uint8": "UINT8",
        "int64": "INT64",
        "uint64": "UINT64",
        "bool": "BOOL",
        "string": "STRING",
        "complex64": "COMPLEX64",
        "complex128": "COMPLEX128",
    }.items()
}
WIDTH = {name: int(bits_of.bits) for name in INTEGERS for bits_of in [ml_dtypes.iinfo(name)]}
WIDTH |= {"float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6}


def dtype(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def patterns(name):
    """Every value of the dtype."""
    return np.arange(2 ** WIDTH.get(name, 8), dtype=np.uint8).view(dtype(name))


def name_of(x):
    return "string" if x.dtype.kind in "OU" else x.dtype.name


def model(nodes, feed, to, constants=()):
    ports = [
        helper.make_tensor_value_info(name, NUMBER[name_of(x)], x.shape) for name, x in feed.items()
    ]
    result = [helper.make_tensor_value_info("y", NUMBER[to], None)]
    graph = helper.make_graph(nodes, "g", ports, result, list(constants))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 28)], ir_version=13)


def run(made, feed):
    return InferenceSession(made.SerializeToString()).run(None, feed)[0]


def cast(x, to, **attrs):
    node = helper.make_node("Cast", ["x"], ["y"], name="cast", to=NUMBER[to], **attrs)
    y = run(model([node], {"x": x}, to), {"x": x})
    assert to == "string" or y.dtype == dtype(to)
    return y


def bits(x):
    return x.view(np.uint8)


# Of every size, at every tie and beside it.
HALFWAYS = np.concatenate([patterns(n).astype("f4") for n in ("float8_e5m2", "float8_e4m3fn")])
HALFWAYS = np.sort(HALFWAYS[np.isfinite(HALFWAYS)])
TIES = (HALFWAYS[1:] + HALFWAYS[:-1]) / 2
REALS = np.concatenate(
    [HALFWAYS, TIES, np.nextafter(TIES, np.float32(9e9)), np.nextafter(TIES, np.float32(-9e9))]
    + [np.array([0, -0.0, 1e9, -1e9, 1e-30, 239, 241, 447, 449, 464, 465, 57344, 61440], "f4")]
)


@pytest.mark.parametrize("name", NARROW)
def test_every_value_becomes_its_number(name):
    x = patterns(name)
    np.testing.assert_array_equal(cast(x, "float32"), x.astype(np.float32))
    np.testing.assert_array_equal(cast(x, "float16"), x.astype(np.float16))
    finite = x[np.isfinite(x.astype(np.float32))]
    back = cast(finite.astype(np.float32), name)
    np.testing.assert_array_equal(bits(back), bits(finite.astype(np.float32).astype(dtype(name))))


@pytest.mark.parametrize("name", FLOAT8)
def test_floats_of_8_bits_round_once(name):
    special = np.array([np.nan, np.inf, -np.inf], "f4")
    with np.errstate(over="ignore"):
        halves = REALS.astype(np.float16)
    for x in (REALS, special, halves):
        with np.errstate(over="ignore"):
            free, full = x.astype(dtype(name)), numpy_helper.saturate_cast(x, dtype(name))
        np.testing.assert_array_equal(bits(cast(x, name, saturate=0)), bits(free))
        np.testing.assert_array_equal(bits(cast(x, name)), bits(full))
    # A float64 just beyond a tie is beyond it; ml_dtypes would round it to a float32 first.
    beyond = np.nextafter(TIES, np.copysign(np.float32(9e9), TIES))
    got = cast(TIES.astype("f8") * (1 + 1e-12), name)
    np.testing.assert_array_equal(bits(got)[TIES != 0], bits(cast(beyond, name))[TIES != 0])


@pytest.mark.parametrize("name", SMALL)
def test_smaller_floats_saturate(name):
    x = np.append(REALS, np.array([np.inf, -np.inf], "f4"))
    np.testing.assert_array_equal(bits(cast(x, name)), bits(x.astype(dtype(name))))
    assert not cast(np.array([np.nan], "f4"), name).astype("f4")  # it has none: zero


@pytest.mark.parametrize("name", INTEGERS)
def test_small_integers_lose_high_bits(name):
    for x in (
        np.arange(-20, 20),
        np.arange(-20, 20).astype("f4") * 0.75,
        np.arange(40, dtype="u8"),
    ):
        want = x.astype(np.int64).astype(dtype(name))
        np.testing.assert_array_equal(bits(cast(x, name)), bits(want))
    for to in ("int8", "int64", "bool", "float8_e5m2", "bfloat16"):
        x = patterns(name)
        np.testing.assert_array_equal(cast(x, to), x.astype("f4").astype(dtype(to)))


def test_powers_of_two():
    x = np.array([0.25, 0.3, 0.375, 0.4, 0.5, 1e-45, 0, 1e39], "f8")
    names = {
        "up": [125, 126, 126, 126, 126, 0, 0, 254],
        "down": [125, 125, 125, 125, 126, 0, 0, 254],
        "nearest": [125, 125, 126, 126, 126, 0, 0, 254],
    }
    for mode, want in names.items():
        assert bits(cast(x, "float8_e8m0fnu", round_mode=mode)).tolist() == want, mode
    free = bits(cast(x, "float8_e8m0fnu", round_mode="nearest", saturate=0))
    assert free.tolist() == [125, 125, 126, 126, 126, 255, 255, 255]
    special = np.array([np.inf, np.nan], "f4")
    assert bits(cast(special, "float8_e8m0fnu")).tolist() == [254, 255]
    y = np.abs(REALS[np.abs(REALS) >= 2**-126])
    for mode in ("up", "down"):
        want = numpy_helper.to_float8e8m0(y, True, mode)
        np.testing.assert_array_equal(bits(cast(y, "float8_e8m0fnu", round_mode=mode)), bits(want))


def test_cast_like_is_a_cast():
    x, like = np.array([1e6, 0.3], "f4"), np.zeros(1, dtype("float8_e4m3fn"))
    for saturate in (0, 1):
        node = helper.make_node("CastLike", ["x", "like"], ["y"], saturate=saturate)
        feed = {"x": x, "like": like}
        got = run(model([node], feed, "float8_e4m3fn"), feed)
        np.testing.assert_array_equal(bits(got), bits(cast(x, "float8_e4m3fn", saturate=saturate)))
    node = helper.make_node("CastLike", ["x", "like"], ["y"])
    feed = {"x": x, "like": np.array(["a"], object)}
    assert run(model([node], feed, "string"), feed).tolist() == ["1e+06", "0.3"]


# --- strings ---


def test_numbers_as_text_are_numpys():
    reals = [1e16, 1e-5, 1e-4, 0.1, 3, -0.0, np.nan, np.inf, -np.inf, 123456.789, 2.5e-310, 999.5]
    for name in ("float64", "float32", "float16"):
        with np.errstate(over="ignore"):
            x = np.array(reals).astype(name)
        assert cast(x, "string").tolist() == x.astype(str).tolist()
    for x in (np.array([2**64 - 1], "u8"), np.array([-(2**63)]), np.array([True, False])):
        assert cast(x, "string").tolist() == x.astype(str).tolist()
    assert cast(patterns("int4")[6:9], "string").tolist() == ["6", "7", "-8"]
    assert cast(patterns("float4_e2m1fn")[:4], "string").tolist() == ["0.0", "0.5", "1.0", "1.5"]
    half = np.array([0.1, 1e-30], "f4").astype(ml_dtypes.bfloat16)
    assert cast(half, "string").tolist() == ["0.1", "1e-30"]


def test_text_as_numbers():
    reals = ["1.5", " -2e3 ", "+INF", "-inf", "NaN", "1e400", "-1e-400", "0.1", "+.5", "infinity"]
    for name in ("float64", "float32", "float16"):
        with np.errstate(over="ignore"):
            want = np.array(reals).astype(name)
        np.testing.assert_array_equal(cast(np.array(reals, object), name), want)
    whole = ["7", "-8", "100.5", "1e3", "9223372036854775807"]
    got = cast(np.array(whole, object), "int64")
    assert got.tolist() == [7, -8, 100, 1000, 2**63 - 1]
    assert cast(np.array(["18446744073709551615"], object), "uint64").tolist() == [2**64 - 1]
    assert cast(np.array(["0.3", "1000"], object), "float8_e5m2").astype("f4").tolist() == [
        0.3125,
        1024,
    ]
    assert cast(np.array(["0.0", "0.5"], object), "bool").tolist() == [False, True]


def test_strings_are_compared_and_chosen():
    a, b = np.array([["x", ""], ["é", "y"]], object), np.array(["x", "y"], object)
    feed = {"a": a, "b": b}
    equal = helper.make_node("Equal", ["a", "b"], ["y"])
    np.testing.assert_array_equal(run(model([equal], feed, "bool"), feed), a == b)
    where = [helper.make_node("Equal", ["a", "b"], ["c"]),
             helper.make_node("Where", ["c", "a", "b"], ["y"])]  # fmt: skip
    got = run(model(where, feed, "string"), feed)
    np.testing.assert_array_equal(got, np.where(a == b, a, b))


# --- moved ---

MOVED = {
    "Identity": ({}, (), lambda x: x),
    "Transpose": ({"perm": [1, 0]}, (), lambda x: x.T),
    "Reshape": ({}, ([2, 6],), lambda x: x.reshape(2, 6)),
    "Flatten": ({"axis": 0}, (), lambda x: x.reshape(1, 12)),
    "Unsqueeze": ({}, ([1],), lambda x: x[:, None]),
    "Slice": ({}, ([2, 1], [-9, 4], [0, 1], [-1, 2]), lambda x: x[::-1, 1:4:2]),
    "Gather": ({"axis": 1}, ([[3, 0], [1, 1]],), lambda x: x[:, [[3, 0], [1, 1]]]),
    "GatherElements": ({}, ([[2, 0, 1, 1]],), lambda x: x[[2, 0, 1, 1], [0, 1, 2, 3]][None]),
    "GatherND": ({}, ([[2, 1], [0, 3]],), lambda x: x[[2, 0], [1, 3]]),
    "Expand": ({}, ([2, 1, 1],), lambda x: np.broadcast_to(x, (2, 3, 4))),
    "Tile": ({}, ([2, 1],), lambda x: np.tile(x, (2, 1))),
    "Split": ({"axis": 1, "num_outputs": 1}, (), lambda x: x),
}
VALUES = {
    **{name: patterns(name)[:4].repeat(3).reshape(3, 4) for name in NARROW},
    "string": np.array(list("abcdefghijkl"), object).reshape(3, 4),
    "complex64": (np.arange(12) - 2j).astype("c8").reshape(3, 4),
    "complex128": (np.arange(12) + 1j).reshape(3, 4),
}


def raw(x):
    return x.tolist() if x.dtype.kind == "O" else np.ascontiguousarray(x).tobytes()


@pytest.mark.parametrize("op", MOVED)
@pytest.mark.parametrize("name", VALUES)
def test_moved(op, name):
    attrs, operands, want = MOVED[op]
    constants = [numpy_helper.from_array(np.array(v), f"c{i}") for i, v in enumerate(operands)]
    node = helper.make_node(op, ["x", *(c.name for c in constants)], ["y"], **attrs)
    feed = {"x": VALUES[name]}
    got = run(model([node], feed, name, constants), feed)
    assert got.shape == want(VALUES[name]).shape and raw(got) == raw(want(VALUES[name]))


@pytest.mark.parametrize("name", VALUES)
def test_joined_and_chosen(name):
    x = VALUES[name]
    nodes = [helper.make_node("Concat", ["x", "x"], ["t"], axis=1),
             helper.make_node("Compress", ["t", "c"], ["u"], axis=1),
             helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
             helper.make_node("SequenceConstruct", ["u", "x"], ["s"])]  # fmt: skip
    nodes = [*nodes[:2], nodes[3], nodes[2]]
    constants = [numpy_helper.from_array(np.array([0, 1, 1, 0, 0, 1, 0, 1], bool), "c")]
    got = run(model(nodes, {"x": x}, name, constants), {"x": x})
    both = np.concatenate([x, x], 1)[:, [1, 2, 5, 7]]
    assert raw(got) == raw(np.concatenate([both, x]))


# --- files ---


def constant(tensor):
    nodes = [helper.make_node("Identity", [tensor.name], ["y"])]
    name = next(n for n, number in NUMBER.items() if number == tensor.data_type)
    return model(nodes, {}, name, [tensor])


@pytest.mark.parametrize("name", [n for n in VALUES if n != "string"])
def test_files_pack(name, tmp_path):
    x = VALUES[name].ravel()[:11]
    tensor = numpy_helper.from_array(x, "k")
    assert raw(run(constant(tensor), {})) == raw(x)
    onnx.save(constant(tensor), tmp_path / "a.onnx")
    C.write_onnx(C.read_onnx(str(tmp_path / "a.onnx")), str(tmp_path / "b.onnx"), 1 << 30)
    written = onnx.load(tmp_path / "b.onnx")
    onnx.checker.check_model(written)
    assert raw(numpy_helper.to_array(written.graph.initializer[0])) == raw(x)
    C.write_onnx(C.read_onnx(str(tmp_path / "a.onnx")), str(tmp_path / "c.onnx"), 0)
    assert raw(InferenceSession(tmp_path / "c.onnx").run(None, {})[0]) == raw(x)
    if name in NARROW:
        listed = TensorProto(name="k", data_type=NUMBER[name], dims=[11])
        listed.int32_data.extend(tensor.raw_data)
        assert raw(run(constant(listed), {})) == raw(x)


def test_complex_numbers_as_lists():
    for name, field in (("complex64", "float_data"), ("complex128", "double_data")):
        tensor = TensorProto(name="k", data_type=NUMBER[name], dims=[2])
        getattr(tensor, field).extend([1, 2, 3, -4])
        assert run(constant(tensor), {}).tolist() == [1 + 2j, 3 - 4j]


def tensor_with(name, count, **fields):
    tensor = TensorProto(name="k", data_type=NUMBER[name], dims=[count])
    for field, value in fields.items():
        if isinstance(value, bytes):
            setattr(tensor, field, value)
        else:
            getattr(tensor, field).extend(value)
    return constant(tensor)


BROKEN = {
    "tensor 'k' of shape .5. has 2 bytes, expected 3": ("int4", 5, {"raw_data": b"ab"}),
    "tensor 'k' of shape .3. has 4 bytes, expected 3": ("float6_e2m3fn", 3, {"raw_data": b"abcd"}),
    "tensor 'k' of shape .9. has 2 bytes, expected 3": ("int2", 9, {"int32_data": [1, 2]}),
    "has 3 parts of complex numbers, expected 4": ("complex64", 2, {"float_data": [1, 2, 3]}),
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_files(message):
    name, count, fields = BROKEN[message]
    with pytest.raises(C.Error, match=message):
        run(tensor_with(name, count, **fields), {})


def test_what_is_not_cast():
    with pytest.raises(C.Error, match="'abc' is no number"):
        cast(np.array(["abc"], object), "float32")
    for text in ("", "1 2", "0x10", "nan(1)", "+-1"):
        with pytest.raises(C.Error, match="is no number"):
            cast(np.array([text], object), "float64")
    for text in ("inf", "1e30"):
        with pytest.raises(C.Error, match="is no integer of 64 bits"):
            cast(np.array([text], object), "int64")
    with pytest.raises(C.Error, match="round_mode is 'sideways', expected up, down or nearest"):
        cast(np.ones(2, "f4"), "float8_e8m0fnu", round_mode="sideways")
    with pytest.raises(C.Error, match="complex numbers are not cast"):
        cast(np.ones(2, "c8"), "float32")


BITS = {name: 8 * dtype(name).itemsize for name in NUMBER if name != "string"} | WIDTH
CAST_BY_BITS = [name for name in BITS if not name.startswith("float6")]


@pytest.mark.parametrize("provider", ["cpu", "reference"])
@pytest.mark.parametrize("source", CAST_BY_BITS)
def test_the_same_bits(source, provider):
    """Whatever the bytes are; a truth has none but 0 and 1."""
    for target in CAST_BY_BITS:
        node = helper.make_node("BitCast", ["x"], ["y"], name="it", to=NUMBER[target])
        ports = [helper.make_tensor_value_info(n, NUMBER[k], [7])
                 for n, k in (("x", source), ("y", target))]  # fmt: skip
        graph = helper.make_graph([node], "g", ports[:1], ports[1:])
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=13)
        most = 2 if "bool" in (source, target) else 2 ** min(BITS[source], 8)
        raw = np.random.default_rng(0).integers(0, most, 7 * dtype(source).itemsize, np.uint8)
        x = raw.view(dtype(source))
        if BITS[source] != BITS[target]:
            with pytest.raises(C.Error, match="expected as many"):
                InferenceSession(made.SerializeToString(), providers=[provider])
            continue
        (y,) = InferenceSession(made.SerializeToString(), providers=[provider]).run(None, {"x": x})
        assert y.dtype == dtype(target) and y.tobytes() == raw.tobytes()
