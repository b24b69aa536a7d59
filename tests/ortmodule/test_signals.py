"""Unix signals while a step or a run is under way."""

import os
import pathlib
import subprocess
import sys

import pytest

RINGING = pathlib.Path(__file__).with_name("ringing.py")


@pytest.mark.slow
@pytest.mark.parametrize("isa", ["DEFAULT", "AVX2"])
def test_a_signal_harms_no_kernel(isa):
    told = os.environ | {"ONEDNN_MAX_CPU_ISA": isa}
    done = subprocess.run([sys.executable, RINGING], capture_output=True, text=True, env=told)
    assert done.returncode == 0 and "rung" in done.stdout, (done.returncode, done.stderr[-2000:])
