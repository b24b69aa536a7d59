"""Integer products with the instructions that a processor has: without VNNI pairs of products
saturate in 16 bits."""

import os
import subprocess
import sys

import pytest

SUMS = """
import numpy as np
from onnx import TensorProto as T, helper

from ortmodule import InferenceSession

numbers = np.random.default_rng(0)


def made(shape, dtype, least, most):
    yield numbers.integers(least, most + 1, shape).astype(dtype)
    yield np.full(shape, most, dtype)
    yield np.full(shape, least, dtype)


def run(op, a, b, shape):
    ports = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
             for n, x in (("a", a), ("b", b))]
    y = helper.make_tensor_value_info("y", T.INT32, shape)
    graph = helper.make_graph([helper.make_node(op, ["a", "b"], ["y"])], "g", ports, [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return InferenceSession(model.SerializeToString()).run(None, {"a": a, "b": b})[0]


for left, least, most in (("uint8", 0, 255), ("int8", -128, 127)):
    for k in (64, 514, 515, 4608):
        for a in made((3, k), left, least, most):
            for b in made((k, 16), "int8", -128, 127):
                want = a.astype(np.int64) @ b.astype(np.int64)
                assert (run("MatMulInteger", a, b, want.shape) == want).all(), (left, k)
    for x in made((1, 64, 4, 4), left, least, most):
        for w in made((32, 64, 3, 3), "int8", -128, 127):
            windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int64), (3, 3), (2, 3))
            want = np.einsum("nchwij,ocij->nohw", windows, w.astype(np.int64))
            assert (run("ConvInteger", x, w, want.shape) == want).all(), left
"""


@pytest.mark.parametrize("isa", ["SSE41", "AVX2", "AVX512_CORE", "ALL"])
def test_sums_are_exact(isa):
    told = os.environ | {"ONEDNN_MAX_CPU_ISA": isa}
    subprocess.run([sys.executable, "-c", SUMS], env=told, check=True, timeout=300)
