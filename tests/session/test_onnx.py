"""ONNX files in our engine: round trips, external data, opsets, whole models, onnx's own tests in
other dtypes.

models.py makes the models; backend_nodes.py runs onnx's node tests.
"""

import os
import re

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from ortmodule import InferenceSession
from ortmodule._native import core

from . import backend_nodes, dtype_twins, models
from .models import model, node, normal, port

C = core()


def text_of(path) -> str:
    """A file's graph as text, without the numbers that the writer puts into nodes' names."""
    return re.sub(r"([A-Za-z0-9]+)_\d+\b", r"\1", C.read_onnx(str(path)).text())


def weighted(count):
    graph = C.Graph()
    x = graph.input("x", "float32", ["n", count])
    weight = graph.constant(np.arange(count * count, dtype=np.float32).reshape(count, count))
    (product,) = graph.emit("MatMul", [x, weight])
    (y,) = graph.emit("Softmax", [product], {"axis": -1})
    graph.output(y, "y")
    return graph


def test_round_trip_keeps_the_text(tmp_path):
    C.write_onnx(weighted(4), str(tmp_path / "one.onnx"))
    one = C.read_onnx(str(tmp_path / "one.onnx"))
    C.write_onnx(one, str(tmp_path / "two.onnx"))
    assert C.read_onnx(str(tmp_path / "two.onnx")).text() == one.text()
    ops = [n.op for n in one.nodes]
    assert sorted(ops) == ["Constant", "MatMul", "Softmax"]
    assert one.outputs[0].type == weighted(4).outputs[0].type
    onnx.checker.check_model(onnx.load(tmp_path / "one.onnx"), full_check=True)


@pytest.mark.parametrize("make", models.ALL, ids=lambda make: make.__name__)
def test_model_round_trip(make, tmp_path):
    made, feed = make()
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    onnx.save(made, first)
    C.write_onnx(C.read_onnx(str(first)), str(second))
    C.write_onnx(C.read_onnx(str(second)), str(tmp_path / "third.onnx"))
    assert text_of(second) == text_of(tmp_path / "third.onnx")
    pairs = zip(
        InferenceSession(first).run(None, feed),
        InferenceSession(second).run(None, feed),
        strict=True,
    )
    for ours, again in pairs:
        np.testing.assert_array_equal(ours, again)


