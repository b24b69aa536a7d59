"""tools/replay.py: the quickest model's plans are the recorded ones, and a change is seen."""

import importlib.util
import subprocess
import sys

import pytest


@pytest.fixture
def replay(root):
    spec = importlib.util.spec_from_file_location("replay", root / "tools" / "replay.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["mlp", "mlp.bf16", "bert.bf16"])
def test_models_have_their_recorded_plans(replay, name):
    assert replay.compare(name, record=False) == "", "if meant: make replay ARGS=--record"


def test_every_example_model_is_recorded(replay):
    assert {path.stem for path in replay.RECORDED.glob("*.txt")} == set(replay.names())


def step(*ops, segment=-1):
    return {"segment": segment, "provider": "cpu", "ops": ops, "types": ["float32[2]"]}


def test_a_change_is_a_diff_and_recording_ends_it(replay, monkeypatch, tmp_path):
    plan = {"steps": [step("Add", "Mul"), step("Exp", segment=0)], "forward_steps": 1}
    plan["values"] = [[0, 8, 0, 0], [8, 4, 0, 1], [0, 16, 1, 1]]
    monkeypatch.setattr(replay, "plans_of", lambda name: [plan])
    monkeypatch.setattr(replay, "ROOT", tmp_path)
    monkeypatch.setattr(replay, "RECORDED", tmp_path / "plans")
    assert replay.compare("m", record=True) != ""
    assert (tmp_path / "plans" / "m.txt").read_text() == (
        "plan: 1 forward and 1 backward steps, 20 bytes of values at the fullest step\n"
        "  forward cpu: Add+Mul -> float32[2]\n"
        "  segment 0 cpu: Exp -> float32[2]\n"
    )
    assert replay.compare("m", record=False) == ""
    plan["steps"][1] = step("Exp", "Neg", segment=0)
    diff = replay.compare("m", record=False)
    assert "-  segment 0 cpu: Exp -> float32[2]\n+  segment 0 cpu: Exp+Neg -> float32[2]\n" in diff


def test_an_unknown_model_is_an_error(root):
    command = [sys.executable, str(root / "tools" / "replay.py"), "nothing"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "no model nothing; there are bert," in done.stderr
