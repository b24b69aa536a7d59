"""The text cases of tests/graphs: given a graph, run a pass, expect these ops and equal numbers."""

import re

import numpy as np
import pytest

from ortmodule import _native

CASE = re.compile(r"^given: (.*?)\n(.*?)^run: (\w+)\nexpect: (.*?)$", re.M | re.S)
QUIET = {"Constant", "ort::Sizes"}


ACTIVATIONS = {
    "relu": "Relu(%l)",
    "tanh": "Tanh(%l)",
    "sigmoid": "Sigmoid(%l)",
    "silu": "Swish(%l)",
    "gelu": "Gelu(%l)",
    "gelu_tanh": 'Gelu(%l) {approximate="tanh"}',
    "hard_swish": "HardSwish(%l)",
    "leaky_relu": "LeakyRelu(%l) {alpha=0.25}",
    "clip": "ort::HardTanh(%l) {low=-0.5, high=0.25}",
}
PRODUCT = """graph (%x: float32[s0, 8] user, %w: float32[8, 8] parameter, %b: float32[8] parameter)
  %l = ort::PRODUCT(%x, %w, %b)
  %y = ACTIVATION
return ("y" = %y)
"""


CONVOLUTION = """graph (%x: float32[s0, 3, 8, 8] user, %w: float32[4, 3, 1, 1] parameter,
    %z: float32[s0, 4, 8, 8] user)
  %c = Conv(%x, %w, _)
  %l = Add(%z, %c)
  %y = ACTIVATION
return ("y" = %y)
"""


def activation_cases():
    for name, call in ACTIVATIONS.items():
        added = CONVOLUTION.replace("ACTIVATION", call)
        alone = added.replace("  %l = Add(%z, %c)\n", "").replace("(%l)", "(%c)")
        for of, text, op in (("conv", alone, "Conv"), ("conv_add", added, "ort::Conv")):
            expected = [op, "Gelu"] if name == "gelu" else ["ort::Conv"]
            yield pytest.param(text, "fuse", expected, id=f"{of}_{name}")
    for product in ("Linear", "MatMul"):
        for name, call in ACTIVATIONS.items():
            text = PRODUCT.replace("PRODUCT", product).replace("ACTIVATION", call)
            yield pytest.param(text, "fuse", [f"ort::{product}"], id=f"{product}_{name}")


def cases():
    from pathlib import Path

    yield from activation_cases()

    for path in sorted(Path(__file__).parent.parent.glob("graphs/*.txt")):
        for title, text, run, expect in CASE.findall(path.read_text()):
            yield pytest.param(text, run, expect.split(), id=f"{path.stem}: {title}")


def ops(graph):
    return [node.op for node in graph.nodes if node.op not in QUIET]


def feed_of(graph):
    rng = np.random.default_rng(0)
    sizes = {"s0": 3, "s1": 2}
    feed = {}
    for value, name in zip(graph.inputs, graph.input_names, strict=True):
        shape = [sizes.get(d, d) for d in value.dims]
        feed[name] = rng.standard_normal(shape).astype(value.dtype)
    return feed


@pytest.mark.parametrize("text, run, expect", cases())
def test_case(text, run, expect):
    core = _native.core()
    graph = core.parse(text)
    feed = feed_of(graph)
    before = core.evaluate(graph, feed, ["reference"])
    core.run_pass(graph, run)
    core.run_pass(graph, "dce")
    assert ops(graph) == expect, graph.text()
    for a, b in zip(before, core.evaluate(graph, feed, ["reference"]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_every_written_rule_fires_in_some_case():
    """A rule that no case reaches is untested; those made from definitions have their own test."""
    core = _native.core()
    fired = set()
    for parameter in cases():
        graph = core.parse(parameter.values[0])
        core.run_pass(graph, parameter.values[1])
        fired |= {node.by for node in graph.nodes}
        for off in core.rules(graph):
            fresh = core.parse(parameter.values[0])
            core.run_pass(fresh, parameter.values[1], off=[off])
            if [n.op for n in fresh.nodes] != [n.op for n in graph.nodes]:
                fired.add(off)
    written = {r for r in core.rules(core.Graph()) if not r.startswith("definition of")}
    assert written <= fired, sorted(written - fired)


def test_fuel_stops_after_n_rewrites():
    core = _native.core()
    text = next(p.values[0] for p in cases() if "neutral numbers" in p.id)
    counts = []
    for fuel in range(5):
        graph = core.parse(text)
        core.run_pass(graph, "simplify", fuel=fuel)
        core.run_pass(graph, "dce")
        counts.append(len(ops(graph)))
    assert counts == [5, 4, 3, 2, 1]


def test_an_unknown_pass_is_named():
    core = _native.core()
    with pytest.raises(core.Error, match="unknown pass 'polish', known: compounds, cse"):
        core.run_pass(core.Graph(), "polish")
