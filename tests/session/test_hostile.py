"""Wrong and hostile ONNX files: each is one Error that names what and where, never a crash.

The worst run in a process of their own, so that a crash is a failure and not the end of the tests.
"""

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper

from ortmodule import InferenceSession
from ortmodule._native import core

from . import models
from .models import ints, model, node, normal, port

Error = core().Error


def refused(data, message):
    """The error of reading `data`, one line that matches `message`."""
    data = data if isinstance(data, bytes | str | os.PathLike) else data.SerializeToString()
    with pytest.raises(Error, match=message) as caught:
        InferenceSession(data)
    assert "\n" not in str(caught.value)


def around(nodes, weights=None, shape=(2, 3)):
    return model(nodes, [port("x", list(shape))], [port("y", None)], weights)


def raw(shape, data=b"", kind=TensorProto.FLOAT, name="w"):
    """A tensor that says what it likes about itself."""
    return TensorProto(name=name, dims=shape, data_type=kind, raw_data=data)


def with_tensor(tensor):
    made = around([node("Add", "x w", "y")])
    made.graph.initializer.append(tensor)
    return made


def refused_text(text, message):
    made = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]>' + text)
    with pytest.raises(Error, match=message):
        session = InferenceSession(made.SerializeToString())
        session.run(None, {"x": np.ones((2, 3, 4), np.int64)})


def test_more_results_than_the_op_has():
    for kind, op in (("int64[n]", "Neg"), ("optional(int64[n])", "Optional")):
        text = f"g (int64[2, 3, 4] x) => ({kind} y) {{ y, z = {op} (x) }}"
        refused_text(text, "has 2 outputs, the op 1")


def test_an_if_of_two_conditions():
    branch = "g () => (int64[n] a) { a = Neg (x) }"
    text = f"y = If (c, c) <then_branch = {branch}, else_branch = {branch}>"
    text = f"c = Constant <value = bool {{1}}> () {text}"
    refused_text(
        f"g (int64[2, 3, 4] x) => (int64[n] y) {{ {text} }}", "it has 2 inputs, expected 1"
    )


def test_axes_that_are_no_list():
    """A stage finds nothing out: it is not tried again and again."""
    refused_text("g (int64[2, 3, 4] x) => (int64[a, b, c] y) { y = ReduceSum (x, x) }",
                 "known only at run time")  # fmt: skip


def test_every_prefix_is_an_error_or_a_model():
    data = models.mlp()[0].SerializeToString()
    InferenceSession(data)
    whole = 0
    for length in range(len(data)):
        try:
            InferenceSession(data[:length])
            whole += 1
        except Error as error:
            assert str(error) and "\n" not in str(error)
    assert whole <= 2  # cut between two fields of the outermost message


def test_not_onnx():
    refused(b"", "is it an ONNX model")
    refused(b"PK\x03\x04 hello", "protobuf|ONNX")
    refused("/nowhere/model.onnx", "/nowhere/model.onnx")
    refused(os.path.dirname(__file__), "no regular file")


