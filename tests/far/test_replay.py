"""Steps that a device has recorded are queued again as one, in the place of launches."""

import os
import pathlib
import subprocess
import sys

import pytest


@pytest.mark.models
def test_a_replay_is_as_a_fresh_run():
    cases = pathlib.Path(__file__).with_name("replay_cases.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(cases)]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=alone)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    assert "10 passed" in run.stdout
