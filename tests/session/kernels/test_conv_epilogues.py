"""Convolutions with a sum and an activation in one step: float64 of torch, NaNs and infinities."""

import os
import pathlib
import subprocess
import sys

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from ortmodule import InferenceSession

BOUNDS = (("low", 0), ("high", 3))
DTYPES = {
    "float32": (np.float32, TensorProto.FLOAT, 2e-4),
    "float64": (np.float64, TensorProto.DOUBLE, 1e-9),
    "float16": (np.float16, TensorProto.FLOAT16, 2e-2),
    "bfloat16": (ml_dtypes.bfloat16, TensorProto.BFLOAT16, 1e-1),
}


def node(op, inputs, output, **attrs):
    return helper.make_node(op, inputs.split(), [output], **attrs)


# What comes after: nodes from "s" to "y", and torch's function.
ACTIVATIONS = {
    "none": ([node("Identity", "s", "y")], lambda s: s),
    "relu": ([node("Relu", "s", "y")], torch.relu),
    "clip": ([node("Clip", "s low high", "y")], lambda s: s.clamp(0, 3)),
    "tanh": ([node("Tanh", "s", "y")], torch.tanh),
    "sigmoid": ([node("Sigmoid", "s", "y")], torch.sigmoid),
    "silu": ([node("Sigmoid", "s", "g"), node("Mul", "s g", "y")], F.silu),
    "hard_swish": ([node("HardSwish", "s", "y")], F.hardswish),
    "hard_sigmoid": (
        [node("HardSigmoid", "s", "y", alpha=0.25, beta=0.5)],
        lambda s: (s / 4 + 0.5).clamp(0, 1),
    ),
    "leaky_relu": ([node("LeakyRelu", "s", "y", alpha=0.125)], lambda s: F.leaky_relu(s, 0.125)),
    "no_slope": ([node("LeakyRelu", "s", "y", alpha=0.0)], lambda s: torch.where(s > 0, s, 0 * s)),
    "gelu": ([node("Gelu", "s", "y")], F.gelu),
    "gelu_tanh": (
        [node("Gelu", "s", "y", approximate="tanh")],
        lambda s: F.gelu(s, approximate="tanh"),
    ),
}
# x, w and attributes: kernels of oneDNN's for one and three axes, depthwise, one by one; what it
# has none for, and what has nothing to sum.
CASES = {
    "one axis": ((2, 3, 9), (4, 3, 3), {}),
    "three axes": ((1, 16, 4, 5, 6), (32, 16, 3, 3, 3), {"pads": [1] * 6}),
    "few channels": ((2, 3, 9, 7), (4, 3, 3, 2), {"strides": [2, 1], "pads": [1, 0, 1, 0]}),
    "a column": ((2, 16, 20, 1), (32, 16, 5, 1), {"pads": [2, 0, 2, 0]}),
    "groups": ((2, 4, 7, 7), (6, 2, 3, 3), {"group": 2, "pads": [1] * 4}),
    "depthwise": ((2, 16, 7, 7), (16, 1, 3, 3), {"group": 16, "strides": [2, 2], "pads": [1] * 4}),
    "one by one": ((2, 32, 6, 6), (48, 32, 1, 1), {}),
    "three by three": ((2, 32, 6, 6), (48, 32, 3, 3), {"pads": [1] * 4}),
    "dilated": ((1, 17, 30), (19, 17, 5), {"dilations": [2]}),
    "beyond its image": ((1, 3, 2, 2), (4, 3, 5, 5), {"pads": [2] * 4}),
}


def exact(x, w, b, z, attrs, activation):
    n = x.ndim - 2
    given = (None if v is None else v.astype(np.float64) for v in (x, w, b, z))
    x, w, b, z = (None if v is None else torch.from_numpy(v) for v in given)
    conv = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[n]
    pads, strides = attrs.get("pads", [0] * n)[:n], attrs.get("strides", [1] * n)
    y = conv(x, w, b, strides, pads, attrs.get("dilations", [1] * n), attrs.get("group", 1))
    return ACTIVATIONS[activation][1](y if z is None else y + z).numpy()


