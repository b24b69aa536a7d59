"""What the ORTMODULE_* flags print, and what a dump holds."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import onnx
import pytest

from ortmodule import InferenceSession, _native, view

core = _native.core()

GRAPH = """graph (%x: float32[s0, 8] user, %w: float32[8, 8] parameter)
  %t = Transpose(%w) {perm=[1, 0]}
  %l = MatMul(%x, %t)
  %r = Mul(%l, %x)
  %h = Hardmax(%r)
  %i = IsInf(%r) {detect_negative=0}
  %y = Where(%i, %h, %r)
return ("y" = %y)
"""
RUN = """
import numpy, sys
from ortmodule import InferenceSession, _native, view
core = _native.core()
graph = core.parse(sys.argv[1])
feed = {"x": numpy.ones((3, 8), "f"), "w": numpy.ones((8, 8), "f")}
core.evaluate(graph, feed, ["cpu", "reference"])
"""


def printed(text=GRAPH, **flags) -> list[str]:
    """Standard error of a run of the graph under the flags."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("ORTMODULE_")} | flags
    command = [sys.executable, "-c", RUN, text]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_nothing_is_printed_unasked():
    assert printed() == []


def test_debug_1_is_one_line_a_build():
    (line,) = printed(ORTMODULE_DEBUG="1")
    number = r"\d+(\.\d+)?"
    assert re.fullmatch(
        rf"ortmodule: 5 nodes -> \d steps \(cpu \d, reference 1\), "
        rf"arena {number} KB \(was {number} KB\), {number} s",
        line,
    ), line


def test_debug_2_times_each_step():
    lines = [line for line in printed(ORTMODULE_DEBUG="2") if " step " in line]
    assert len(lines) >= 3
    for index, line in enumerate(lines):
        assert re.fullmatch(
            rf"ortmodule: step {index} (cpu|reference|plan) \S+: [\d.e+-]+ us", line
        )


def test_debug_3_names_passes_that_changed_something():
    lines = [line for line in printed(ORTMODULE_DEBUG="3") if " pass " in line]
    assert any(re.search(r"pass fuse: \d changes, \d nodes -> \d", line) for line in lines), lines
    assert not any(re.search(r": 0 changes", line) for line in lines)


def test_debug_4_prints_tile_programs():
    lines = printed(ORTMODULE_DEBUG="4")
    start = next(i for i, line in enumerate(lines) if " tile program mul" in line)
    assert re.search(r"tile program mul\S*, node %\d+$", lines[start])
    assert re.fullmatch(r"  float32, \d registers", lines[start + 1])
    assert re.fullmatch(r"  (r0|out0) = mul in0, in1", lines[start + 2])


def test_why_prints_each_refusal_with_its_kernels():
    assert len(printed(ORTMODULE_WHY="Hardmax")) == 1
    (line,) = printed(ORTMODULE_WHY="IsInf")
    assert re.fullmatch(
        r"ortmodule: why IsInf: cpu refuses node %\d+: tile program: only both infinities",
        line,
    ), line
    assert printed(ORTMODULE_WHY="Mul") == ["ortmodule: why Mul: nobody refuses it here"]
    (line,) = printed(ORTMODULE_WHY="Hypot")
    assert line == "ortmodule: why Hypot: no node here is Hypot"


def test_why_names_the_domain_that_a_name_has_here():
    text = GRAPH.replace("%h = Hardmax(%r)", "%h = ort::Log1p(%r)")
    (line,) = printed(text, ORTMODULE_WHY="Log1p")
    assert line == "ortmodule: why Log1p: no node here is Log1p, there is ort::Log1p"


