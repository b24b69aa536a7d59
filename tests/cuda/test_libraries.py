"""What the provider cuda opens, and what it says where there is nothing to open."""

import pathlib
import shutil
import subprocess
import sys

import cuda_double
import pytest

GRAPH = 'graph (%x: float32[2] user)\n  %1 = Exp(%x)\nreturn ("y" = %1)\n'
ALONE = """
import numpy as np
from ortmodule import _native
C = _native.core()
C.Compiled(C.parse({graph!r}), ["cpu"]).run({{"x": np.ones(2, np.float32)}})
assert "cuda" in C.device_kinds()
maps = open("/proc/self/maps").read()
assert not any(name in maps for name in ("libcuda.so", "libnvrtc", "libcublasLt")), maps
try:
    C.Compiled(C.parse({graph!r}), ["cuda"]).run({{"x": np.ones(2, np.float32)}})
except C.Error as error:
    print(error)
"""


def test_declarations_are_those_of_the_headers():
    """Compared as the double was compiled, where the toolkit is."""
    there = pathlib.Path("/usr/local/cuda/include/cuda.h").exists()
    assert cuda_double.compared() or not there


def has_driver() -> bool:
    return shutil.which("nvidia-smi") is not None


@pytest.mark.skipif(has_driver(), reason="the error is about a driver that is missing")
def test_nothing_is_opened_for_the_cpu_and_a_missing_driver_is_named():
    script = ALONE.format(graph=GRAPH)
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "there is no driver: libcuda.so.1 cannot be opened" in run.stdout