def model(arrays, constants, attrs, activation, kind):
    """Inputs are those of `arrays` that are no `constants`."""
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], **attrs)]
    nodes.append(node("Add", "z c", "s") if "z" in arrays else node("Identity", "c", "s"))
    ports = [
        helper.make_tensor_value_info(name, kind, array.shape)
        for name, array in arrays.items()
        if name not in constants
    ]
    tensors = [numpy_helper.from_array(arrays[name], name) for name in constants]
    dtype = arrays["x"].dtype
    tensors += [numpy_helper.from_array(np.asarray(v, dtype), n) for n, v in BOUNDS]
    out = helper.make_tensor_value_info("y", kind, None)
    graph = helper.make_graph([*nodes, *ACTIVATIONS[activation][0]], "g", ports, [out], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def arrays_of(case, dtype, special, rng):
    x, w, attrs = CASES[case]
    x, w = rng.standard_normal(x), rng.standard_normal(w) / np.sqrt(np.prod(w[1:]))
    b = rng.standard_normal(len(w))
    shape = exact(x, w, b, None, attrs, "none").shape
    z = rng.standard_normal(shape)
    if special:
        x.flat[3], x.flat[-1], x.flat[x.size // 2] = np.nan, np.inf, -np.inf
        for number in (np.nan, np.inf, -np.inf):
            z[rng.random(shape) < 0.1] = number
    return {name: v.astype(dtype) for name, v in (("x", x), ("w", w), ("b", b), ("z", z))}


def check(case, activation, kind="float32", summed=True, constants=("w", "b"), special=True):
    dtype, port, tolerance = DTYPES[kind]
    arrays = arrays_of(case, dtype, special, np.random.default_rng(len(case)))
    if not summed:
        del arrays["z"]
    attrs = CASES[case][2]
    made = model(arrays, constants, attrs, activation, port)
    session = InferenceSession(made.SerializeToString())
    feed = {name: array for name, array in arrays.items() if name not in constants}
    want = exact(*(arrays.get(name) for name in "xwbz"), attrs, activation)
    for _ in range(2):
        y = session.run(None, feed)[0].astype(np.float64)
        np.testing.assert_allclose(y, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("case", CASES)
def test_values(case, activation):
    for summed in (True, False):
        for constants in (("w", "b"), ()):
            for special in (False, True):
                check(case, activation, "float32", summed, constants, special)


@pytest.mark.parametrize("kind", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_other_dtypes(activation, kind):
    for case in ("three by three", "depthwise", "beyond its image"):
        for special in (False, True):
            check(case, activation, kind, True, ("w", "b"), special)


def test_what_is_added_is_a_constant():
    check("one by one", "relu", constants=("w", "b", "z"))


def check_nan_anywhere(activation):
    """One NaN at a place that each run draws: whichever thread meets it."""
    rng = np.random.default_rng(0)
    arrays, attrs = arrays_of("three by three", np.float32, False, rng), CASES["three by three"][2]
    made = model(arrays, ("w", "b"), attrs, activation, TensorProto.FLOAT)
    session = InferenceSession(made.SerializeToString())
    for run in range(60):
        x = rng.standard_normal(arrays["x"].shape).astype(np.float32)
        if run % 3:
            x.flat[rng.integers(x.size)] = np.nan
        y = session.run(None, {"x": x, "z": arrays["z"]})[0]
        want = exact(x, *(arrays[name] for name in "wbz"), attrs, activation)
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)


ISAS = [("DEFAULT", 1), ("DEFAULT", 3), ("AVX2", 1), ("SSE41", 1)]


@pytest.mark.parametrize("isa, threads", ISAS)
def test_other_processors_and_threads(isa, threads):
    """Kernels of one thread notice a NaN that they lose, by the instructions of each processor."""
    told = {"ONEDNN_MAX_CPU_ISA": isa, "OMP_NUM_THREADS": str(threads)}
    code = (
        "from test_conv_epilogues import *\n"
        "for a in ACTIVATIONS:\n  for c in CASES: check(c, a)\n"
        "for a in ('relu', 'clip', 'gelu'): check_nan_anywhere(a)"
    )
    folder = pathlib.Path(__file__).parent
    env = os.environ | {"OMP_WAIT_POLICY": "passive"} | told
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_batch_norm_of_constants():
    rng = np.random.default_rng(0)
    weights = {"w": (8, 4, 3, 3), "scale": (8,), "bias": (8,), "mean": (8,), "var": (8,)}
    tensors = [
        numpy_helper.from_array(abs(rng.standard_normal(shape)).astype(np.float32), name)
        for name, shape in weights.items()
    ]
    nodes = [
        node("Conv", "x w", "c", pads=[1] * 4),
        node("BatchNormalization", "c scale bias mean var", "n", epsilon=1e-3),
        node("Add", "n z", "s"),
        node("Relu", "s", "y"),
    ]
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4, 6, 6]),
        helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 8, 6, 6]),
    ]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8, 6, 6])
    made = helper.make_model(
        helper.make_graph(nodes, "g", ports, [out], tensors),
        opset_imports=[helper.make_opsetid("", 22)],
        ir_version=10,
    )
    onnx.checker.check_model(made)
    feed = {
        "x": rng.standard_normal((2, 4, 6, 6)).astype(np.float32),
        "z": rng.standard_normal((2, 8, 6, 6)).astype(np.float32),
    }
    ours = InferenceSession(made.SerializeToString()).run(None, feed)[0]
    want = ReferenceEvaluator(made).run(None, feed)[0]
    np.testing.assert_allclose(ours, want, rtol=1e-4, atol=1e-5)
