"""The op table's tests: for every op and sample type, value, gradient, definition and text."""

import dataclasses
import re

import numpy as np
import pytest
import torch

from . import engine
from .engine import C
from .families import TABLE
from .table import Const, Op, Sample

PROVIDERS = ["cpu", "reference"]  # the engine's own; aten has a test of its own


@dataclasses.dataclass(eq=False)
class Case:
    op: Op
    sample: Sample
    number: int

    def __str__(self):
        return f"{self.op.name}-{self.number}"


CASES = [Case(op, s, n) for op in TABLE.values() for n, s in enumerate(op.samples)]
DIFFERENTIABLE = [
    case
    for case in CASES
    if case.sample.gradient
    and engine.SCHEMAS[case.op.name]["differentiable"]
    and not case.op.no_gradient
    and engine.wrt(case.op, case.sample)
]
each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_provider = pytest.mark.parametrize("provider", PROVIDERS)


def dtypes(case: Case) -> list[str]:
    if not engine.depends_on_dtype(case.sample):
        return ["float64"]  # nothing to vary
    return ["float32", "float64"]  # halves: test_halves.py


def run(graph, feed, provider: str) -> list:
    """Skips what the provider does not take; docs/ops.md marks it."""
    try:
        return C.evaluate(graph, feed, [provider])
    except C.Error as error:
        if provider != "reference" and "no provider runs it" in str(error):
            pytest.skip(str(error))
        raise


def assert_close(got, want: torch.Tensor, case: Case, dtype: str, what: str):
    got = np.asarray(got)
    assert list(got.shape) == list(want.shape), f"{what} has shape {got.shape}"
    want = (want.double() if want.dtype == torch.bfloat16 else want).numpy()
    if got.dtype.name not in engine.FLOATS:
        assert got.dtype == want.dtype, what
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    precision = dtype if got.dtype.name == "float64" else got.dtype.name
    rtol, atol = case.op.tolerance[max(dtype, precision, key=case.op.tolerance.get)]
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype).astype(np.float64)  # beyond the dtype's range is infinite
    got = got.astype(np.float64)
    np.testing.assert_allclose(got, rounded, rtol, atol, equal_nan=True, err_msg=what)


@each_provider
@each_case
def test_value(case, provider):
    """Against torch in float64, and the inferred types against the real ones."""
    for dtype in dtypes(case):
        want = engine.expected(case.op, case.sample, engine.arrays(case.sample, dtype))
        for symbolic in (False, True) if case.sample.symbolic else (False,):
            graph, feed = engine.graph_of(case.op, case.sample, dtype, symbolic)
            got = run(graph, feed, provider)
            for k, (y, w) in enumerate(zip(got, want, strict=True)):
                assert y.dtype.name == graph.outputs[k].dtype
                assert_close(y, w, case, dtype, f"output {k} in {dtype}, symbolic={symbolic}")


def through(case: Case, graph) -> list[int]:
    """Outputs that take a gradient."""
    floating = [k for k, y in enumerate(graph.outputs) if y.dtype in engine.FLOATS]
    return floating if case.op.through is None else [k for k in case.op.through if k in floating]


def compare_gradients(case: Case, provider, dtype, graph, feed, inputs, ways):
    """Gradients of these inputs through these outputs, against autograd in float64."""
    given = engine.arrays(case.sample, dtype)
    joint, places = engine.joint(graph, inputs, ways)
    shapes = [y.shape for y in engine.expected(case.op, case.sample, given)]
    noise = np.random.default_rng(7)
    dy = {}
    for k in ways:
        dtype_of_y = engine.numpy_dtype(graph.outputs[k].dtype)
        dy[k] = np.asarray(noise.standard_normal(shapes[k]), dtype_of_y)
    feed = feed | {f"d_y{k}": d for k, d in dy.items()}
    got = run(joint, {name: feed[name] for name in joint.input_names}, provider)
    want = engine.gradients(case.op, case.sample, given, ways, list(dy.values()))
    for k, d in zip(engine.wrt(case.op, case.sample), want, strict=True):
        at = places.get(f"d_x{k}")
        if at is None:
            assert k not in inputs or d is None or not d.any(), f"x{k} has no gradient"
            continue
        zero = torch.zeros(given[k].shape, dtype=torch.float64)
        assert_close(got[at], zero if d is None else d, case, dtype, f"gradient of x{k}")


