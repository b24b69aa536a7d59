"""Code on disk: what one process has compiled no other compiles again. By NVRTC, without a GPU."""

import json
import os
import pathlib
import subprocess
import sys

import cuda_double
import pytest

NEEDS_NVRTC = pytest.mark.skipif(cuda_double.nvrtc() is None, reason="NVRTC is not there")
ROOT = pathlib.Path(__file__).parents[2]
ONE_TEXT = """
import sys
sys.path[:0] = ["tests/far", "tests/cuda"]
import cuda_double, numpy as np
from ortmodule import _native
cuda_double.use_without_runs(cuda_double.nvrtc(), arch=int(sys.argv[1]))
C = _native.core()
graph = 'graph (%x: float32[2] user)\\n  %1 = Exp(%x)\\nreturn ("y" = %1)\\n'
C.Compiled(C.parse(graph), ["cuda"]).run({"x": np.ones(2, np.float32)})
print(cuda_double.compiled())
"""


def start(cache, arch=90) -> subprocess.Popen:
    env = os.environ | {"ORTMODULE_CACHE": str(cache)}
    command = [sys.executable, "-c", ONE_TEXT, str(arch)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=env, cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


def compiled(process) -> int:
    out, err = process.communicate()
    assert process.returncode == 0, err
    return int(out)


@NEEDS_NVRTC
def test_code_is_found_by_text_and_architecture(tmp_path):
    cache = tmp_path / "code"
    assert compiled(start(cache)) == 1
    assert compiled(start(cache)) == 0
    assert compiled(start(cache, arch=80)) == 1
    kept = sorted(cache.iterdir())
    assert len(kept) == 2 and all(b"\x7fELF" in file.read_bytes() for file in kept)
    for file in kept:
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert [compiled(start(cache)) for _ in range(2)] == [1, 0]


@NEEDS_NVRTC
def test_two_processes_at_once_leave_whole_files(tmp_path):
    both = [start(tmp_path / "code") for _ in range(2)]
    assert sum(compiled(one) for one in both) in (1, 2)
    assert len(list((tmp_path / "code").iterdir())) == 1
    assert compiled(start(tmp_path / "code")) == 0


def test_the_folder_is_the_users(tmp_path):
    """XDG's folder of caches, or the one that is named; none where it is turned off."""
    script = ONE_TEXT.replace("cuda_double.nvrtc()", "None")  # nothing is compiled

    def run(**settings) -> str:
        env = os.environ | {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": ""} | settings
        command = [sys.executable, "-c", script, "90"]
        return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True).stderr

    def folders() -> set[str]:
        return {str(file.parent.relative_to(tmp_path)) for file in tmp_path.rglob("*.code")}

    assert run(ORTMODULE_CACHE="off") == "" and folders() == set()
    run(ORTMODULE_CACHE="")
    run(ORTMODULE_CACHE="", XDG_CACHE_HOME=str(tmp_path / "xdg"))
    run(ORTMODULE_CACHE=str(tmp_path / "named"))
    assert folders() == {"home/.cache/ortmodule", "xdg/ortmodule", "named"}
    assert "ORTMODULE_CACHE is here, expected a folder's absolute path, or off" in run(
        ORTMODULE_CACHE="here"
    )


@pytest.mark.long
@NEEDS_NVRTC
def test_gpt2_compiles_once_for_every_batch(tmp_path):
    """Cold within 20 seconds of two processors: layers share their texts; then nothing."""
    script = pathlib.Path(__file__).with_name("gpt2_texts.py")
    env = os.environ | {"ORTMODULE_CACHE": str(tmp_path / "code"), "ORTMODULE_CHECK": "0"}
    command, runs = [sys.executable, str(script)], []
    for _ in range(2):
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
        runs.append(json.loads(done.stdout.splitlines()[-1])["steps"])
    print(runs)
    (cold, other), again = runs
    assert 0 < cold["compiled"] < 50 and cold["cpu"] < 40
    assert other["compiled"] == 0 and [step["compiled"] for step in again] == [0, 0]
