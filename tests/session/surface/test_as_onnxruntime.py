"""as_onnxruntime: scripts and libraries that import onnxruntime, each in a process of its own."""

import subprocess
import sys

import pytest

SCRIPTS = {
    "as_usual": """
import numpy as np, onnx, importlib.util
import onnxruntime as ort
from onnx import parser
from onnxruntime import InferenceSession, SessionOptions, GraphOptimizationLevel
from onnxruntime.capi import _pybind_state as C
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, NoSuchFile
from onnxruntime.capi.onnxruntime_inference_collection import OrtValue
data = parser.parse_model('<ir_version: 9, opset_import: ["" : 17]> g (float[n] x) => '
                          '(float[n] y) { y = Add(x, x) }').SerializeToString()
options = SessionOptions()
options.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
session = InferenceSession(data, options, providers=ort.get_available_providers())
assert session.run(None, {session.get_inputs()[0].name: np.ones(2, np.float32)})[0].sum() == 4
for feed, kind in (({"x": np.ones((2, 2), np.float32)}, InvalidArgument), ({}, ValueError)):
    try:
        session.run(None, feed)
    except kind as error:
        print(type(error).__name__)
    else:
        raise AssertionError
assert isinstance(C.SessionOptions(), SessionOptions) and OrtValue is ort.OrtValue
assert importlib.util.find_spec("onnxruntime") is ort.__spec__ and ort.__version__
assert type(session).__module__.startswith("ortmodule")
import onnxruntime.backend
(y,) = onnxruntime.backend.prepare(onnx.load_from_string(data)).run([np.ones(2, np.float32)])
assert y.tolist() == [2, 2]
assert "torch" not in __import__("sys").modules
""",
    "quantization": """
import numpy as np, onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
import onnxruntime, tempfile, os
w = numpy_helper.from_array(np.random.default_rng(0).normal(size=(8, 4)).astype("f"), "w")
graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
    [helper.make_tensor_value_info("x", 1, ["n", 8])],
    [helper.make_tensor_value_info("y", 1, ["n", 4])], [w])
made = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
at = os.path.join(tempfile.mkdtemp(), "m.onnx")
onnx.save(made, at)
quantize_dynamic(at, at + "8", weight_type=QuantType.QInt8)
x = np.ones((2, 8), np.float32)
full, small = (onnxruntime.InferenceSession(p).run(None, {"x": x})[0] for p in (at, at + "8"))
assert np.abs(full - small).max() < 0.2 and not np.array_equal(full, small)
""",
    "transformers": """
import numpy as np, onnx, os, tempfile
from onnx import helper, numpy_helper
from onnxruntime.transformers.optimizer import optimize_model
from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference
import onnxruntime
weights = {"w": np.ones((8, 8), np.float32), "half": np.float32([0.5])}
graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "half"], ["y"])],
    "g", [helper.make_tensor_value_info("x", 1, ["n", 8])],
    [helper.make_tensor_value_info("y", 1, ["n", 8])],
    [numpy_helper.from_array(x, name) for name, x in weights.items()])
made = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
at = os.path.join(tempfile.mkdtemp(), "m.onnx")
onnx.save(made, at)
found = optimize_model(at, model_type="bert", num_heads=2, hidden_size=8, opt_level=1).model
x = {"x": np.ones((2, 8), np.float32)}
(y,) = onnxruntime.InferenceSession(found.SerializeToString()).run(None, x)
assert (y == 8.5).all()
SymbolicShapeInference.infer_shapes(made)
""",
    "a_python_op": """
import numpy as np, onnxruntime
from onnx import parser
@ortmodule.custom_op("my.domain::Half", types=lambda x: x)
def half(x):
    return x / 2
data = parser.parse_model('<ir_version: 9, opset_import: ["" : 17, "my.domain" : 1]> g (float[n] x)'
                          ' => (float[n] y) { y = my.domain.Half(x) }').SerializeToString()
(y,) = onnxruntime.InferenceSession(data).run(None, {"x": np.ones(2, np.float32)})
assert y.tolist() == [0.5, 0.5]
""",
}


def run(script: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script(name):
    done = run("import ortmodule\nortmodule.as_onnxruntime()\n" + SCRIPTS[name])
    assert done.returncode == 0, done.stderr[-3000:]


def test_too_late():
    done = run("import onnxruntime, ortmodule; ortmodule.as_onnxruntime()")
    assert "was imported already" in done.stderr


ALONE = """
import importlib
from importlib.machinery import PathFinder
found = PathFinder.find_spec
PathFinder.find_spec = classmethod(
    lambda cls, name, *more: None if name == "onnxruntime" else found(name, *more))
import numpy as np, os, pickle, importlib.util
import ortmodule
assert ortmodule.as_onnxruntime() is ortmodule.as_onnxruntime()
import onnxruntime
from onnxruntime import *
from onnxruntime.capi.onnxruntime_pybind11_state import (
    EPFail, EngineError, Fail, InvalidArgument, InvalidGraph, InvalidProtobuf, ModelLoaded, NoModel,
    NoSuchFile, NotFound, NotImplemented, RuntimeException)
assert os.path.exists(onnxruntime.__file__) and importlib.util.find_spec("onnxruntime.capi")
assert isinstance(pickle.loads(pickle.dumps(NoSuchFile("a"))), NoSuchFile)
for name in ("quantization", "tools", "no_such"):
    try:
        importlib.import_module(f"onnxruntime.{name}")
    except ModuleNotFoundError:
        continue
    raise AssertionError(name)
try:
    onnxruntime.InferenceSession("/no/such/file.onnx")
except NoSuchFile as error:
    print(error)
"""


def test_where_no_onnxruntime_is_installed():
    done = run(ALONE)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "/no/such/file.onnx" in done.stdout


def test_twice_is_once():
    done = run("import ortmodule as o\nassert o.as_onnxruntime() is o.as_onnxruntime()")
    assert done.returncode == 0, done.stderr
