"""The op table on the provider cuda, over the double of tests/cuda: every case that it takes."""

import cuda_double
import pytest

from . import engine
from .test_halves import check_values, in_turn
from .test_ops import CASES, DIFFERENTIABLE, assert_close, check_gradients, run

DTYPES = ["float32", "float64"]


@pytest.fixture(autouse=True)
def double():
    cuda_double.use()
    cuda_double.far.schedule(0)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_value(case):
    """Against torch in float64; sizes as symbols."""
    for dtype in DTYPES if engine.depends_on_dtype(case.sample) else ["float64"]:
        want = engine.expected(case.op, case.sample, engine.arrays(case.sample, dtype))
        graph, feed = engine.graph_of(case.op, case.sample, dtype, case.sample.symbolic)
        for k, (y, w) in enumerate(zip(run(graph, feed, "cuda"), want, strict=True)):
            assert y.dtype.name == graph.outputs[k].dtype
            assert_close(y, w, case, dtype, f"output {k} in {dtype}")


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=str)
def test_gradient(case):
    """Against torch's autograd in float64."""
    check_gradients(case, "cuda", "float32")


@in_turn
def test_half(case, dtype):
    """No worse than twice eager's own error plus a unit of the result."""
    check_values(case, dtype, "cuda")