def test_why_names_module_and_line_before_the_error(capfd, monkeypatch):
    """A node of torch's where only cpu may run: the reasons are printed, then the build fails."""
    monkeypatch.setenv("ORTMODULE_WHY", "aten::cumprod")
    graph = core.Graph()
    x = graph.input("x", "float32", [2, 2], "user")
    graph.set_where("encoder.0", "model.py", 31)
    cumprod = {"schema": "aten::cumprod", "dim": 1, "types": ["float32[2, 2]"]}
    (y,) = graph.emit("aten::cumprod", [x], cumprod)
    graph.output(y, "y")
    with pytest.raises(core.Error, match="no provider runs it"):
        core.evaluate(graph, {"x": np.ones((2, 2), "f")}, ["cpu"])
    error = capfd.readouterr().err
    assert "cpu refuses node %" in error and " at encoder.0 (model.py:31): no tile instr" in error


def test_near_prints_the_deepest_miss():
    text = GRAPH.replace("perm=[1, 0]", "perm=[0, 1]")
    (line,) = printed(text, ORTMODULE_NEAR="matmul_transposed_right")
    assert re.search(r"near miss of matmul_transposed_right at MatMul node %\d+: ", line), line


def test_a_misspelt_rule_or_pass_is_an_error(monkeypatch):
    from ortmodule import Options

    known = ", known: .*cse.*definition of .*double_negation.*fuse.*layouts.*matmul_transposed"
    with pytest.raises(ValueError, match="^no rule or pass is called 'abs_negative'" + known):
        Options(off=("cse", "abs_negative"))
    monkeypatch.setenv("ORTMODULE_OFF", "fuse,abs_negative")
    message = "^ORTMODULE_OFF: no rule or pass is called 'abs_negative'"
    with pytest.raises(core.Error, match=message + known):
        Options().for_engine()
    Options(off=("layouts", "fuse", "double_negation")).for_engine()  # a field wins
    monkeypatch.delenv("ORTMODULE_OFF")
    monkeypatch.setenv("ORTMODULE_NEAR", "fuse")
    message = "^ORTMODULE_NEAR: no rule is called 'fuse', known: .*double_negation"
    with pytest.raises(core.Error, match=message):
        Options().for_engine()


@pytest.fixture
def dumped(tmp_path):
    def run() -> list[str]:
        env = os.environ | {"ORTMODULE_DUMP": str(tmp_path)}
        code = (
            "import torch, ortmodule\n"
            "from torch.nn import *\n"
            "net = Sequential(Linear(4, 4), Dropout(0.1), GELU())\n"
            "model = ortmodule.ORTModule(net, ortmodule.Options(fallback='error'))\n"
            "for batch in (3, 5): model(torch.randn(batch, 4)).sum().backward()\n"
        )
        subprocess.run([sys.executable, "-c", code], env=env, check=True)
        return sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.glob("*/*"))

    return run, tmp_path


def test_every_stage_is_text_and_onnx(dumped):
    run, folder = dumped
    names = run()
    stages = [name.removesuffix(".txt") for name in names if name.endswith(".txt")]
    assert stages[0].endswith("00_captured") and stages[-1].endswith("_partition")
    assert [f"{stage}.onnx" for stage in stages] == [n for n in names if n.endswith(".onnx")]
    for stage in stages:
        graph = core.parse((folder / f"{stage}.txt").read_text())
        model = onnx.load(folder / f"{stage}.onnx")
        written = [f"{n.domain}::{n.op_type}".removeprefix("::") for n in model.graph.node]
        ops = [n.op for n in graph.nodes if n.op != "Constant"]
        assert [op for op in written if op != "Identity"] == [op for op in ops if op != "Identity"]
        domains = {opset.domain: opset.version for opset in model.opset_import}
        assert 7 <= domains[""] <= 26 and {n.domain for n in model.graph.node} <= set(domains)
        assert len(model.graph.input) == len(graph.inputs)
    assert any("by " in node.doc_string for node in model.graph.node)


