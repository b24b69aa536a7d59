"""Torch tensors on a device of their own, in a process that knows no other accelerator."""

import pathlib
import subprocess
import sys


def test_modules_train_where_their_tensors_live():
    cases = pathlib.Path(__file__).with_name("torch_device_cases.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(cases)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    assert "6 passed" in run.stdout
