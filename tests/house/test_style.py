"""Sizes of files and functions, opening comments, clang-format and ruff."""

import shutil
import subprocess
import sys
from pathlib import Path

import lizard
import pytest

from . import sources

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
MAX_FOLDER_FILES = 24


def all_files():
    return [*sources.cpp_files(), *sources.python_files()]


def tool(program: str) -> str:
    """A pinned tool of this environment, or the one on the PATH."""
    beside = Path(sys.executable).parent / program
    found = str(beside) if beside.exists() else shutil.which(program)
    if not found:
        pytest.fail(f"{program} is missing: pip install -r requirements/dev.txt")
    return found


def test_files_are_short():
    lengths = {sources.name(f): len(f.read_text().splitlines()) for f in all_files()}
    assert {f: n for f, n in lengths.items() if n > MAX_FILE_LINES} == {}


def long_functions(path: Path) -> list[str]:
    found = []
    for function in lizard.analyze_file(str(path)).function_list:
        lines = function.end_line - function.start_line + 1
        if lines > MAX_FUNCTION_LINES:
            found.append(f"{path}:{function.start_line} {function.name} has {lines} lines")
    return found


def test_functions_are_short():
    assert [line for f in all_files() for line in long_functions(f)] == []


def test_a_long_function_is_seen(tmp_path):
    for suffix, head, tail in ((".cpp", "int f() {", "}"), (".py", "def f():", "")):
        path = tmp_path / f"long{suffix}"
        path.write_text("\n".join([head, *["  g();"] * MAX_FUNCTION_LINES, tail]) + "\n")
        assert len(long_functions(path)) == 1, path


def test_files_say_what_they_are():
    """Each file opens with a comment (C++) or a docstring (Python): what is here, who calls it."""
    starts = {".h": "//", ".cpp": "//", ".py": ('"""', "#!", 'r"""')}
    bare = [
        sources.name(f)
        for f in all_files()
        if f.read_text().strip() and not f.read_text().startswith(starts[f.suffix])
    ]
    assert bare == []


def test_clang_format_is_clean():
    files = [str(f) for f in sources.cpp_files()]
    command = [tool("clang-format"), "--dry-run", "--Werror", *files]
    done = subprocess.run(command, capture_output=True, text=True, cwd=sources.ROOT)
    assert done.returncode == 0, done.stderr[-4000:] + "\nrun `make fmt`"


@pytest.mark.parametrize("arguments", [["check"], ["format", "--check"]], ids=["check", "format"])
def test_ruff_is_clean(arguments):
    command = [tool("ruff"), *arguments, "-q", "."]
    done = subprocess.run(command, capture_output=True, text=True, cwd=sources.ROOT)
    assert done.returncode == 0, done.stdout[-4000:] + "\nrun `make fmt`"


def test_folders_are_small():
    """A header and its source are one; so are tests of one subject."""
    found: dict[Path, set[str]] = {}
    for path in [*sources.cpp_files(), *sources.python_files()]:
        found.setdefault(path.parent, set()).add(path.stem.removesuffix("-inl"))
    sizes = {sources.name(folder): len(stems) for folder, stems in found.items()}
    assert {name: size for name, size in sizes.items() if size > MAX_FOLDER_FILES} == {}
