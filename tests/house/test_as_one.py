"""Files that are compiled as one: no helper hides another's, and each could stand alone."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from . import sources

BUILD = sources.ROOT / "build" / "current"
# What a line at a file's outermost level defines.
TYPE = re.compile(r"(?:template <.*> )?(?:struct|class|enum class|enum) (\w+)\b[^;]*\{")
OTHER = re.compile(
    r"(?!namespace|using|template|struct|class|enum|return)(?:[\w:<>,&*]+ )+"
    r"[&*]*(\w+)(?:\[\w*\])?(?:[({]| = )"
)


def united() -> dict[str, list]:
    """The files that the build compiles with others, by folder."""
    found: dict[str, list] = {}
    commands = json.loads((BUILD / "compile_commands.json").read_text())
    for unit in (c["file"] for c in commands if "/Unity/" in c["file"]):
        for path in map(Path, re.findall(r'#include "(.+)"', Path(unit).read_text())):
            found.setdefault(sources.name(path.parent), []).append(path)
    return found


def helpers(path) -> set[str]:
    """What an unnamed namespace of this file, or a line with static or const, defines."""
    found, own = set(), False
    text = re.sub(r'R"\(.*?\)"', '""', sources.code(path), flags=re.DOTALL)  # of CUDA's kernels
    for line in text.splitlines():
        if line.startswith(("namespace", "}  ")):  # before the comment at a namespace's end
            own = line == "namespace {"
        if own or line.startswith(("static ", "const ")):
            match = TYPE.match(line) or OTHER.match(line)
            found |= {match.group(1)} if match else set()
    return found


def test_no_two_helpers_of_a_folder_have_one_name():
    clashes = []
    for folder, files in united().items():
        homes: dict[str, list[str]] = {}
        for file in files:
            for helper in helpers(file):
                homes.setdefault(helper, []).append(file.name)
        clashes += [f"{folder}: {n} in {at}" for n, at in homes.items() if len(at) > 1]
    assert not clashes, "one of them could be called in the other's place:\n" + "\n".join(clashes)


def test_helpers_are_found(tmp_path):
    (tmp_path / "a.cpp").write_text(
        "namespace ort {\nnamespace {\n\nstruct Case {\n  int own(int x) {\n  }\n};\n\n"
        "const void* memory_of(const T& t) {\n}\n\nconstexpr int kMost = 3;\n\n"
        "template <class T>\nstd::vector<T> list_of(int x) {\n}\n\n}  // namespace\n\n"
        "int seen(int x) {\n}\n\nconst Family<OpSet> kOps(\n    1);\n\n"
        'const char kText[] = R"(\nnamespace {\nstruct Args {\n};\n)";\n\n}  // namespace ort\n'
    )
    assert helpers(tmp_path / "a.cpp") == {"Case", "memory_of", "kMost", "list_of", "kOps", "kText"}


@pytest.mark.long
def test_each_file_compiles_alone(tmp_path):
    options = json.loads((BUILD / "options.json").read_text())
    given = [f"-D{name}={value}" for name, value in options.items()]
    command = ["cmake", "-S", sources.ROOT, "-B", tmp_path, *given, "-DORT_APART=ON"]
    subprocess.run(command, check=True, capture_output=True)
    files = {str(file) for files in united().values() for file in files}
    failed = []
    for unit in json.loads((tmp_path / "compile_commands.json").read_text()):
        if unit["file"] in files and "ort_fuzzed" not in unit["command"]:
            alone = [*shlex.split(unit["command"]), "-fsyntax-only"]
            files.discard(unit["file"])
            run = subprocess.run(alone, cwd=unit["directory"], capture_output=True, text=True)
            failed += [run.stderr] if run.returncode else []
    assert not files and not failed, "\n".join([*files, *failed])