def test_each_plan_is_in_the_dump(dumped):
    run, folder = dumped
    assert [n for n in run() if n.endswith(".json")] == ["build0/plan0.json", "build0/plan1.json"]
    for name, batch in (("plan0", 3), ("plan1", 5)):
        plan = json.loads((folder / "build0" / f"{name}.json").read_text())
        assert list(plan["symbols"].values()) == [batch]
        assert 0 < plan["forward_steps"] < len(plan["steps"])
        assert plan["arena"] <= plan["separate"]
        ops = [op for step in plan["steps"] for op in step["ops"]]
        assert "ort::Dropout" in ops and "ort::Linear" in ops
        assert plan["steps"][0]["types"] == [f"float32[{batch}, 4]"]
        for at, size, first, last in plan["values"]:
            assert at + size <= plan["arena"] and 0 <= first <= last < len(plan["steps"])


def test_a_second_run_leaves_nothing_of_the_first(dumped):
    run, folder = dumped
    first = run()
    (folder / "build7").mkdir()
    (folder / "build7" / "00_captured.txt").write_text("in no manifest")
    (folder / "builder").mkdir()
    (folder / "builder" / "mine").write_text("not ours")
    assert run() == sorted([*first, "build7/00_captured.txt", "builder/mine"])


def test_flags_hold_for_inference_sessions(tmp_path, monkeypatch):
    """DUMP, OFF and PROVIDERS from the environment; an argument wins."""
    graph = core.parse(GRAPH.replace("Hardmax(%r)", "Relu(%r)"))
    path = str(tmp_path / "model.onnx")
    core.write_onnx(graph, path)
    feed = {"x": np.ones((3, 8), "f"), "w": np.ones((8, 8), "f")}
    monkeypatch.setenv("ORTMODULE_DUMP", str(tmp_path / "dump"))
    monkeypatch.setenv("ORTMODULE_OFF", "fuse")
    monkeypatch.setenv("ORTMODULE_PROVIDERS", "reference")
    expected = InferenceSession(path).run(None, feed)
    stages = [p.stem for p in sorted((tmp_path / "dump" / "build0").glob("*.txt"))]
    assert "00_captured" in stages and not any("fuse" in stage for stage in stages)
    plan = json.loads((tmp_path / "dump" / "build0" / "plan0.json").read_text())
    assert {step["provider"] for step in plan["steps"]} == {"reference"}
    session = InferenceSession(
        (tmp_path / "model.onnx").read_bytes(), providers=("cpu", "reference")
    )
    np.testing.assert_allclose(session.run(None, feed)[0], expected[0], rtol=1e-6)
    plan = json.loads((tmp_path / "dump" / "build1" / "plan0.json").read_text())
    assert "cpu" in {step["provider"] for step in plan["steps"]}


def test_fuel_that_is_no_number_is_refused(monkeypatch):
    from ortmodule import Options

    monkeypatch.setenv("ORTMODULE_FUEL", "much")
    with pytest.raises(core.Error, match="ORTMODULE_FUEL is much, expected a number of rewrites"):
        Options().for_engine()
    Options(fuel=3).for_engine()  # a field wins


def test_stages_and_bodies_are_builds_within(tmp_path, monkeypatch):
    """A body in a plan, in the rest of a graph that is cut before a late size."""
    monkeypatch.setenv("ORTMODULE_DUMP", str(tmp_path))
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21]>
        g (float[n, 4] x, int64 trips) => (float[k] y) {
          p = NonZero (x)
          q = Transpose <perm = [1, 0]> (p)
          found = GatherND (x, q)
          y = Loop (trips, , found) <
            body = b (int64 i, bool go, float[k] s) => (bool on, float[k] t) {
              on = Identity (go)
              t = Neg (s)
            }>
        }"""
    )
    InferenceSession(model.SerializeToString()).run(
        None, {"x": np.ones((2, 4), "f"), "trips": np.array(3)}
    )
    builds = {p.name: [f.stem for f in sorted(p.glob("*.txt"))] for p in tmp_path.glob("build*")}
    assert builds["build0"][-1].endswith("_stages")
    assert builds["build0.rest"][-1].endswith("_partition")
    inside = [name for name in builds if name.startswith("build0.rest.Loop")]
    assert len(inside) == 1 and (tmp_path / inside[0] / "plan0.json").exists()
    read = [stage.build for stage in view.read(tmp_path).stages]
    assert read == sorted(read) and set(read) == set(builds)
