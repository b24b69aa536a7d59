"""The op table with operands that convolutions made: with channels last where the op's kernel takes
them so, as the convolutions' weights are packed. Blocks: tests/ortmodule/layouts."""

import numpy as np
import pytest

from . import engine
from .engine import C
from .table import Const
from .test_ops import CASES, assert_close, run

RANKS = (3, 4, 5)


def may_be_laid_out(item) -> bool:
    """Of numbers that a convolution by ones leaves as they are."""
    if item is None or isinstance(item, Const) or not engine.under_test(item):
        return False
    return item.ndim in RANKS and item.size > 0 and bool(np.isfinite(item).all())


def ones(channels: int, rank: int):
    """A convolution's weight that leaves x as it is."""
    return np.eye(channels, dtype=np.float32).reshape(channels, channels, *[1] * (rank - 2))


def laid_out(case):
    """The case's graph with each such input through a convolution, and its feed."""
    graph = C.Graph()
    values, feed = engine.inputs_of(graph, case.sample, "float32", engine.by_number)
    for k, item in enumerate(case.sample.inputs):
        if may_be_laid_out(item):
            weight = graph.constant(ones(item.shape[1], item.ndim))
            (values[k],) = graph.emit("Conv", [values[k], weight], {}, 1)
    engine.add_op(graph, case.op, case.sample, values)
    return graph, feed


LAID_OUT = [case for case in CASES if any(map(may_be_laid_out, case.sample.inputs))]


@pytest.mark.parametrize("case", LAID_OUT, ids=str)
def test_value(case):
    """Against torch in float64."""
    want = engine.expected(case.op, case.sample, engine.arrays(case.sample, "float32"))
    graph, feed = laid_out(case)
    for k, (y, w) in enumerate(zip(run(graph, feed, "cpu"), want, strict=True)):
        assert_close(y, w, case, "float32", f"output {k}")


def is_laid_out(case) -> bool:
    graph, feed = laid_out(case)
    try:
        compiled = C.Compiled(graph, ["cpu"])
    except C.Error:  # cpu does not run it
        return False
    compiled.run(feed)
    return bool(compiled.layouts())


def test_operands_lie_otherwise_than_row_major():
    """So the cases above are about something; which kernels do differs between CPUs."""
    assert len({case.op.name for case in LAID_OUT if is_laid_out(case)}) > 20
