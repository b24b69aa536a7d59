"""The examples of libraries, as they stand: eager's losses, and nothing falls back."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
NAMES = [
    "02_accelerate", "03_trainer", "04_grad_scaler", "05_lightning", "06_peft", "07_timm",
]  # fmt: skip


ADAPTERS = ["08_lora", "09_nf4"]  # a hundred steps of several engines each


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [*NAMES, *(pytest.param(name, marks=pytest.mark.long) for name in ADAPTERS)]
)
def test_an_example_trains_as_in_eager(name):
    """Each compares both and fails where they differ."""
    script = EXAMPLES / f"{name}.py"
    assert len(script.read_text().splitlines()) < 80
    drop = ("ORTMODULE_CHECK", "ORTMODULE_POISON")  # as a user runs it
    environment = {k: v for k, v in os.environ.items() if k not in drop}
    # PYTHONSAFEPATH, with which an installed wheel is tested, leaves a script's own folder out.
    environment["PYTHONPATH"] = os.pathsep.join([str(EXAMPLES), *sys.path])
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=environment, timeout=900
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "captures " in done.stdout and "fallbacks none" in done.stdout


@pytest.mark.long
def test_the_example_of_torchrun_goes_on_where_it_was(tmp_path):
    def run(steps: int) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
             EXAMPLES / "10_torchrun.py", "--steps", str(steps), "--every", "4",
             "--folder", str(tmp_path)],
            capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        return done.stdout

    first, second = run(4), run(8)
    assert "step 4" in first and "step 4" not in second and "step 8" in second
    assert "fallbacks none" in first and "accuracy " in second
