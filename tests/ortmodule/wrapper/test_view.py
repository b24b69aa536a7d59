"""The graph view: dump folders parse, and the page holds every line, rule and count."""

import json
import re
import subprocess
import sys

import pytest

from ortmodule import view

BEFORE = """graph (%x: float32[s0, 4] user, %w: float32[4, 4] parameter)
  %2 = MatMul(%x, %w)  # float32[s0, 4]; fc (model.py:7)
  %3 = Constant() {value=float32[]{0.5}}  # float32[]
return ("output:0" = %2, "d_fc.weight" = %w)
"""
AFTER = BEFORE.replace("(%x, %w)  #", "(%w, %x) {trans_a=1} @3  #").replace(
    "  %3 = Constant() {value=float32[]{0.5}}  # float32[]\n",
    "  %4, %5 = ort::Both(%2)  # int64[2], bool[..]; fc (model.py:7); by gradient of MatMul\n",
)


PLAN = {
    "symbols": {"s0": 3}, "arena": 64, "retained": 64, "separate": 96, "forward_steps": 1,
    "steps": [
        {"name": "MatMul", "provider": "cpu", "segment": -1, "scratch": [0, 0], "ops": ["MatMul"],
         "made": ["%2"], "types": ["float32[3, 4]"]},
    ],
    "values": [[0, 48, 0, 0]],
    "refusals": [{"op": "A", "provider": "cpu", "node": "node %1", "reason": "</script>"}],
}  # fmt: skip


@pytest.fixture
def dump(tmp_path):
    for build in (0, 10, 2):
        (tmp_path / f"build{build}").mkdir()
        (tmp_path / f"build{build}" / "00_captured.txt").write_text(BEFORE)
        (tmp_path / f"build{build}" / "01_fuse.txt").write_text(AFTER)
        (tmp_path / f"build{build}" / "01_fuse.onnx").write_bytes(b"")
    for number in (0, 10, 2):
        (tmp_path / "build2" / f"plan{number}.json").write_text(json.dumps(PLAN | {"extra": 1}))
    return tmp_path


def test_a_line_has_its_parts():
    text = "%4, %5 = ort::B(%2) {k=1} @3 again"
    line = view.parse_node(f"  {text}  # int64[2], bool[..]; fc (m.py:7); by r")
    assert line == view.Line("%4, %5", "ort::B", text, "int64[2], bool[..]", "fc (m.py:7)", "r")
    check = view.parse_node("  = aten::check(%2) {effect=1}  # ")  # a node without outputs
    assert check == view.Line("", "aten::check", "= aten::check(%2) {effect=1}")


def test_stages_in_order_with_counts(dump):
    stages = view.read(dump).stages
    assert [s.build for s in stages] == ["build0"] * 2 + ["build2"] * 2 + ["build10"] * 2
    assert stages[1].counts() == {"MatMul": 1, "ort::Both": 1}
    assert [line.text for line in stages[0].lines if not line.op] == [
        "input %x: float32[s0, 4] user",
        "input %w: float32[4, 4] parameter",
        'output "output:0" = %2',
        'output "d_fc.weight" = %w',
    ]


def test_lines_of_bodies_are_below_their_node():
    text = """graph (%p: bool[] user, %x: float32[n] user)
  %7 = If(%p, %x) {captures=1}  # float32[n]; If
    with then_branch = graph (%x: float32[n] user)
      %2 = Neg(%x)  # float32[n]; Neg
    return ("a" = %2)
    with else_branch = graph (%x: float32[n] user)
      %2 = Abs(%x)  # float32[n]; Abs
    return ("b" = %2)
return ("y" = %7)
"""
    stage = view.parse_stage("build0", "00_captured", text)
    assert stage.counts() == {"If": 1, "Neg": 1, "Abs": 1}
    keys = [line.key for line in stage.lines]
    assert keys[2:6] == [
        "%7",
        "%7 then_branch: input %x",
        "%7 then_branch: %2",
        "%7 then_branch: output a",
    ]
    assert keys[7] == "%7 else_branch: %2" and keys[-1] == "output y"
    assert stage.lines[4].text == "    %2 = Neg(%x)"


def test_plans_in_order(dump):
    plans = view.read(dump).plans
    assert [(p.build, p.name) for p in plans] == [("build2", f"plan{k}") for k in (0, 2, 10)]
    assert plans[0].content == PLAN


def test_the_command_writes_one_page(dump):
    subprocess.run([sys.executable, "-m", "ortmodule.view", str(dump)], check=True)
    text = (dump / "view.html").read_text()
    assert not re.search(r"(src|href)=", text), "the page is self-contained"
    data = json.loads(re.search(r"const data = (.*);\n", text)[1])
    assert len(data["stages"]) == 6 and len(data["lines"]) == 8
    assert [p["name"] for p in data["plans"]] == ["plan0", "plan2", "plan10"]
    assert data["plans"][1]["steps"] == PLAN["steps"] and text.count("</script>") == 1
    assert ["ort::Both", "gradient of MatMul"] in [[line[1], line[5]] for line in data["lines"]]


def test_what_is_no_dump_is_one_error(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "ortmodule.view", str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 1 and "is it a dump folder?" in done.stderr
    with pytest.raises(ValueError, match="build0/01_x, line 1: no line of a graph"):
        view.parse_stage("build0", "01_x", "hello")
    with pytest.raises(ValueError, match="build0/plan0: no plan .KeyError: 'symbols'."):
        view.parse_plan("build0", "plan0", "{}")
    with pytest.raises(ValueError, match="build0/plan0: no plan .JSONDecodeError"):
        view.parse_plan("build0", "plan0", "hello")


def test_a_real_dump_has_a_provider_for_every_node(tmp_path):
    """What the engine writes is what the page reads: each node that needs a provider has one."""
    import torch

    from ortmodule import Options, ORTModule

    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.GELU())
    model = ORTModule(net, Options(dump=str(tmp_path), fallback="error", providers=("cpu",)))
    model(torch.randn(3, 4)).sum().backward()
    dump = view.read(tmp_path)
    (plan,) = dump.plans
    last = dump.stages[-1]
    assert (last.build, last.name[3:]) == (plan.build, "partition")
    made = {value for step in plan.content["steps"] for value in step["made"]}
    held = {"Constant", "ort::Sizes", "Reshape", "Expand", "Identity"}
    keys = {line.key.split(",")[0]: line.op for line in last.lines if line.op}
    assert {op for key, op in keys.items() if key not in made} <= held
    assert made & set(keys) and {s["provider"] for s in plan.content["steps"]} <= {"cpu", "plan"}
    assert "layer_norm" in view.page(dump) or "LayerNormalization" in view.page(dump)