def check_gradients(case: Case, provider: str, dtype: str, change=lambda graph: graph):
    for symbolic in (False, True) if case.sample.symbolic else (False,):
        graph, feed = engine.graph_of(case.op, case.sample, dtype, symbolic)
        graph = change(graph)
        ways = through(case, graph)
        if ways:
            inputs = engine.wrt(case.op, case.sample)
            compare_gradients(case, provider, dtype, graph, feed, inputs, ways)


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=str)
def test_gradient_in_part(case):
    """Of one input alone, and through one output alone."""
    inputs = engine.wrt(case.op, case.sample)
    graph, feed = engine.graph_of(case.op, case.sample, "float64")
    ways = through(case, graph)
    parts = [([k], ways) for k in inputs if len(inputs) > 1 and ways]
    parts += [(inputs, [k]) for k in ways if len(ways) > 1]
    for some_inputs, some_ways in parts:
        compare_gradients(case, "reference", "float64", graph, feed, some_inputs, some_ways)


@each_provider
@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=str)
def test_gradient(case, provider):
    """Against torch's autograd in float64."""
    check_gradients(case, provider, "float32")
    if provider == "reference":
        check_gradients(case, provider, "float64")


@pytest.mark.parametrize("case", [c for c in DIFFERENTIABLE if c.sample.smooth], ids=str)
def test_finite_differences(case):
    """Central differences along random directions, in float64 on the reference provider."""
    graph, feed = engine.graph_of(case.op, case.sample, "float64")
    ways = through(case, graph)
    if not ways:
        return
    joint, places = engine.joint(graph, engine.wrt(case.op, case.sample), ways)
    noise = np.random.default_rng(11)
    y = C.evaluate(graph, feed, ["reference"])
    dy = {f"d_y{k}": np.asarray(noise.standard_normal(y[k].shape), y[k].dtype) for k in ways}
    got = C.evaluate(joint, feed | dy, ["reference"])
    names = [name for name in feed if f"d_{name}" in places]
    if any(y[k].dtype != np.float64 for k in ways):
        return  # rounded on the way: differences mean nothing
    for _ in range(3):
        move = {name: noise.standard_normal(feed[name].shape) for name in names}
        h = 1e-6
        moved = [{n: np.asarray(feed[n] + d * move[n]) for n in names} for d in (h, -h)]
        ends = [C.evaluate(graph, feed | there, ["reference"]) for there in moved]
        slope = sum(((ends[0][k] - ends[1][k]) / (2 * h) * dy[f"d_y{k}"]).sum() for k in ways)
        exact = sum((got[places[f"d_{name}"]] * move[name]).sum() for name in names)
        assert slope == pytest.approx(exact, rel=1e-4, abs=1e-5)


DEFINED = [case for case in CASES if engine.SCHEMAS[case.op.name]["definition"]]


@pytest.mark.parametrize("case", DEFINED, ids=str)
def test_definition(case):
    """The op's parts give the op's value, and the gradient through them its gradient."""
    graph, feed = engine.graph_of(case.op, case.sample, "float64")
    parts = C.expand(graph, case.op.name)
    parts.verify()
    assert case.op.name not in [node.op for node in parts.nodes]
    want = engine.expected(case.op, case.sample, engine.arrays(case.sample, "float64"))
    for k, (y, w) in enumerate(zip(C.evaluate(parts, feed, ["reference"]), want, strict=True)):
        assert_close(y, w, case, "float64", f"output {k}")
    if case in DIFFERENTIABLE and case.sample.smooth:
        check_gradients(case, "reference", "float64", lambda g: C.expand(g, case.op.name))


def renumbered(text: str) -> list[str]:
    """Values by order of appearance in their graph, without comments that name rules."""
    scopes, lines = [], []
    for line in text.splitlines():
        if "graph (" in line:
            scopes.append({})
        numbers = scopes[-1]
        line = line.partition(";")[0].rstrip()
        line = re.sub(r"%\d+", lambda m, n=numbers: n.setdefault(m[0], f"%{len(n)}"), line)
        lines.append(line)
        if line.lstrip().startswith("return"):
            scopes.pop()
    return lines


