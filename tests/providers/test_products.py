"""Products and convolutions in halves and float64, against a float64 oracle and eager's error."""

import os
import pathlib
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ortmodule import _native

C = _native.core()
NUMPY = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float64": np.float64}
# Of float64 the oracle is eager: both have roundings, in orders of their own.
EPS = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float64": 2.0**-49}
SHAPES = [  # a, b
    ((1, 1), (1, 1)),
    ((7, 5), (5, 3)),
    ((97, 300), (300, 130)),
    ((5,), (5, 4)),
    ((130, 257), (257, 1600)),
    ((3, 33, 20), (3, 20, 17)),
    ((2, 1, 8, 16), (3, 16, 9)),
    ((4, 6, 32), (32, 10)),
    ((0, 4), (4, 3)),
    ((2, 0), (0, 3)),
]


def tensor(rng, shape, dtype):
    return rng.standard_normal(shape).astype(NUMPY[dtype])


def as_torch(array, dtype):
    return torch.from_numpy(array.astype(np.float64)).to(getattr(torch, dtype))


def run(text, feed):
    return C.Compiled(C.parse(text), ["cpu"]).run(feed)[0]


def text_of(op, dtype, shapes, attrs="", out="y"):
    names = ["%x", "%w", "%b"][: len(shapes)]
    ports = ", ".join(f"{n}: {dtype}{list(s)} user" for n, s in zip(names, shapes, strict=True))
    return f'graph ({ports})\n  %9 = {op}({", ".join(names)}) {attrs}\nreturn ("{out}" = %9)'


def assert_no_worse(got, eager, exact, dtype):
    """At most twice eager's own error, and an ulp at the result's scale."""
    got, eager = np.asarray(got, np.float64), eager.double().numpy()
    scale = np.abs(exact).max(initial=0)
    allowed = 2 * np.abs(eager - exact).max(initial=0) + EPS[dtype] * scale
    assert got.shape == exact.shape
    assert np.abs(got - exact).max(initial=0) <= allowed


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_matmul(shapes, dtype):
    rng = np.random.default_rng(0)
    x, w = (tensor(rng, shape, dtype) for shape in shapes)
    got = run(text_of("MatMul", dtype, shapes), {"x": x, "w": w})
    assert got.dtype == NUMPY[dtype]
    exact = x.astype(np.float64) @ w.astype(np.float64)
    assert_no_worse(got, as_torch(x, dtype) @ as_torch(w, dtype), exact, dtype)


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("bias", [(10,), (6, 10), (1,), (4, 1, 10)], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_a_product_with_bias_and_scale(bias, transposed, dtype):
    rng = np.random.default_rng(1)
    shapes = ((4, 6, 32), (10, 32) if transposed else (32, 10), bias)
    x, w, b = (tensor(rng, shape, dtype) for shape in shapes)
    attrs = f"{{trans_b={int(transposed)}, alpha=0.375}}"
    got = run(text_of("ort::MatMul", dtype, shapes, attrs), {"x": x, "w": w, "b": b})
    right = w.T if transposed else w
    exact = 0.375 * (x.astype(np.float64) @ right.astype(np.float64)) + b.astype(np.float64)
    eager = 0.375 * (as_torch(x, dtype) @ as_torch(right, dtype)) + as_torch(b, dtype)
    assert_no_worse(got, eager, exact, dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sums_of_halves_are_written_as_float32(dtype):
    rng = np.random.default_rng(4)
    shapes = ((40, 30), (40, 20))
    x, w = (tensor(rng, shape, dtype) for shape in shapes)
    got = run(text_of("ort::MatMul", dtype, shapes, "{trans_a=1, to=1}"), {"x": x, "w": w})
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, x.astype(np.float64).T @ w.astype(np.float64), 1e-5, 1e-5)
    shapes = ((2, 6, 8, 8), (2, 4, 8, 8))
    dy, x = (tensor(rng, shape, dtype) for shape in shapes)
    attrs = "{pads=[1, 1, 1, 1], kernel_shape=[3, 3], dims=dims[6, 4, 3, 3], to=1}"
    got = run(text_of("ort::ConvGradW", dtype, shapes, attrs), {"x": dy, "w": x})
    assert got.dtype == np.float32
    exact = torch.nn.grad.conv2d_weight(
        as_torch(x, "float64"), (6, 4, 3, 3), as_torch(dy, "float64"), padding=1
    )
    np.testing.assert_allclose(got, exact, 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "tanh", "silu"])
