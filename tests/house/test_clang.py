"""Clang compiles the engine's headers: GCC checks some of a class only at a file's end."""

import shutil
import subprocess

import pytest

from . import sources

FOLDERS = [
    f"csrc/{f}"
    for f in ("core", "graph", "onnx", "ops", "passes", "plan", "runtime", "program", "session")
]
CLANG = shutil.which("clang++")


@pytest.mark.skipif(not CLANG, reason="needs clang++")
def test_clang_compiles_each_header(tmp_path):
    headers = [f for f in sources.cpp_files(*FOLDERS, "gradient_graph") if f.suffix == ".h"]
    unit = tmp_path / "headers.cpp"
    unit.write_text("".join(f'#include "{sources.name(header)}"\n' for header in headers))
    command = [CLANG, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    run = subprocess.run(
        [*command, "-I", sources.ROOT, unit], capture_output=True, text=True, cwd=tmp_path
    )
    assert len(headers) > 50 and run.returncode == 0, run.stderr
