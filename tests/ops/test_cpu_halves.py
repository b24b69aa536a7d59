"""The op table in bfloat16 and float16 on the cpu provider, casts around what it runs in float32
alone: against torch in float64, no worse than twice eager's own error plus a unit of the result."""

import numpy as np
import pytest
import torch

from . import engine
from .engine import C
from .test_ops import CASES, DIFFERENTIABLE, through

UNIT = {"bfloat16": 2.0**-7, "float16": 2.0**-10}


def halved(item, array):
    """The input as eager takes it: under test a half."""
    tensor = engine.wide(item, array)
    return tensor.to(getattr(torch, array.dtype.name)) if engine.under_test(item) else tensor


def eager(case, given, ways=None, dy=None) -> list:
    """What torch makes of the halves: results, or gradients; nothing where it has no kernel."""
    inputs = [halved(item, array) for item, array in zip(case.sample.inputs, given, strict=True)]
    leaves = [inputs[k].requires_grad_() for k in engine.wrt(case.op, case.sample)]
    try:
        outputs = engine.as_tuple(case.op.reference(*inputs, **case.sample.attrs))
        if dy is None:
            return [y.detach() for y in outputs]
        pairs = [(outputs[k], d) for k, d in zip(ways, dy, strict=True) if outputs[k].requires_grad]
        ys, ds = zip(*pairs, strict=True)
        ds = [engine.tensor(d).to(y.dtype) for y, d in zip(ys, ds, strict=True)]
        return list(torch.autograd.grad(ys, leaves, ds, allow_unused=True))
    except (RuntimeError, NotImplementedError, ValueError):
        return []


def assert_as_good(got, want, theirs, dtype, what):
    """In the largest difference over the tensor; what is not finite is equal."""
    got, want = np.asarray(got), want.numpy()
    if got.dtype.name not in UNIT:  # indices, truths, statistics in float32
        close = 1e-6 * (got.dtype == np.float32)
        np.testing.assert_allclose(got, want, rtol=10 * close, atol=close, err_msg=what)
        return
    with np.errstate(all="ignore"):
        wide, want = got.astype(np.float64), want.astype(got.dtype).astype(np.float64)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(wide[~finite], want[~finite], err_msg=what)
    if not finite.any():
        return
    size = np.abs(want[finite]).max()
    bound = UNIT[dtype] * max(size, 2.0**-14)
    if theirs is not None:
        error = np.abs(theirs.double().numpy() - want)[finite]
        bound += 2 * np.nan_to_num(error, posinf=0).max()
    worst = np.abs(wide - want)[finite].max()
    assert worst <= bound, f"{what}: off by {worst}, {bound} is allowed, of {size}"


def ran(case, graph, feed):
    try:
        return C.evaluate(graph, feed, ["cpu"])
    except C.Error as error:
        if "no provider runs it" in str(error):
            return None
        raise


def check_values(case, dtype):
    given = engine.arrays(case.sample, dtype)
    graph, feed = engine.graph_of(case.op, case.sample, dtype)
    got = ran(case, graph, feed)
    if got is None:
        pytest.skip("not in float32 either")
    want = engine.expected(case.op, case.sample, given)
    theirs = eager(case, given) or [None] * len(want)
    for k, (y, w, t) in enumerate(zip(got, want, theirs, strict=True)):
        assert y.dtype.name == graph.outputs[k].dtype
        assert_as_good(y, w, t, dtype, f"output {k} in {dtype}")


def check_gradients(case, dtype):
    given = engine.arrays(case.sample, dtype)
    graph, feed = engine.graph_of(case.op, case.sample, dtype)
    ways, inputs = through(case, graph), engine.wrt(case.op, case.sample)
    if not ways:
        return
    joint, places = engine.joint(graph, inputs, ways)
    noise = np.random.default_rng(7)
    shapes = [y.shape for y in engine.expected(case.op, case.sample, given)]
    dy = [
        np.asarray(noise.standard_normal(shapes[k])).astype(engine.numpy_dtype(dtype)) for k in ways
    ]
    feed = feed | {f"d_y{k}": d for k, d in zip(ways, dy, strict=True)}
    got = ran(case, joint, {name: feed[name] for name in joint.input_names})
    if got is None:
        return
    want = engine.gradients(case.op, case.sample, given, ways, dy)
    theirs = eager(case, given, ways, dy) or [None] * len(want)
    for k, w, t in zip(inputs, want, theirs, strict=True):
        if w is not None and f"d_x{k}" in places:
            assert_as_good(got[places[f"d_x{k}"]], w, t, dtype, f"gradient of x{k} in {dtype}")


HALVES = [c for c in CASES if engine.depends_on_dtype(c.sample) and set(UNIT) <= set(c.op.dtypes)]


@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.parametrize("case", HALVES, ids=str)
def test_half(case, dtype):
    check_values(case, dtype)
    if case in DIFFERENTIABLE:
        check_gradients(case, dtype)
