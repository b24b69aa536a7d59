"""Operands that are loaded 16 bytes at once: the same results as on cpu, whatever rows are long."""

import cuda_double
import ml_dtypes
import numpy as np
import pytest

from ortmodule import _native

C = _native.core()
DTYPES = {"float32": np.float32, "float64": np.float64, "float16": np.float16,
          "bfloat16": ml_dtypes.bfloat16}  # fmt: skip
CLOSE = {"float32": 2e-5, "float64": 1e-12, "float16": 5e-3, "bfloat16": 4e-2}
# What reads a row twice and a scale of each column; rows that are strided; sums over rows.
GRAPHS = {
    "softmax": (["x"], "  %y = Softmax(%x)\n"),
    "norm": (["x", "b", "c"], "  %y = LayerNormalization(%x, %b, %c)\n"),
    "norm_grad": (
        ["x", "b", "g"],
        "  %last = Constant() {value=int64[1]{-1}}\n  %rest = Constant() {value=int64[2]{0, 1}}\n"
        "  %m = ReduceMean(%x, %last)\n  %d = Sub(%x, %m)\n  %s = Mul(%d, %g)\n"
        "  %db = ReduceSum(%s, %rest) {keepdims=0}\n  %dc = ReduceSum(%g, %rest) {keepdims=0}\n"
        "  %p = Mul(%s, %b)\n  %q = ReduceSum(%p, %last)\n  %dx = Sub(%p, %q)\n",
    ),
    "scaled": (["x", "b", "c"], "  %s = Mul(%x, %b)\n  %a = Add(%s, %c)\n  %y = Tanh(%a)\n"),
    "repeated": (["x", "t"], "  %a = Add(%x, %t)\n  %y = Softmax(%a)\n"),
    "repeated_flat": (["x", "t"], "  %a = Add(%x, %t)\n  %y = Sigmoid(%a)\n"),
}


@pytest.fixture(autouse=True)
def double():
    cuda_double.use()
    cuda_double.far.schedule(0)


def sizes_of(cols: int) -> dict:
    return {"x": (2, 9, cols), "g": (2, 9, cols), "t": (2, 1, cols), "b": (cols,), "c": (cols,)}


def feed_of(name: str, dtype: str, cols: int) -> dict:
    draw, sizes = np.random.default_rng(7), sizes_of(cols)
    return {n: draw.standard_normal(sizes[n]).astype(DTYPES[dtype]) for n in GRAPHS[name][0]}


def graph_of(name: str, dtype: str, cols: int):
    names, body = GRAPHS[name]
    ports = ", ".join(f"%{n}: {dtype}{list(sizes_of(cols)[n])} user" for n in names)
    results = "dx, db, dc" if name == "norm_grad" else "y"
    outputs = ", ".join(f'"{n}" = %{n}' for n in results.split(", "))
    return C.parse(f"graph ({ports})\n{body}return ({outputs})\n")


def run(name: str, dtype: str, cols: int, provider: str) -> list[np.ndarray]:
    compiled = C.Compiled(graph_of(name, dtype, cols), [provider])
    return [np.asarray(y) for y in compiled.run(feed_of(name, dtype, cols))]


@pytest.mark.parametrize("cols", [124, 128, 130, 256, 264, 768, 1028, 8192, 16392])
@pytest.mark.parametrize("name, dtype", [(n, "float32") for n in GRAPHS] + [
    ("norm", "bfloat16"), ("norm_grad", "float16"), ("softmax", "float64")])  # fmt: skip
def test_results_are_those_of_cpu(name, dtype, cols):
    before = cuda_double.launches("packs")
    found = run(name, dtype, cols, "cuda")
    lanes = {"float64": 2, "float32": 4}.get(dtype, 8)
    long = cols >= 32 * lanes or name in ("scaled", "repeated_flat")
    assert (cuda_double.launches("packs") > before) == (long and cols % lanes == 0)
    for y, want in zip(found, run(name, dtype, cols, "cpu"), strict=True):
        scale = np.abs(want.astype(np.float64)).max()
        assert np.abs(y.astype(np.float64) - want.astype(np.float64)).max() <= CLOSE[dtype] * scale