def test_external_data(tmp_path):
    path = tmp_path / "model.onnx"
    C.write_onnx(weighted(64), str(path), inside_limit=1000)
    assert path.stat().st_size < 2000
    assert (tmp_path / "model.onnx.data").stat().st_size == 64 * 64 * 4
    x = normal(3, 64) / 1000
    (ours,) = InferenceSession(path).run(None, {"x": x})
    (theirs,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    with pytest.raises(C.Error, match="was not read from a file"):
        InferenceSession(path.read_bytes())


def own_memory() -> int:
    """Bytes of this process that no file backs."""
    with open("/proc/self/status") as status:
        (line,) = [line for line in status if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="asks Linux for memory")
def test_external_weights_are_mapped(tmp_path):
    path = str(tmp_path / "model.onnx")
    C.write_onnx(weighted(4096), path, inside_limit=1000)  # 64 MiB
    before = own_memory()
    graph = C.read_onnx(path, map=True)
    assert own_memory() - before < 16 << 20
    assert "MatMul" in [n.op for n in graph.nodes]


@pytest.mark.parametrize("opset", [13, 14, 17, 20, 23, 26])
def test_opsets_with_the_same_meaning(opset):
    nodes = [node("MatMul", "x x", "p"), node("Relu", "p", "r"), node("Add", "r x", "y")]
    made = model(nodes, [port("x", [3, 3])], [port("y", [3, 3])], opset=opset)
    x = normal(3, 3)
    (ours,) = InferenceSession(made.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(ours, np.maximum(x @ x, 0) + x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [29, 1 << 40])
def test_opsets_out_of_range(opset):
    made = model([node("Relu", "x", "y")], [port("x", [3])], [port("y", [3])], opset=opset)
    with pytest.raises(C.Error, match="supported are 1 to 28"):
        InferenceSession(made.SerializeToString())


def test_changed_meaning_is_an_error():
    nodes = [node("Mish", "x", "y")]  # there is none before opset 18
    made = model(nodes, [port("x", [3])], [port("y", [3])], opset=13)
    with pytest.raises(C.Error, match="'node_y': op 'Mish' .* opset 13"):
        InferenceSession(made.SerializeToString())


@pytest.mark.parametrize("make", models.ALL, ids=lambda make: make.__name__)
def test_model_against_others(make):
    made, feed = make()
    onnx.checker.check_model(made)
    data = made.SerializeToString()
    ours = InferenceSession(data).run(None, feed)
    others = [ReferenceEvaluator(made).run(None, feed)]
    others.append(onnxruntime.InferenceSession(data).run(None, feed))
    for theirs in others:
        for a, b in zip(ours, theirs, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_dynamic_batch_in_one_session():
    made, _ = models.mlp()
    session = InferenceSession(made.SerializeToString())
    reference = ReferenceEvaluator(made)
    for batch in (1, 8, 3, 1):
        x = normal(batch, 4)
        (ours,) = session.run(["y"], {"x": x})
        np.testing.assert_allclose(ours, reference.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)


def test_ports():
    session = InferenceSession(models.top_k()[0].SerializeToString())
    ports = [(p.name, p.shape, p.type) for p in session.get_inputs()]
    assert ports == [("x", ["n", 5], "tensor(float)")]
    ports = [(p.name, p.shape, p.type) for p in session.get_outputs()]
    assert ports == [("values", ["n", 2], "tensor(float)"), ("at", ["n", 2], "tensor(int64)")]


def test_named_outputs_come_in_the_order_asked():
    made, feed = models.top_k()
    session = InferenceSession(made.SerializeToString())
    at, values = session.run(["at", "values"], feed)
    assert at.dtype == np.int64 and values.dtype == np.float32


WRONG_CALLS = {
    "missing input": (None, {}, "input 'x' is missing; the model takes x"),
    "unknown input": (None, {"x": normal(2, 4), "z": normal(1)}, "'z' is no input of the model"),
    "wrong dtype": (None, {"x": normal(2, 4).astype(np.float64)}, "input 'x' has dtype float64"),
    "wrong rank": (None, {"x": normal(4)}, r"input 'x' has shape \[4\]"),
    "wrong size": (None, {"x": normal(2, 5)}, r"input 'x' has shape \[2, ?5\]"),
    "unknown output": (["q"], {"x": normal(2, 4)}, "'q' is no output of the model, which gives y"),
}


@pytest.mark.parametrize("kind", WRONG_CALLS)
def test_wrong_calls(kind):
    names, feed, message = WRONG_CALLS[kind]
    session = InferenceSession(models.mlp()[0].SerializeToString())
    with pytest.raises(C.Error, match=message) as caught:
        session.run(names, feed)
    assert "\n" not in str(caught.value)
    session.run(None, {"x": normal(2, 4)})  # still usable


@pytest.mark.slow
@pytest.mark.parametrize("dtype", dtype_twins.DTYPES)
def test_onnx_node_tests_in_other_dtypes(dtype):
    """Where float32 passes on the cpu provider alone, so does each dtype that ONNX allows."""
    count, failures = 0, {}
    for case in backend_nodes.cases():
        inputs = [np.asarray(x) for x in case.data_sets[0][0]]
        if (
            all(x.dtype != np.float32 for x in inputs)
            or any(x.dtype.name in ("float16", "bfloat16") for x in inputs)
            # onnx's reference stacks the scalars of each trip along two axes.
            or any(node.op_type == "Loop" for node in case.model.graph.node)
            or dtype_twins.twin(case.model, dtype) is None
        ):
            continue
        if backend_nodes.failure(case, ("cpu",)):
            continue
        count += 1
        if why := dtype_twins.failure(case, dtype):
            failures[case.name] = why
    assert not failures
    assert count >= 500
