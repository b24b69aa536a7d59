"""A wheel and an editable install, each in a fresh environment: what they contain and that they
find oneDNN without LD_LIBRARY_PATH."""

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sysconfig.get_path("purelib")

# Run in the new environment. Everything but ortmodule and oneDNN comes from the outer one.
CHECK = """
import importlib.util, os, sys
assert "LD_LIBRARY_PATH" not in os.environ
assert importlib.util.find_spec("optim") is None, "optim leaks"
assert importlib.util.find_spec("distributed") is None, "distributed leaks"
assert importlib.util.find_spec("tests") is None, "tests leaks"
import ortmodule, ortmodule.optim, ortmodule.distributed
from ortmodule._native import core, torch_bridge
assert core().version() == ortmodule.__version__
assert "torch" not in sys.modules
dnnl = {l.split()[-1] for l in open("/proc/self/maps") if "libdnnl" in l}
assert len(dnnl) == 1, dnnl
if OUTER:
    sys.path.append(OUTER)
    torch_bridge()
    from ortmodule.optim import AdamW
print(dnnl.pop(), ortmodule.__file__)
"""


def environment() -> dict[str, str]:
    drop = ("LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "PIP_REQUIRE_VIRTUALENV")
    return {k: v for k, v in os.environ.items() if k not in drop}


def run(*command, **options) -> str:
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, env=environment(), **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> Path:
    """An environment with oneDNN's run-time package and nothing else; gives its python."""
    folder = tmp_path_factory.mktemp("fresh")
    if shutil.which("uv"):
        run("uv", "venv", "-q", "--python", sys.executable, folder / "venv")
    else:
        run(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    install(python, "onednn-cpu-gomp==2023.2.0", "--no-deps")
    return python


def install(python: Path, *arguments) -> None:
    if shutil.which("uv"):
        run("uv", "pip", "install", "-q", "--python", python, *arguments)
    else:
        run(python, "-m", "pip", "install", "-q", *arguments)


def uninstall(python: Path) -> None:
    if shutil.which("uv"):
        run("uv", "pip", "uninstall", "-q", "--python", python, "ortmodule")
    else:
        run(python, "-m", "pip", "uninstall", "-q", "-y", "ortmodule")


def build(hook: str, folder: Path) -> Path:
    """Calls the build backend in this environment, as --no-build-isolation does; the objects that
    `make` has built are used again."""
    code = f"import setuptools.build_meta as b; print(b.{hook}({str(folder)!r}))"
    with (ROOT / "build" / ".wheel").open("w") as lock:  # setuptools has one folder for all wheels
        fcntl.flock(lock, fcntl.LOCK_EX)
        name = run(sys.executable, "-c", code, cwd=ROOT).splitlines()[-1]
    return folder / name


def check(python: Path, where: Path) -> str:
    return run(python, "-c", f"OUTER = {PACKAGES!r}\n{CHECK}", cwd=where)


@pytest.mark.slow
def test_wheel(fresh, tmp_path):
    wheel = build("build_wheel", tmp_path)
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names}
    assert top == {"ortmodule", f"ortmodule-{wheel.name.split('-')[1]}.dist-info"}
    assert {"ortmodule/libort_core.so", "ortmodule/_build_info.py"} <= set(names)
    assert {"ortmodule/optim/__init__.py", "ortmodule/distributed/__init__.py"} <= set(names)
    assert "none-any" not in wheel.name
    install(fresh, "--no-deps", wheel)
    try:
        assert str(fresh.parent.parent) in check(fresh, tmp_path).split()[1]
    finally:
        uninstall(fresh)


@pytest.mark.slow
def test_editable(fresh, tmp_path):
    wheel = build("build_editable", tmp_path)
    install(fresh, "--no-deps", wheel)
    try:
        assert check(fresh, tmp_path).split()[1] == str(ROOT / "ortmodule" / "__init__.py")
    finally:
        uninstall(fresh)


@pytest.mark.slow
def test_wheel_finds_onednn_by_its_rpath_alone(fresh, tmp_path):
    """Where package metadata is stripped (some bundlers do), the RPATH of ort_core is enough."""
    wheel = build("build_wheel", tmp_path)
    install(fresh, "--no-deps", wheel)
    code = (
        "import importlib.metadata as m; m.distribution = lambda n: (_ for _ in ()).throw("
        "m.PackageNotFoundError(n))\nfrom ortmodule._native import core; core()"
    )
    try:
        run(fresh, "-c", code, cwd=tmp_path)
    finally:
        uninstall(fresh)
