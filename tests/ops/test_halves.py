"""The op table in bfloat16 and float16 on both providers of ours, casts around what runs in float32
alone: against torch in float64, no worse than twice eager's own error plus a unit of the result."""

import numpy as np
import pytest
import torch

from . import engine
from .engine import C
from .test_ops import CASES, DIFFERENTIABLE, each_provider, through

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
    got = np.asarray(got)
    want = (want.double() if want.is_floating_point() else want).numpy()
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


def ran(provider, graph, feed, twin):
    """None where the float32 twin, a graph and its feed, is not run either."""
    try:
        return C.evaluate(graph, feed, [provider])
    except C.Error as error:
        if "no provider runs it" not in str(error):
            raise
        wide, wide_feed = twin()
        with pytest.raises(C.Error, match="no provider runs it"):
            C.evaluate(wide, wide_feed, [provider])
        return None


def check_values(case, dtype, provider):
    given = engine.arrays(case.sample, dtype)
    graph, feed = engine.graph_of(case.op, case.sample, dtype)
    got = ran(provider, graph, feed, lambda: engine.graph_of(case.op, case.sample, "float32"))
    if got is None:
        pytest.skip("not in float32 either")
    want = engine.expected(case.op, case.sample, given)
    theirs = eager(case, given) or [None] * len(want)
    for k, (y, w, t) in enumerate(zip(got, want, theirs, strict=True)):
        assert y.dtype.name == graph.outputs[k].dtype
        assert_as_good(y, w, t, dtype, f"output {k} in {dtype}")


def joint_of(case, dtype, ways):
    """The joint graph, its feed, where its gradients are, and dy."""
    given = engine.arrays(case.sample, dtype)
    graph, feed = engine.graph_of(case.op, case.sample, dtype)
    joint, places = engine.joint(graph, engine.wrt(case.op, case.sample), ways)
    noise = np.random.default_rng(7)
    shapes = [y.shape for y in engine.expected(case.op, case.sample, given)]
    numpy_dtypes = [engine.numpy_dtype(graph.outputs[k].dtype) for k in ways]
    dy = [
        np.asarray(noise.standard_normal(shapes[k])).astype(d)
        for k, d in zip(ways, numpy_dtypes, strict=True)
    ]
    feed = feed | {f"d_y{k}": d for k, d in zip(ways, dy, strict=True)}
    return joint, {name: feed[name] for name in joint.input_names}, places, dy


def check_gradients(case, dtype, provider):
    given = engine.arrays(case.sample, dtype)
    graph, _ = engine.graph_of(case.op, case.sample, dtype)
    ways, inputs = through(case, graph), engine.wrt(case.op, case.sample)
    if not ways:
        return
    joint, feed, places, dy = joint_of(case, dtype, ways)
    got = ran(provider, joint, feed, lambda: joint_of(case, "float32", ways)[:2])
    if got is None:
        return  # its values are skipped too
    want = engine.gradients(case.op, case.sample, given, ways, dy)
    theirs = eager(case, given, ways, dy) or [None] * len(want)
    for k, w, t in zip(inputs, want, theirs, strict=True):
        if w is not None and f"d_x{k}" in places:
            assert_as_good(got[places[f"d_x{k}"]], w, t, dtype, f"gradient of x{k} in {dtype}")


HALVES = [case for case in CASES if engine.depends_on_dtype(case.sample)]
# Each case in one of the two each time, its op's next one in the other; the rest in `make long`.
in_turn = pytest.mark.parametrize(
    ("case", "dtype"),
    [
        pytest.param(case, dtype, id=f"{case}-{dtype}", marks=[pytest.mark.long] * ((n + k) % 2))
        for n, case in enumerate(HALVES)
        for k, dtype in enumerate(UNIT)
    ],
)


@each_provider
@in_turn
def test_half(case, dtype, provider):
    check_values(case, dtype, provider)
    if case in DIFFERENTIABLE:
        check_gradients(case, dtype, provider)


SMALL = [np.ones(3), *[np.full(3, 0.0039)] * 20]
STEPS = {
    "ThresholdedRelu": ([np.array([1.0, 1.0078125, 1.015625])], {"alpha": 1.006}),
    "Shrink": ([np.array([1.0, 1.0078125, -1.0078125])], {"lambd": 1.006, "bias": 0.0}),
    "Sum": (SMALL, {}),
    "Mean": (SMALL, {}),
}


@each_provider
@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.parametrize("name", STEPS)
def test_an_op_of_several_steps_rounds_once(name, dtype, provider):
    """Where eager rounds in between, twice its error says nothing: the float64 twin does."""
    given, attrs = STEPS[name]
    results = []
    for kind in (dtype, "float64"):
        arrays = [
            x.astype(engine.numpy_dtype(dtype)).astype(engine.numpy_dtype(kind)) for x in given
        ]
        graph = C.Graph()
        values = [graph.input(f"x{k}", kind, list(x.shape), "user") for k, x in enumerate(arrays)]
        (y,) = graph.emit(name, values, attrs)
        graph.output(y, "y")
        feed = {f"x{k}": x for k, x in enumerate(arrays)}
        results.append(C.evaluate(graph, feed, [provider])[0].astype("float64"))
    np.testing.assert_allclose(*results, rtol=UNIT[dtype], atol=0)
