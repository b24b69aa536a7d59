"""Cases whose torch knows a device of another name, in a process of their own."""

import os
import pathlib
import subprocess
import sys


def passed_alone(cases: pathlib.Path) -> int:
    """How many of the file's tests passed; AssertionError where one did not."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(cases)]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, env=alone)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    return int(run.stdout.rsplit(" passed", 1)[0].split()[-1])
