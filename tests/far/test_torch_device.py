"""Torch tensors on a device of their own, in a process that knows no other accelerator."""

import os
import pathlib
import subprocess
import sys


def test_modules_train_where_their_tensors_live():
    cases = pathlib.Path(__file__).with_name("torch_device_cases.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(cases)]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=alone)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    assert "10 passed" in run.stdout
