"""Checks on devices are read when the host has gone on."""

import os
import pathlib
import subprocess
import sys


def test_an_index_out_of_range_is_told_later_and_once():
    cases = pathlib.Path(__file__).with_name("deferred_error_cases.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(cases)]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=alone)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    assert "42 passed" in run.stdout