@each_case
def test_text(case):
    """print and parse are inverses, gradients among the text."""
    graph, _ = engine.graph_of(case.op, case.sample, "float32", case.sample.symbolic)
    graphs = [graph]
    if case in DIFFERENTIABLE and through(case, graph):
        graphs.append(
            engine.joint(graph, engine.wrt(case.op, case.sample), through(case, graph))[0]
        )
    for each in graphs:
        assert renumbered(C.parse(each.text()).text()) == renumbered(each.text())


ERRORS = [(op, n) for op in TABLE.values() for n in range(len(op.errors))]


@pytest.mark.parametrize("op, number", ERRORS, ids=[f"{op.name}-{n}" for op, n in ERRORS])
def test_error(op, number):
    """Refused when the node is made, or else when it runs; in the message that the table says."""
    wrong = op.errors[number]
    with pytest.raises(C.Error) as caught:
        graph, values, feed = C.Graph(), [], {}
        for k, item in enumerate(wrong.inputs):
            if item is None or isinstance(item, Const):
                values.append(item and graph.constant(item.array))
                continue
            values.append(graph.input(f"x{k}", item.dtype.name, list(item.shape)))
            feed[f"x{k}"] = item
        for k, y in enumerate(graph.emit(op.name, values, wrong.attrs)):
            graph.output(y, f"y{k}")
        C.evaluate(graph, feed, ["reference"])
    assert wrong.message in str(caught.value)


REFUSED = [(op, n) for op in TABLE.values() for n in range(len(op.refused))]


@pytest.mark.parametrize("op, number", REFUSED, ids=[f"{op.name}-{n}" for op, n in REFUSED])
def test_refused_gradient(op, number):
    """What has no gradient is an error when the graph is made, never a wrong gradient."""
    wrong = op.refused[number]
    case = Sample(wrong.inputs, wrong.attrs)
    graph, _ = engine.graph_of(op, case, "float64")
    with pytest.raises(C.Error) as caught:
        engine.joint(graph, engine.wrt(op, case)[:1], [len(graph.outputs) - 1])
    assert wrong.message in str(caught.value)


# What holds tensors, runs bodies or allocates its results: tests/session/test_stages.py.
STAGED = {name for name, schema in engine.SCHEMAS.items() if schema["staged"]}

# A key is another number each time: tests/session/kernels/test_random.py.
BARE = {"aten::*", "aten::backward", "ort::RandomKey"}
# Of strings alone: tests/session/text.
OF_TEXTS = {"RegexFullMatch"}
# Of the other domains that files have: tests/session/ml, microsoft and kernels/test_optimizers.py.
FOREIGN = {name for name in engine.SCHEMAS if name.startswith(("com.microsoft::", "ai.onnx."))}


def test_every_schema_has_an_entry():
    assert set(engine.SCHEMAS) - set(TABLE) == BARE | OF_TEXTS | STAGED | FOREIGN
    assert set(TABLE) - set(engine.SCHEMAS) == set()


def test_every_entry_has_samples():
    assert [name for name, op in TABLE.items() if not op.samples and not op.errors] == []


def test_every_differentiable_op_has_a_gradient():
    """A rule or a definition; an op without either says why, and differentiating it is an error.
    A node that asks for gradients is replaced before."""
    bare = (
        {
            name
            for name, schema in engine.SCHEMAS.items()
            if schema["differentiable"] and not schema["gradient"] and not schema["definition"]
        }
        - STAGED
        - {"ai.onnx.preview.training::Gradient"}
    )
    assert bare == {name for name, op in TABLE.items() if op.no_gradient}


@pytest.mark.parametrize("name", sorted(name for name, op in TABLE.items() if op.no_gradient))
def test_no_gradient_is_an_error(name):
    op = TABLE[name]
    graph, _ = engine.graph_of(op, op.samples[0], "float64")
    with pytest.raises(C.Error, match=f"no gradient for op '{name}'"):
        engine.joint(graph, engine.wrt(op, op.samples[0]), [0])


PATTERNS = {
    "DynamicQuantizeLinear",
    "HardSwish",
    "Mish",
    "PRelu",
    "Softplus",
    "Softsign",
    "ort::Embedding",
    "ort::SafeSqrt",
}


def test_patterns():
    """The definitions that are fusion patterns; one that stops to be shows up here."""
    defined = [name for name, schema in engine.SCHEMAS.items() if schema["definition"]]
    defined = set(defined) - FOREIGN
    assert {name for name in defined if not C.pattern_refusal(name)} == PATTERNS
