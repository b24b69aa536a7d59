"""Builds the extension modules with CMake, for wheels and for `build_ext --inplace` alike.

What only Python knows is found here and handed to CMakeLists.txt: where torch, oneDNN and pybind11
are in the building environment (an isolated one included). ortmodule/_build_info.py records it.
"""

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
DNNL_PACKAGE = "onednn-devel-cpu-gomp"
OLDEST_TORCH = (2, 11)  # requirements/dev.txt pins it, so `make test` runs on it


def dnnl_prefix() -> Path:
    """The prefix that oneDNN's headers lie under; not always sys.prefix (isolated builds)."""
    try:
        files = importlib.metadata.distribution(DNNL_PACKAGE).files or []
    except importlib.metadata.PackageNotFoundError:
        sys.exit(f"error: {DNNL_PACKAGE} is missing: pip install {DNNL_PACKAGE}==2023.2.0")
    header = next(f for f in files if f.as_posix().endswith("include/dnnl.hpp"))
    return Path(header.locate()).resolve().parent.parent


def torch_options() -> dict[str, str]:
    """Where torch is; empty without torch (then _torch is not built). Does not import it: slow."""
    spec = importlib.util.find_spec("torch")
    if spec is None:
        return {"ORT_TORCH_DIR": "", "ORT_TORCH_VERSION": ""}
    folder = Path(spec.origin).parent
    text = (folder / "version.py").read_text()
    version = re.search(r"__version__ = ['\"](.+?)['\"]", text).group(1)
    if tuple(map(int, version.split(".")[:2])) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        sys.exit(f"error: ortmodule needs torch {oldest} or newer, the environment has {version}")
    return {"ORT_TORCH_DIR": str(folder), "ORT_TORCH_VERSION": version}


def torch_abi(options: dict[str, str]) -> str:
    """Its _GLIBCXX_USE_CXX11_ABI, asked once a configuration."""
    if not options["ORT_TORCH_DIR"]:
        return "1"
    import torch

    return str(int(torch._C._GLIBCXX_USE_CXX11_ABI))


def mpi_compiler() -> str:
    """MPICXX of the environment, or the system's mpicxx; empty without (then _mpi is not built)."""
    return shutil.which(os.environ.get("MPICXX", "mpicxx")) or ""


def cmake_options(version: str) -> dict[str, str]:
    import pybind11

    return {
        "ORT_VERSION": version,
        "ORT_DNNL_PREFIX": str(dnnl_prefix()),
        "ORT_PYTHON_INCLUDE": sysconfig.get_path("include"),
        "ORT_PYTHON_SUFFIX": sysconfig.get_config_var("EXT_SUFFIX"),
        "ORT_PYBIND11_INCLUDE": pybind11.get_include(),
        "CMAKE_BUILD_TYPE": "Debug" if os.environ.get("DEBUG") == "1" else "Release",
        "ORT_MPICXX": mpi_compiler(),
        **torch_options(),
    }


def build_folder(options: dict[str, str]) -> Path:
    """One CMake tree for each Python and torch; build/current points at the latest."""
    inside = Path(options["ORT_DNNL_PREFIX"]).is_relative_to(Path(sys.prefix).resolve())
    tag = sysconfig.get_config_var("SOABI").split("-x86")[0]
    torch = options["ORT_TORCH_VERSION"].partition("+")[0]
    name = f"{tag}-torch{torch or '-none'}"
    return ROOT / "build" / (name if inside else f"isolated-{name}")


def configure(folder: Path, options: dict[str, str]) -> dict[str, str]:
    """Runs cmake when an option changed (globs re-run it by themselves); returns all options."""
    stamp = folder / "options.json"
    if stamp.exists():
        old = json.loads(stamp.read_text())
        if options.items() <= old.items():
            return old
    folder.mkdir(parents=True, exist_ok=True)
    options = {**options, "ORT_TORCH_CXX11_ABI": torch_abi(options)}
    command = ["cmake", "-S", str(ROOT), "-B", str(folder)]
    if shutil.which("ninja") and not (folder / "Makefile").exists():
        command += ["-G", "Ninja"]
    subprocess.run([*command, *(f"-D{k}={v}" for k, v in options.items())], check=True)
    stamp.write_text(json.dumps(options, indent=1))
    return options


def write_build_info(folder: Path, options: dict[str, str]) -> None:
    text = (
        '"""Written by setup.py: what the extension modules were built for."""\n\n'
        f"VERSION = {options['ORT_VERSION']!r}\n"
        f"TORCH_VERSION = {options['ORT_TORCH_VERSION'] or None!r}\n"
        f"TORCH_CXX11_ABI = {options['ORT_TORCH_CXX11_ABI'] == '1'!r}\n"
        f"MPICXX = {options['ORT_MPICXX'] or None!r}\n"
    )
    path = folder / "_build_info.py"
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


class CleanBuild(build):
    """Starts a wheel from an empty folder: setuptools would pack files deleted long ago."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


class CMakeBuild(build_ext):
    """Configures, builds and copies the libraries next to ortmodule/__init__.py."""

    def run(self) -> None:
        inplace = self.inplace or self.editable_mode
        target = ROOT / "ortmodule" if inplace else Path(self.build_lib).resolve() / "ortmodule"
        target.mkdir(parents=True, exist_ok=True)
        options = cmake_options(self.distribution.get_version())
        folder = build_folder(options)
        options = configure(folder, options)
        jobs = os.environ.get("JOBS") or str(len(os.sched_getaffinity(0)))
        subprocess.run(["cmake", "--build", str(folder), "-j", jobs], check=True)
        install = ["cmake", "--install", str(folder), "--component", "python"]
        install += ["--prefix", str(target)]
        subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
        write_build_info(target, options)
        if inplace:
            current = ROOT / "build" / "current"
            current.unlink(missing_ok=True)
            current.symlink_to(folder.name)

    def get_outputs(self) -> list[str]:
        folder = Path(self.build_lib) / "ortmodule"
        return [str(f) for f in [*folder.glob("*.so"), folder / "_build_info.py"]]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class BinaryDistribution(Distribution):
    def has_ext_modules(self) -> bool:
        return True


PACKAGE_DIR = {
    "ortmodule": "ortmodule",
    "ortmodule.optim": "optim",
    "ortmodule.distributed": "distributed",
}


def packages() -> list[str]:
    """Every folder with an __init__.py below the three roots."""
    found = []
    for name, folder in PACKAGE_DIR.items():
        for init in sorted((ROOT / folder).rglob("__init__.py")):
            inner = init.parent.relative_to(ROOT / folder).parts
            found.append(".".join([name, *inner]))
    return found


setup(
    packages=packages(),
    package_dir=PACKAGE_DIR,
    package_data={"ortmodule": ["py.typed"], "": ["*.html", "*.css", "*.js"]},
    ext_modules=[Extension("ortmodule._C", [])],
    cmdclass={"build": CleanBuild, "build_ext": CMakeBuild},
    distclass=BinaryDistribution,
)
