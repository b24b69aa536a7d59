"""Bodies in wrong and hostile files: each is one Error that names the node and what it lacks."""

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest

from ortmodule import InferenceSession
from ortmodule._native import core

from .models import ints, model, node, port

Error = core().Error

TEXT = '<ir_version: 10, opset_import: ["": 21]> g '
BODY = """body = b (int64 i, bool go, float[n] s) => (bool on, float[n] t) {
  on = Identity (go)
  t = Neg (x)
}"""
ABSENT = {
    "state": (f"z = Loop ( , , ) <{BODY}>", r"\[Loop\] state 0 is absent"),
    "state of a scan": (
        "z, w = Scan <num_scan_inputs = 1, body = b (float[n] s, float r) => (float[n] t, float q)"
        " { t = Neg (x) q = Neg (r) }> ( , x)",
        r"\[Scan\] state 0 is absent",
    ),
    "scanned": (
        "z = Scan <num_scan_inputs = 1, body = b (float s, float r) => (float t)"
        " { t = Neg (x) }> (k, )",
        r"\[Scan\] scanned input 0 is absent",
    ),
    "item": (
        "q = SequenceConstruct (x) z = SequenceMap <body = b (float[n] s, float[n] r) =>"
        " (float[n] t) { t = Add (s, r) }> (q, )",
        r"\[SequenceMap\] input 1 is absent",
    ),
}


@pytest.mark.parametrize("nodes, words", ABSENT.values(), ids=ABSENT)
def test_an_operand_that_a_body_needs_is_absent(nodes, words):
    text = f"{TEXT}(float[n] x, float k) => (float[n] z) {{{nodes}}}"
    with pytest.raises(Error, match=words):
        InferenceSession(onnx.parser.parse_model(text).SerializeToString())


@pytest.mark.parametrize("axis", [2, 3, -3, 100])
def test_an_axis_of_trips_that_no_result_has(axis):
    """The rank is known when a trip has run."""
    scan = onnx.parser.parse_model(
        f"""{TEXT} (float[3, 2] x, int64[k] shape) => (float y) {{
          y = Scan <num_scan_inputs = 1, scan_output_axes = [{axis}],
            body = b (float[2] r) => (float o) {{ o = Reshape (r, shape) }}> (x)
        }}"""
    )
    ours = InferenceSession(scan.SerializeToString())
    feed = {"x": np.ones((3, 2), "f"), "shape": np.array([2])}
    with pytest.raises(Error, match=f"axis {axis} does not exist, result 0 has rank 2"):
        ours.run(None, feed)


# The peak is this process's own (VmHWM): ru_maxrss keeps what the process that forked it had.
PEAK = """
import re, sys
import numpy as np
from ortmodule import InferenceSession
session = InferenceSession(sys.argv[1])
session.run(None, {"c": np.array(True), "x": np.ones((0, 1), np.float32)})
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1)
print(int(peak) // 1024)
"""


def branch(name):
    """A result without rows, for which two constants of 16 MB are wanted."""
    nodes = [node("ConstantOfShape", "s", f"{name}{k}") for k in range(2)]
    nodes += [node("Mul", f"{name}0 x", f"{name}m"), node("Add", f"{name}m {name}1", f"{name}y")]
    shape = onnx.numpy_helper.from_array(ints(1, 1 << 22), "s")
    return onnx.helper.make_graph(nodes, name, [], [port(f"{name}y", None)], [shape])


@pytest.mark.slow
def test_constants_that_are_large_in_all_bodies_together(tmp_path):
    """Folding has one budget for a session: each body by itself would take its 32 MB."""
    count, nodes = 15, []
    for k in range(count):
        branches = {"then_branch": branch(f"a{k}"), "else_branch": branch(f"b{k}")}
        nodes.append(node("If", "c", f"y{k}", **branches))
    given = [port("c", [], "bool"), port("x", [0, 1])]
    made = model(nodes, given, [port(f"y{k}", None) for k in range(count)])
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    plain = {**os.environ, "ORTMODULE_CHECK": "0"}  # comparing rewrites takes copies
    child = subprocess.run(
        [sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, timeout=60,
        env=plain,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr[-2000:]
    assert int(child.stdout) < 700
