"""Files are written at the lowest opset that says the same, and onnxruntime runs them."""

import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest

from ortmodule import InferenceSession
from ortmodule._native import core

from . import models, test_old_opsets
from .test_onnx import text_of

C = core()


def test_the_table_is_onnxs(root):
    code = "import onnx_versions as v; assert v.PAGE.read_text() == v.page()"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root / "tools", capture_output=True, text=True
    )
    assert done.returncode == 0, f"{done.stderr[-2000:]}\nrun: python tools/onnx_versions.py"


def rewritten(made, folder):
    onnx.save(made, folder / "first.onnx")
    C.write_onnx(C.read_onnx(str(folder / "first.onnx")), str(folder / "second.onnx"))
    C.write_onnx(C.read_onnx(str(folder / "second.onnx")), str(folder / "third.onnx"))
    assert text_of(folder / "third.onnx") == text_of(folder / "second.onnx")
    written = onnx.load(folder / "second.onnx")
    onnx.checker.check_model(written, full_check=True)
    return written


def opset(made):
    return next(o.version for o in made.opset_import if not o.domain)


def by_onnxruntime(made, feed):
    onnxruntime.set_default_logger_severity(4)
    made.ir_version = 10
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, feed)


@pytest.mark.parametrize("make", models.ALL, ids=lambda make: make.__name__)
def test_models(make, tmp_path):
    made, feed = make()
    written = rewritten(made, tmp_path)
    assert opset(written) <= max(opset(made), 18)
    ours = InferenceSession(made.SerializeToString()).run(None, feed)
    for got, want in zip(by_onnxruntime(written, feed), ours, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", test_old_opsets.SAME)
def test_what_was_read_from_older_ones(name, tmp_path):
    version, nodes, feed, constants = test_old_opsets.SAME[name]
    made = test_old_opsets.made(version, nodes, feed, nodes[0].output, constants)
    for port in made.graph.output[1:]:
        if name == "top k":
            port.type.tensor_type.elem_type = onnx.TensorProto.INT64
    written = rewritten(made, tmp_path)
    ours = InferenceSession(made.SerializeToString()).run(None, feed)
    for got, want in zip(by_onnxruntime(written, feed), ours, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


BODY = "<then_branch = t () => (float[n] a) {{ a = {0} (x) }}, else_branch = e () => (float[n] b) {{ b = Neg (x) }}>"  # noqa: E501
X = "(float[n] x) => (float[m] y)"
LOWEST = {
    "y = Relu (x)": (X, 7),
    "y = Clip (x)": (X, 12),
    "y = Gelu (x)": (X, 20),
    "y = Softmax <axis = 0> (x)": (X, 13),
    "y = Neg (x)": ("(bfloat16[n] x) => (bfloat16[n] y)", 13),
    "y = Add (x, x)": ("(int8[n] x) => (int8[n] y)", 14),
    "y = ReduceMax (x)": (X, 18),
    "s = Constant <value_ints = [-1]> () y = Reshape (x, s)": (X, 7),
    "s = Constant <value_ints = [-1]> () y = Reshape <allowzero = 1> (x, s)": (X, 14),
    "s = Constant <value_ints = [1, 1]> () y = Pad (x, s)": (X, 11),
    'y = Cast <to = 17> (x)': ("(float[n] x) => (float8e4m3fn[n] y)", 19),
    'y = Cast <to = 17, saturate = 0> (x)': ("(float[n] x) => (float8e4m3fn[n] y)", 19),
    'y = Cast <to = 7> (x)': ("(float[n] x) => (int64[n] y)", 9),
    "y = Shape (x)": ("(float[n] x) => (int64[k] y)", 13),
    "y = Shape <start = -1> (x)": ("(float[n] x) => (int64[k] y)", 15),
    "y = BatchNormalization (x, s, s, s, s)": (
        "(float[2, 3, 4] x, float[3] s) => (float[2, 3, 4] y)", 15),
    "y = SpaceToDepth <blocksize = 2> (x)": ("(float[1, 1, 4, 4] x) => (float[1, 4, 2, 2] y)", 13),
    'y = SpaceToDepth <blocksize = 2, mode = "CRD"> (x)': (
        "(float[1, 1, 4, 4] x) => (float[1, 4, 2, 2] y)", 28),
    "y = AveragePool <kernel_shape = [2]> (x)": ("(float[1, 1, 4] x) => (float[1, 1, k] y)", 7),
    "y = AveragePool <kernel_shape = [2], dilations = [2]> (x)": (
        "(float[1, 1, 4] x) => (float[1, 1, k] y)", 19),
    "y = AveragePool <kernel_shape = [2], ceil_mode = 1> (x)": (
        "(float[1, 1, 4] x) => (float[1, 1, k] y)", 19),
    "y = Flatten <axis = -1> (x)": ("(float[2, 3] x) => (float[2, 3] y)", 11),
    "y = ScatterElements (x, i, x)": ("(float[n] x, int64[n] i) => (float[n] y)", 11),
    'y = ScatterElements <reduction = "add"> (x, i, x)': (
        "(float[n] x, int64[n] i) => (float[n] y)", 16),
    'y = ScatterElements <reduction = "max"> (x, i, x)': (
        "(float[n] x, int64[n] i) => (float[n] y)", 18),
    "y = If (c) " + BODY.format("Abs"): ("(bool c, float[n] x) => (float[m] y)", 7),
    "y = If (c) " + BODY.format("Mish"): ("(bool c, float[n] x) => (float[m] y)", 18),
    "y = SequenceConstruct (x, x)": ("(float[n] x) => (seq(float[n]) y)", 11),
    "y = Identity (x)": ("(seq(float[n]) x) => (seq(float[n]) y)", 14),
}  # fmt: skip


@pytest.mark.parametrize("text", LOWEST)
def test_lowest(text, tmp_path):
    ports, version = LOWEST[text]
    made = onnx.parser.parse_model(
        f'<ir_version: 13, opset_import: ["": 28]> g {ports} {{ {text} }}'
    )
    written = rewritten(made, tmp_path)
    assert opset(written) == version