@pytest.mark.parametrize("name", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82"])
def test_names_that_are_no_utf8(name):
    made = around([node("Relu", "x", "y"), node("Relu", "x", "z" * len(name))])
    refused(made.SerializeToString().replace(b"z" * len(name), name), "no UTF-8")


def test_a_definition_with_as_many_parts_as_an_attribute_says():
    made = model([node("LRN", "x", "y", size=2**40)], [port("x", [1, 2, 3])], [port("y", None)])
    refused(made, "size is 1099511627776, expected 1 to 1000.*node_y")


BROKEN_GRAPHS = {
    "cycle": (
        [node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")],
        "reads 'b'",
    ),
    "self cycle": ([node("Add", "x y", "y")], "'node_y'.* reads 'y'"),
    "out of order": ([node("Relu", "a", "y"), node("Relu", "x", "a")], "'node_y'.* reads 'a'"),
    "made twice": ([node("Relu", "x", "y"), node("Relu", "x", "y")], "'y' is made twice"),
    "input again": ([node("Relu", "x", "x"), node("Relu", "x", "y")], "'x' is made twice"),
    "no maker": ([node("Relu", "x", "z")], "output 'y' is made by no node"),
    "missing input": ([node("MatMul", "x", "y")], "'node_y'.*MatMul.* is missing"),
    "too many inputs": ([node("Relu", "x x x", "y")], "'node_y'.*got 3 inputs"),
    "unknown op": ([node("Frobnicate", "x", "y")], "'node_y': op 'Frobnicate' of opset 21"),
    "unknown domain": ([node("Relu", "x", "y", domain="com.evil")], "com.evil::Relu"),
    "our own domain": ([node("StopGradient", "x", "y", domain="ort")], "ort::StopGradient"),
    "unknown attribute": ([node("Relu", "x", "y", alpha=1.0)], "'node_y'.*attribute 'alpha'"),
    "int for string": (
        [node("Gelu", "x", "y", approximate=3)],
        "'node_y'.*(another type|expected a)",
    ),
    "string for ints": (
        [node("Transpose", "x", "y", perm="abc")],
        "'perm' is \"abc\", expected a list of ints; .*node_y",
    ),
    "int for ints": (
        [node("Transpose", "x", "y", perm=1)],
        "'perm' is 1, expected a list of ints; .*node_y",
    ),
    "float for int": ([node("Softmax", "x", "y", axis=1.5)], "'node_y'.*(another type|expected a)"),
    "axis out of range": ([node("Softmax", "x", "y", axis=9)], "node_y"),
    "bad permutation": ([node("Transpose", "x", "y", perm=[0, 7])], "node_y"),
    "no such type": ([node("Cast", "x", "y", to=1234)], "node_y"),
}


@pytest.mark.parametrize("kind", BROKEN_GRAPHS)
def test_broken_graph(kind):
    nodes, message = BROKEN_GRAPHS[kind]
    refused(around(nodes), message)


TENSORS = {
    "too short": (raw([2, 3], bytes(20)), "'w' of shape .* has 20 bytes, expected 24"),
    "too long": (raw([2, 3], bytes(28)), "'w' of shape .* has 28 bytes, expected 24"),
    "negative": (raw([-2, 3], bytes(24)), "'w' has negative size -2"),
    "two negatives": (raw([-2, -3], bytes(24)), "'w' has negative size"),
    "overflow": (raw([1 << 40, 1 << 40]), "overflows"),
    "byte overflow": (raw([1 << 62]), "overflows"),
    "giant": (raw([1 << 50], bytes(4)), "'w' of shape .* has 4 bytes"),
    "giant numbers": (TensorProto(name="w", dims=[1 << 50], data_type=1), "'w' of shape"),
    "giant strings": (TensorProto(name="w", dims=[1 << 50], data_type=8), "'w' has 0 strings"),
    "no such type": (raw([2, 3], bytes(24), kind=77), "'w' has element type 77"),
    "no dtype": (raw([2, 3], bytes(48), kind=77), "'w' has element type 77"),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_broken_tensor(kind):
    tensor, message = TENSORS[kind]
    refused(with_tensor(tensor), message)


def external(folder, location, **entries):
    """A model in `folder` whose weights are said to lie at `location`."""
    tensor = TensorProto(name="w", dims=[2, 3], data_type=1, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    path = folder / "model.onnx"
    path.write_bytes(with_tensor(tensor).SerializeToString())
    return path


@pytest.fixture
def folder(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "w.bin").write_bytes(np.ones(6, np.float32).tobytes())
    (tmp_path / "secret.bin").write_bytes(bytes(24))
    (inside / "link.bin").symlink_to(tmp_path / "secret.bin")
    (inside / "loop.bin").symlink_to(inside / "loop.bin")
    (inside / "up").symlink_to(tmp_path)
    return inside


def test_external_data_that_is_right(folder):
    (y,) = InferenceSession(external(folder, "w.bin")).run(None, {"x": normal(2, 3)})
    np.testing.assert_allclose(y, normal(2, 3) + 1)


def test_symlinks_into_the_folder_of_the_real_model(tmp_path):
    """As package caches have them: names in one folder, the files in another."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    (blobs / "weights").write_bytes(np.ones(6, np.float32).tobytes())
    external(blobs, "w.bin").rename(blobs / "model")
    (snapshot / "model.onnx").symlink_to(blobs / "model")
    (snapshot / "w.bin").symlink_to(blobs / "weights")
    (y,) = InferenceSession(snapshot / "model.onnx").run(None, {"x": normal(2, 3)})
    np.testing.assert_allclose(y, normal(2, 3) + 1)
    (tmp_path / "elsewhere.bin").write_bytes(bytes(24))
    (snapshot / "w.bin").unlink()
    (snapshot / "w.bin").symlink_to(tmp_path / "elsewhere.bin")
    refused(snapshot / "model.onnx", "outside the model's folder")


@pytest.mark.parametrize("trusted", [False, True])
def test_weights_that_are_cut_after_opening(folder, trusted):
    """Read, not mapped: what happens to the file later is no matter. Mapped only when trusted."""
    path = external(folder, "w.bin")
    session = InferenceSession(path, trusted=trusted)
    if not trusted:
        (folder / "w.bin").write_bytes(b"")
        path.write_bytes(b"")
    (y,) = session.run(None, {"x": normal(2, 3)})
    np.testing.assert_allclose(y, normal(2, 3) + 1)


def test_external_pipe(folder):
    """A pipe would wait for a writer."""
    os.mkfifo(folder / "pipe")
    refused(external(folder, "pipe"), "'.*pipe' is no regular file")


@pytest.mark.parametrize("location", ["../secret.bin", "link.bin", "up/secret.bin", "..", "."])
def test_external_data_outside(folder, location):
    refused(external(folder, location), "'w' has external data .* outside the model's folder")


def test_external_data_elsewhere(folder):
    refused(external(folder, folder.parent / "secret.bin"), "outside the model's folder")
    refused(external(folder, folder / "w.bin"), "outside the model's folder")  # absolute
    refused(external(folder, "loop.bin"), "loop.bin|outside")
    refused(external(folder, "none.bin"), "cannot open .*none.bin")
    refused(external(folder, "/dev/zero"), "outside the model's folder")
    refused(external(folder, None), "'w' is external but names no location")


@pytest.mark.parametrize(
    "entries, message",
    [
        ({"offset": 4}, "'w' ends at byte 28 of 'w.bin', which has 24"),
        ({"offset": 1 << 40}, "'w' ends at byte"),
        ({"offset": (1 << 63) - 1}, "'w' ends at byte|overflows"),
        ({"offset": -8}, "'w': external data offset is '-8'"),
        ({"offset": "x"}, "'w': external data offset is 'x'"),
        ({"offset": 10**30}, "'w'.*offset|'w' ends|overflows"),
        ({"length": 12}, "'w' of shape .* has 12 external bytes, expected 24"),
    ],
)
def test_external_ranges(folder, entries, message):
    refused(external(folder, "w.bin", **entries), message)


def test_duplicate_names():
    made = around([node("Relu", "x", "y")])
    made.graph.output.append(port("y", None))
    refused(made, "output 'y' is named twice")
    made = around([node("Relu", "x", "y")])
    made.graph.input.append(port("x", [1]))
    refused(made, "input 'x' is named twice")
    made = with_tensor(raw([2, 3], bytes(24)))
    made.graph.initializer.append(raw([2, 3], bytes(24)))
    refused(made, "'w' is made twice")


def test_inputs_of_other_types():
    made = around([node("Relu", "x", "y")])
    made.graph.input[0].ClearField("type")
    refused(made, "input 'x' has no type")
    refused(around([node("Relu", "x", "y")], shape=(-2, 3)), "negative size -2")
    made = around([node("Relu", "x", "y")])
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [1]))
    made.graph.input[0].type.CopyFrom(kind)
    refused(made, "input 'x' is seq")


def test_sub_graphs_are_named():
    made = around([node("Relu", "x", "y")])
    attribute = AttributeProto(name="body", type=AttributeProto.GRAPH)
    made.graph.node[0].attribute.append(attribute)
    refused(made, "'node_y' .*'body' has no graph")


# --- in a process of their own ---

CHILD = """
import sys
from ortmodule import InferenceSession
from ortmodule._native import core
try:
    InferenceSession(sys.argv[1]).run(None, {})
except core().Error as error:
    print("refused:", error)
"""


def varint(number):
    out = b""
    while number >= 128:
        out, number = out + bytes([number % 128 + 128]), number // 128
    return out + bytes([number])


def field(number, payload):
    return varint(number * 8 + 2) + varint(len(payload)) + payload


def nested_type(depth):
    """A model whose input is a sequence of sequences of ..."""
    kind = field(1, field(1, b"\x08\x01"))
    for _ in range(depth):
        kind = field(4, field(1, kind))
    value = field(1, b"x") + field(2, kind)
    return field(7, field(11, value)) + field(8, b"\x10\x15")


def deep_size(text):
    return model([node("Relu", "x", "y")], [port("x", [text])], [port("y", None)])


def filled(*shape):
    nodes = [node("ConstantOfShape", "s", "y")]
    return model(nodes, [], [port("y", None)], {"s": ints(*shape)})


def no_inputs(op):
    return around([helper.make_node(op, [], ["y"], name="node_y")])


def first_absent(op, **attrs):
    return around([helper.make_node(op, ["", "x"], ["y"], name="node_y", **attrs)])


def with_ints(nodes, **weights):
    made = around(nodes)
    made.graph.initializer.extend(
        helper.make_tensor(name, TensorProto.INT64, shape, [1] * int(np.prod(shape, dtype=int)))
        for name, shape in weights.items()
    )
    return made


def empty_list():
    made = model(
        [node("ConvTranspose", "x w", "y", output_shape=[1])],
        [port("x", [1, 1, 3, 3])],
        [port("y", None)],
        {"w": normal(1, 1, 2, 2)},
    )
    del made.graph.node[0].attribute[0].ints[:]
    return made


def doubling(rounds):
    """A size whose text doubles with each node."""
    nodes = [node("Shape", "x", "y0")]
    for k in range(rounds):
        nodes += [node("Add", f"y{k} one", f"a{k}"), node("Add", f"y{k} two", f"b{k}")]
        nodes += [node("Div", f"a{k} b{k}", f"y{k + 1}")]
    nodes += [node("ConstantOfShape", f"y{rounds}", "y")]
    return model(nodes, [port("x", ["n"])], [port("y", None)], {"one": ints(1), "two": ints(2)})


WORST = {
    "concat of nothing": no_inputs("Concat"),
    "max of nothing": no_inputs("Max"),
    "sum of nothing": no_inputs("Sum"),
    "concat without its first": first_absent("Concat", axis=0),
    "max without its first": first_absent("Max"),
    "fill of a rank-0 shape": with_ints([node("ConstantOfShape", "s", "y")], s=[]),
    "range of nothing": with_ints([node("Range", "s s s", "y")], s=[0]),
    "rank-0 indices": with_ints([node("GatherND", "x s", "y")], s=[]),
    "batch_dims -1": with_ints([node("GatherND", "x s", "y", batch_dims=-1)], s=[2, 1]),
    "no output_shape": empty_list(),
    "doubling size": doubling(40),
    "axes that are sizes": model(
        [node("Shape", "x", "s"), node("ReduceSum", "x s", "y")],
        [port("x", ["n", "m"])],
        [port("y", None)],
    ),
    "empty value": around(
        [
            node("Constant", "", "s", value_ints=[2]),
            node(
                "ConstantOfShape",
                "s",
                "y",
                value=helper.make_tensor("v", TensorProto.FLOAT, [0], []),
            ),
        ]
    ),
    "many factors": deep_size("*".join(f"a{i}" for i in range(50000))),
    "nested type": nested_type(3000),
    "nested size": deep_size("(" * 100000 + "n" + ")" * 100000),
    "negated size": deep_size("-" * 100000 + "n"),
    "nested maximum": deep_size("max(" * 50000),
    "exploding size": deep_size("*".join(f"(a{i}+b{i}+1)" for i in range(60))),
    "divided by zero": deep_size("n // 0"),
    "smallest by -1": deep_size("(0 - 9223372036854775807 - 1) // (0 - 1)"),
    "smallest times a letter by -1": deep_size("s*(-9223372036854775807-1)//-1"),
    "smallest times a letter, rest of -1": deep_size("s*(-9223372036854775807-1)%-1"),
    "petabytes": filled(1 << 48),
    "filled overflow": filled(1 << 40, 1 << 40),
    "negative fill": filled(-5),
    "terabytes": filled(1 << 40),
}


@pytest.mark.parametrize("kind", WORST)
def test_worst(kind, tmp_path):
    path = tmp_path / "model.onnx"
    data = WORST[kind]
    path.write_bytes(data if isinstance(data, bytes) else data.SerializeToString())
    command = [sys.executable, "-c", CHILD, str(path)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert child.returncode == 0, child.stderr[-2000:]
    assert child.stdout.startswith("refused:")
    assert child.stdout.count("\n") == 1


@pytest.mark.parametrize("op", ["Div", "Mod", "Range"])
def test_sizes_at_the_end_of_int64(op, tmp_path):
    """What is computed from a shape: the smallest number times a size, then by -1."""
    nodes = [node("Shape", "x", "s"), node("Mul", "s smallest", "m")]
    if op == "Range":
        nodes += [node("Squeeze", "m", "limit"), node("Range", "zero limit minus", "y")]
    else:
        nodes += [node(op, "m minus", "sizes"), node("ConstantOfShape", "sizes", "y")]
    weights = {"smallest": ints(-(2**63)), "zero": np.int64(0), "minus": np.int64(-1)}
    made = model(nodes, [port("x", ["n"])], [port("y", None)], weights)
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    text = CHILD.replace("{}", "{'x': np.ones(1, np.float32)}")
    command = [sys.executable, "-c", "import numpy as np" + text, str(path)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert child.returncode == 0, child.stderr[-2000:]
    if op != "Mod":  # whose result is 0
        assert child.stdout.startswith("refused:") and child.stdout.count("\n") == 1


def chain(length):
    nodes = [node("Relu", "x" if k == 0 else f"h{k}", f"h{k + 1}") for k in range(length)]
    return model(nodes, [port("x", ["n", 4])], [port(f"h{length}", None)])


# The peak is this process's own (VmHWM): ru_maxrss keeps what the process that forked it had.
LOAD = """
import re, sys, time
from ortmodule import InferenceSession
import numpy as np
import onnx
start = time.perf_counter()
session = InferenceSession(sys.argv[1])
session.run(None, {"x": np.ones((2, 4), np.float32)})
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1)
print(time.perf_counter() - start, int(peak) // 1024)
"""


def load(length, folder, make=chain):
    path = folder / f"chain{length}.onnx"
    path.write_bytes(make(length).SerializeToString())
    command = [sys.executable, "-c", LOAD, str(path)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert child.returncode == 0, child.stderr[-2000:]
    seconds, megabytes = child.stdout.split()
    return float(seconds), int(megabytes)


def test_a_long_chain_loads(tmp_path):
    """In time that grows with its length, not with the square of it."""
    few, _ = load(5000, tmp_path)
    many, megabytes = load(20000, tmp_path)
    assert many < 8 * few + 2, f"5,000 nodes take {few} s, 20,000 {many} s"
    assert megabytes < 2000


@pytest.mark.long
def test_a_chain_of_50000_nodes(tmp_path):
    seconds, megabytes = load(50000, tmp_path)
    assert seconds < 60 and megabytes < 2000, f"{seconds} s, {megabytes} MB"


def views(length):
    """None of them computes: what they show is found without asking one after the other."""
    ops = ["Unsqueeze", "Squeeze"]
    nodes = [
        node(ops[k % 2], f"{'x' if k == 0 else f'h{k}'} axis", f"h{k + 1}") for k in range(length)
    ]
    nodes += [node("Relu", f"h{k}", f"r{k}") for k in range(2, length, 100)]
    outputs = [port(f"r{k}", None) for k in range(2, length, 100)]
    return model(nodes, [port("x", ["n", 4])], outputs, {"axis": ints(0)})


def products(length):
    """Steps that nothing joins."""
    nodes = [node("MatMul", f"{'x' if k == 0 else f'h{k}'} w", f"h{k + 1}") for k in range(length)]
    ports = [port(f"h{length}", None)]
    return model(nodes, [port("x", ["n", 4])], ports, {"w": np.eye(4, dtype=np.float32)})


@pytest.mark.parametrize("make", [views, products])
def test_other_long_chains(make, tmp_path):
    few, many = (load(length, tmp_path, make)[0] for length in (4000, 16000))
    assert many < 8 * few + 2, f"4,000 nodes take {few} s, 16,000 {many} s"


HUGE = [2**31, 2**62, 2**63 - 1]


@pytest.mark.parametrize("provider", ["cpu", "reference"])
@pytest.mark.parametrize("size", HUGE)
@pytest.mark.parametrize("name", ["strides", "dilations", "pads"])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "MaxPool"])
def test_windows_of_any_numbers(op, name, size, provider):
    attrs = {name: [size] * (4 if name == "pads" else 2)}
    attrs |= {"kernel_shape": [1, 1]} if op == "MaxPool" else {}
    nodes = [node(op, "x" if op == "MaxPool" else "x w", "y", **attrs)]
    weights = {} if op == "MaxPool" else {"w": normal(2, 2, 1, 1)}
    made = model(nodes, [port("x", [1, 2, "h", "w"])], [port("y", None)], weights)
    with pytest.raises(Error, match="node_y"):
        session = InferenceSession(made.SerializeToString(), providers=(provider,))
        session.run(None, {"x": normal(1, 2, 3, 0)})


EMPTY = {
    "Expand": ([2**40, 0, 2**40], "exceeds any memory"),
    "ConstantOfShape": ([0, 2**62, 4], "exceeds any memory"),
    "Tile": ([1, 2**62, 2**62], "exceeds any memory|overflows"),
}


@pytest.mark.parametrize("op", EMPTY)
def test_empty_shapes_beyond_any_memory(op):
    """Of no elements, and no offset into it can be computed."""
    shape, message = EMPTY[op]
    inputs = "s" if op == "ConstantOfShape" else "x s"
    ports = [port("x", ["a", "b", "c"])], [port("y", None)]
    made = model([node(op, inputs, "y")], *ports, {"s": ints(*shape)})
    with pytest.raises(Error, match=message) as caught:
        InferenceSession(made.SerializeToString()).run(None, {"x": normal(0, 1, 1)})
    assert "node_y" in str(caught.value)


def test_constants_that_are_large_together(tmp_path):
    """Folding has one budget for all constants: what is over it is computed in each run."""
    nodes = []
    for k in range(60):  # 60 times 16 MB
        nodes += [node("ConstantOfShape", "s", f"c{k}"), node("Mul", f"c{k} x", f"y{k}")]
    ports = [port(f"y{k}", None) for k in range(60)]
    path = tmp_path / "model.onnx"
    path.write_bytes(
        model(nodes, [port("x", [0, 1])], ports, {"s": ints(1, 1 << 22)}).SerializeToString()
    )
    code = LOAD.replace('session.run(None, {"x": np.ones((2, 4), np.float32)})', "")
    command = [sys.executable, "-c", code, str(path)]
    plain = {**os.environ, "ORTMODULE_CHECK": "0"}  # comparing rewrites takes copies
    child = subprocess.run(command, capture_output=True, text=True, timeout=60, env=plain)
    assert child.returncode == 0, child.stderr[-2000:]
    assert int(child.stdout.split()[1]) < 800


def test_a_dump_leaves_what_it_did_not_write(tmp_path):
    mine = tmp_path / "build7" / "precious.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    code = "import sys; from ortmodule import InferenceSession\nInferenceSession(sys.argv[1])\n"
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "build0").mkdir()
    (folder / "build0" / "precious.txt").write_text("mine")
    path = tmp_path / "model.onnx"
    path.write_bytes(models.mlp()[0].SerializeToString())
    for _ in range(2):
        env = os.environ | {"ORTMODULE_DUMP": str(folder)}
        subprocess.run([sys.executable, "-c", code, str(path)], env=env, check=True)
        assert (folder / "build1" / "00_captured.txt").exists()
        with open(folder / ".ortmodule_dump", "a") as manifest:
            manifest.write("build0/../../outside.txt\n../outside.txt\nbuild7/../../outside.txt\n")
    assert mine.read_text() == outside.read_text() == "mine"
    assert (folder / "build0" / "precious.txt").read_text() == "mine"
    assert not (folder / "build2").exists()


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Pow"])
def test_a_nan_is_no_neutral_element(op):
    """The rules of x + 0, x * 1 and the like compare constants: nothing is near a NaN."""
    made = around([node(op, "x w", "y")], {"w": np.array(np.nan, np.float32)})
    (y,) = InferenceSession(made.SerializeToString()).run(None, {"x": normal(2, 3)})
    assert np.isnan(y).all()