def test_linear_with_an_activation(activation, dtype):
    rng = np.random.default_rng(2)
    shapes = ((5, 3, 24), (40, 24), (40,))
    x, w, b = (tensor(rng, shape, dtype) for shape in shapes)
    text = text_of("ort::Linear", dtype, shapes, f'{{activation="{activation}"}}')
    got = run(text, {"x": x, "w": w, "b": b})
    act = getattr(F, activation, lambda y: y)
    exact = act(F.linear(*(as_torch(t, "float64") for t in (x, w, b)))).numpy()
    eager = act(F.linear(*(as_torch(t, dtype) for t in (x, w, b))))
    assert_no_worse(got, eager, exact, dtype)


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("group", [1, 4])
def test_convolutions_and_their_gradients(group, dtype):
    rng = np.random.default_rng(3)
    x_shape, w_shape, y_shape = (2, 8, 9, 7), (12, 8 // group, 3, 3), (2, 12, 9, 7)
    x, w, dy = (tensor(rng, s, dtype) for s in (x_shape, w_shape, y_shape))
    attrs = f"group={group}, pads=[1, 1, 1, 1], strides=[1, 1], dilations=[1, 1]"

    def gradients(kind):
        tx, tw = (as_torch(t, kind).requires_grad_() for t in (x, w))
        y = F.conv2d(tx, tw, padding=1, groups=group)
        return [y.detach(), *torch.autograd.grad(y, (tx, tw), as_torch(dy, kind))]

    exact, eager = gradients("float64"), gradients(dtype)
    got = [run(text_of("Conv", dtype, (x_shape, w_shape), f"{{{attrs}}}"), {"x": x, "w": w})]
    for op, other, sizes in (("X", w, x_shape), ("W", x, w_shape)):
        shapes, sized = (y_shape, other.shape), f"{{{attrs}, dims=dims{list(sizes)}}}"
        text = text_of(f"ort::ConvGrad{op}", dtype, shapes, sized)
        got.append(run(text, {"x": dy, "w": other}))
    for ours, theirs, oracle in zip(got, eager, exact, strict=True):
        assert_no_worse(ours, theirs, oracle.numpy(), dtype)


@pytest.mark.parametrize("isa", ["DEFAULT", "AVX512_CORE", "AVX2", "SSE41"])
def test_onednns_reference_and_its_gemm_are_never_run(isa):
    """Of all that the tests above run, by its own log, on what older CPUs have too. The one is a
    hundred times slower, a signal during the other writes to the heap."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-s", __file__]
    command += ["-k", "matmul or bias or linear or convolutions"]
    told = {"ONEDNN_VERBOSE": "1", "ONEDNN_MAX_CPU_ISA": isa}
    run = subprocess.run(command, capture_output=True, text=True, env=os.environ | told)
    # torch's own oneDNN, which eager runs beside ours, writes "primitive,exec".
    mark = "onednn_verbose,exec,cpu,"
    lines = [line.partition(mark)[2].split(",") for line in run.stdout.splitlines() if mark in line]
    names = {(parts[0], parts[1]) for parts in lines}
    kinds = {kind for kind, _ in names}
    # With SSE4.1 alone its convolutions are by its gemm.
    assert run.returncode == 0 and ("convolution" in kinds) == (isa != "SSE41"), run.stdout[-2000:]
    shunned = [n for n in names if n[1].startswith(("ref", "simple")) or "gemm" in f"{n}"]
    assert not shunned, shunned
    if isa == "DEFAULT" and "avx512_bf16" in pathlib.Path("/proc/cpuinfo").read_text():
        assert any("bf16" in name for _, name in names), names


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "tanh", "sigmoid", "silu"])
def test_an_activation_of_halves_keeps_nans_and_infinities(activation, dtype):
    """oneDNN's maxima lose a NaN, its gelu makes one of an infinity: the kernel notices both."""
    functions = {
        "silu": F.silu, "gelu": F.gelu, "gelu_tanh": lambda s: F.gelu(s, approximate="tanh")
    }  # fmt: skip
    function = functions.get(activation) or getattr(torch, activation)
    graph = C.parse(f"""graph (%x: {dtype}[6, 32] user, %w: {dtype}[32, 32] user)
  %y = ort::Linear(%x, %w, _) {{activation="{activation}"}}
return ("y" = %y)
""")
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((6, 32)), np.eye(32)
    w[:, :3] = 1.0  # whole rows of what is special
    for special in (False, True):
        if special:
            x[0, 0], x[1, 1], x[2, 2] = np.nan, np.inf, -np.inf
        feed = {"x": x.astype(NUMPY[dtype]), "w": w.astype(NUMPY[dtype])}
        ours = C.evaluate(graph, feed, ["cpu"])[0].astype(np.float64)
        exact = torch.from_numpy(feed["x"].astype(float)) @ torch.from_numpy(w.T)
        np.testing.assert_allclose(ours, function(exact).numpy(), rtol=4e-2, atol=4e-2)
