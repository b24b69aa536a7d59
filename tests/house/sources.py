"""The source files that the house rules look at. Used by the tests of this folder."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE_FOLDERS = [
    "csrc",
    "gradient_graph",
    "providers",
    "ortmodule",
    "optim",
    "distributed",
    "tests",
    "tools",
    "benchmarks",
    "examples",
]


def cpp_files(*folders: str) -> list[Path]:
    return _files(folders or CODE_FOLDERS, {".h", ".cpp"})


def python_files(*folders: str) -> list[Path]:
    return [*_files(folders or CODE_FOLDERS, {".py"}), ROOT / "setup.py"]


def _files(folders, suffixes) -> list[Path]:
    found = []
    for folder in folders:
        found += [f for f in sorted((ROOT / folder).rglob("*")) if f.suffix in suffixes]
    return [f for f in found if "__pycache__" not in f.parts and f.name != "_build_info.py"]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def includes(path: Path) -> list[tuple[int, str]]:
    """(line, what) of every #include."""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        if match:
            found.append((number, match.group(1)))
    return found


def code(path: Path) -> str:
    """The file without comments; strings and line numbers stay."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'

    def blank(match):
        text = match.group(0)
        return text if text.startswith('"') else "\n" * text.count("\n")

    return re.sub(pattern, blank, path.read_text(), flags=re.DOTALL)
