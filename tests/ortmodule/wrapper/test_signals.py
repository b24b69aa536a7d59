"""Unix signals while a step or a run is under way."""

import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parents[1]


def run(*command, env=None):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=env)
    assert done.returncode == 0, (done.returncode, done.stderr[-3000:])
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["DEFAULT", "AVX2"])
def test_a_signal_harms_no_kernel(isa):
    told = os.environ | {"ONEDNN_MAX_CPU_ISA": isa}
    assert "rung" in run(HERE / "ringing.py", env=told)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["keyboard_interrupt", "saves", "children_end", "children_train"])
def test_a_program_with_signals_trains(case):
    run(HERE / "interrupted.py", case)
