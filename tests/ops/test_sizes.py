"""Every op-table sample with a symbol of its own for each axis, then with each axis at 0, 1 and one
more, and with every integer operand out of range: the reference's value, or an error that names the
op and its node. Nothing is read or written outside an operand: CONTRIBUTING.md says how sanitizers
look."""

import dataclasses

import numpy as np
import pytest
import torch

from . import engine
from .engine import C
from .families import TABLE
from .table import Const
from .test_ops import CASES, assert_close

FLOAT = "float32"
EXTREME = (-(2**63), -(2**31), -100, -1, 100, 2**31 - 1, 2**63 - 1)


def free_graph(case):
    """The sample's graph, each axis of each input a symbol of its own; None where a rule asks for
    the sizes themselves, which is an error of the op's own."""
    graph = C.Graph()
    values, feed = engine.inputs_of(graph, case.sample, FLOAT, engine.by_axis)
    try:
        engine.add_op(graph, case.op, case.sample, values)
    except C.Error as error:
        assert f"[{case.op.name}]" in str(error)
        return None, feed
    return graph, feed


def compiled(graph, providers):
    """None where the graph asks for what the providers have not."""
    try:
        return C.Compiled(graph, providers)
    except C.Error as error:
        assert "known only at run time" in str(error) or "no provider runs it" in str(error)
        return None


def resized(array, axis, size):
    """The array with `size` elements along the axis: those it has, again and again."""
    if array.shape[axis] == 0:
        shape = list(array.shape)
        shape[axis] = size
        return np.zeros(shape, array.dtype)
    wider = np.take(array, np.arange(size) % array.shape[axis], axis)
    if wider.dtype == np.float32 and size > array.shape[axis]:
        more = np.moveaxis(wider, axis, 0)[array.shape[axis] :]
        more += np.float32(0.125)  # no ties with what it repeats
    return wider


def variants(case, feed):
    """The feed, then each axis of each input at 0, 1 and one more."""
    yield "as it is", feed
    for name, array in feed.items():
        for axis, size in enumerate(array.shape):
            for other in sorted({0, 1, size + 1} - {size}):
                yield f"{name} axis {axis} at {other}", feed | {name: resized(array, axis, other)}


def reference(case, feed):
    """Torch's values for the feed, or None where it refuses."""
    inputs = list(case.sample.inputs)
    for name, array in feed.items():
        k = int(name[1:])
        inputs[k] = array.astype(np.float64) if engine.under_test(inputs[k]) else array
    sample = dataclasses.replace(case.sample, inputs=tuple(inputs))
    try:
        with np.errstate(all="ignore"):
            return engine.expected(case.op, sample, engine.arrays(sample, FLOAT))
    except Exception:  # torch's own refusals are of many kinds
        return None


def outcome(case, program, feed, what):
    """None where it is refused in the node's name."""
    try:
        return program.run(feed)
    except C.Error as error:
        text = str(error)
        assert "[" in text and "]" in text, f"{what}: {text}"
        return None


def check_variant(case, program, feed, what):
    got = outcome(case, program, feed, what)
    if got is None:
        return 0
    empty = any(array.size == 0 for array in feed.values())
    # A gradient reads what its forward made: other sizes of that have no reference.
    alone = case.op.name.endswith("Grad") and what != "as it is"
    want = None if alone or (empty and case.op.name in OF_NOTHING) else reference(case, feed)
    if want is None or len(want) != len(got):
        return 1  # legal here: torch is stricter, or its stand-in is
    for k, (y, w) in enumerate(zip(got, want, strict=True)):
        assert_close(y, w, case, FLOAT, f"{what}, output {k}")
    return 1


# Without axes, what a Squeeze removes depends on the sizes: its rank is known with numbers alone.
NEVER = {"Squeeze"}
# Of no elements at all the table's stand-ins divide by zero, where the ops keep what they have.
OF_NOTHING = {"ort::BatchNorm", "BatchNormalization", "AveragePool", "ort::AveragePoolGrad"}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_free_sizes(case):
    graph, feed = free_graph(case)
    program = graph and compiled(graph, ["cpu", "reference"])
    if program is None:
        return
    ran = sum(check_variant(case, program, fed, what) for what, fed in variants(case, feed))
    if case.op.name not in NEVER and case.sample.symbolic:
        assert ran > 0 or not feed, "no variant runs"


INDEXED = [
    case
    for case in CASES
    if any(
        item is not None and not isinstance(item, Const) and item.dtype.kind in "iu" and item.size
        for item in case.sample.inputs
    )
]


@pytest.mark.parametrize("provider", ["cpu", "reference"])
@pytest.mark.parametrize("case", INDEXED, ids=str)
def test_integers_out_of_range(case, provider):
    """Whatever stands in an integer operand: a value or an error, on every provider."""
    graph, feed = engine.graph_of(case.op, case.sample, FLOAT)
    program = compiled(graph, [provider])
    if program is None:
        return
    for name, array in feed.items():
        if array.dtype.kind not in "iu" or array.size == 0:
            continue
        info = np.iinfo(array.dtype)
        for extreme in EXTREME:
            wrong = array.copy()
            wrong.flat[-1] = np.clip(extreme, info.min, info.max)
            outcome(case, program, feed | {name: wrong}, f"{name} has {extreme}")


INDEX_OPERANDS = {
    "Gather": 1,
    "GatherElements": 1,
    "GatherND": 1,
    "ScatterElements": 1,
    "ScatterND": 1,
    "ReverseSequence": 1,
    "ort::Embedding": 1,
    "ort::GatherGrad": 1,
    "ort::CrossEntropy": 1,
    "ort::MaxPoolGrad": 1,
}


@pytest.mark.parametrize("provider", ["cpu", "reference"])
@pytest.mark.parametrize("name", INDEX_OPERANDS)
def test_an_index_out_of_range_is_an_error(name, provider):
    op, operand = TABLE[name], INDEX_OPERANDS[name]
    case = next(c for c in CASES if c.op is op and c.sample.inputs[operand].size)
    graph, feed = engine.graph_of(case.op, case.sample, FLOAT)
    program = compiled(graph, [provider])
    if program is None:
        return
    wrong = feed[f"x{operand}"].copy()
    wrong.flat[-1] = 10**6
    with pytest.raises(C.Error, match=r"out of range|is not in 0 to|does not fit"):
        program.run(feed | {f"x{operand}": wrong})
    assert torch.is_tensor(engine.expected(op, case.sample, engine.arrays(case.sample, FLOAT))[0])
