"""What gets loaded when, and what is said when the bridge does not fit the torch at hand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ortmodule import _native

ROOT = Path(__file__).resolve().parents[2]


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_neither_torch_nor_the_engine():
    loaded = python("import sys, ortmodule; print(*sys.modules)").split()
    assert "torch" not in loaded
    assert "ortmodule._C" not in loaded


def test_core_loads_no_torch():
    loaded = python("import sys; from ortmodule._native import core; core(); print(*sys.modules)")
    assert "torch" not in loaded.split()
    assert "ortmodule._C" in loaded.split()


def test_one_openmp_runtime_with_torch():
    """Two would mean two thread pools fighting for the cores."""
    code = (
        "from ortmodule._native import core, torch_bridge; core(); torch_bridge()\n"
        "print(*{l.split()[-1] for l in open('/proc/self/maps') if 'omp' in l.split('/')[-1]})"
    )
    assert len(python(code).split()) == 1


def test_versions_agree():
    import ortmodule

    assert _native.core().version() == ortmodule.__version__


def test_fitting_torch_is_accepted():
    _native.check_torch("2.11.0+cu130", True, "2.11.0+cpu", True)


@pytest.mark.parametrize(
    "built, abi, message",
    [
        ("2.10.0", True, "was built for torch 2.10.0 but torch 2.11.0 is running"),
        ("2.11.0", False, "built for torch 2.11.0 with C++11 ABI False but torch 2.11.0 has True"),
        (None, True, "was built without torch and cannot train next to torch 2.11.0"),
    ],
)
def test_mismatch_is_one_clear_error(built, abi, message):
    with pytest.raises(_native.BuildMismatch, match=re.escape(message)) as error:
        _native.check_torch(built, abi, "2.11.0", True)
    assert "run `make`" in str(error.value)


def test_mismatch_comes_with_the_bridge_only():
    """Next to the wrong torch, `import ortmodule` and the engine still work."""
    code = """
import ortmodule._build_info as info
info.TORCH_VERSION = "1.2.3"
from ortmodule import _native
_native.core()
try:
    _native.torch_bridge()
except _native.BuildMismatch as error:
    print(error)
"""
    assert python(code).startswith("ortmodule was built for torch 1.2.3 but torch 2")


def test_an_older_torch_is_refused_by_the_build(tmp_path):
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "version.py").write_text("__version__ = '2.10.1+cpu'\n")
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        capture_output=True, text=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    message = "error: ortmodule needs torch 2.11 or newer, the environment has 2.10.1+cpu"
    assert (done.returncode, done.stderr.strip()) == (1, message)
