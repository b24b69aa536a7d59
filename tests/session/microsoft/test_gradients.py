"""Gradients through com.microsoft's ops of a loaded model, by finite differences in float64."""

import numpy as np
import pytest

from ortmodule._native import core

from . import cases

C = core()
FLOATS = cases.FUSED | cases.NORMS | cases.ATTENTION
# What has steps, or gives whole numbers alone.
FLAT = ("unique", "grid, nearest", "crop, nearest", "range", "range, by one")
# Whose first operand alone is moved: a region's edge is a step, and a number to pad with is given.
FIRST = ("crop", "crop, one", "pad")
NAMES = [name for name in FLOATS if name not in FLAT]
STEP = 1e-6


def graph_of(tmp_path, name):
    op, operands, attrs, results = FLOATS[name]
    given = cases.in_dtype(operands, "float64")
    whole = {f"x{k}" for k, x in enumerate(given) if x is not None and x.dtype != np.float64}
    model, feed = cases.made(op, given, attrs, results, whole)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    return C.read_onnx(str(tmp_path / "m.onnx")), feed


def moved(feed, ways, by):
    return {name: x + by * ways[name] if name in ways else x for name, x in feed.items()}


@pytest.mark.parametrize("name", NAMES)
def test_along_a_random_way(tmp_path, name):
    rng = np.random.default_rng(5)
    graph, feed = graph_of(tmp_path, name)
    wide = [n for n, x in feed.items() if x.dtype == np.float64]
    ways = {n: rng.standard_normal(feed[n].shape) for n in (wide[:1] if name in FIRST else wide)}
    output = graph.output_names[0]

    def run(now):
        return C.evaluate(graph, now, ["cpu", "reference"])[0]

    ahead, behind = (run(moved(feed, ways, by)) for by in (STEP, -STEP))
    dy = rng.standard_normal(ahead.shape)
    want = float(((ahead - behind) / (2 * STEP) * dy).sum())
    joint = C.differentiate(graph, list(ways), [output])
    results = C.evaluate(joint, feed | {f"d_{output}": dy}, ["cpu", "reference"])
    made = dict(zip(joint.output_names, results, strict=True))
    got = sum(float((made[f"d_{n}"] * way).sum()) for n, way in ways.items() if f"d_{n}" in made)
    assert got == pytest.approx(want, rel=1e-5, abs=1e-6)
