"""Bodies in wrong and hostile files: each is one Error that names the node and what it lacks."""

import numpy as np
import onnx
import pytest

from ortmodule import InferenceSession
from ortmodule._native import core

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
