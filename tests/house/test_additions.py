"""In a copy of the project an op with gradient, a rule and a provider are added, by exactly the
files that CONTRIBUTING.md counts, built and used."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from . import sources

ADDED = Path(__file__).parent / "added"
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", "build", "out", "*.so", "_build_info.py", "__pycache__", "*.egg-info"
)

ENTRY = """  ops.op("ort::Radians")
      .in("x", kFloating)
      .out("y")
      .elementwise()
      .cheap()
      .defined_as([](Value x) { return x * (kPi / 180.0); })
      .gradient([](const Backward& b) { return unary("ort::Radians", b.dy()); });
"""
ROW = '    unary("ort::Radians", torch.deg2rad),\n'
TRANSLATION = """

@aten("deg2rad.default")
def deg2rad(t, x):
    return t.ort("Radians", x)
"""
RULE = """Rule double_not() {
  return rule("double_not")
      .match([](Pattern& p) { return logical_not(logical_not(p["x"])); })
      .rewrite([](const Match& m) { return m["x"]; });
}
"""
CASE = """
given: a negation of a negation
  graph (%x: float32[s0, 4] user, %z: float32[s0, 4] user)
    %p = Greater(%x, %z)
    %a = Not(%p)
    %b = Not(%a)
    %y = Where(%b, %x, %z)
  return ("y" = %y)
run: simplify
expect: Greater Where
"""
# File: (what stands there, what comes behind it); "" is the end.
OP = {
    "csrc/ops/elementwise.cpp": [("void register_functions(OpSet& ops) {\n", ENTRY)],
    "tests/ops/families/elementwise.py": [("\nOPS = [\n", ROW)],
    "ortmodule/translate/rules/elementwise.py": [("", TRANSLATION)],
    "tests/ortmodule/op_samples.py": [("\nUNARY = [\n", '    "deg2rad",\n')],
}
A_RULE = {
    "csrc/passes/rules/identity.cpp": [
        ("namespace ort::rules {\nnamespace {\n", RULE),
        ("Rules identity_rules() {\n  return {\n", "double_not(),\n"),
    ],
    "tests/graphs/identity.txt": [("", CASE)],
}
PROVIDER = {
    "providers/tenth/provider.cpp": "provider.cpp",
    "tests/providers/test_tenth.py": "tenth.py",
}


def add(root: Path) -> None:
    for name, insertions in (OP | A_RULE).items():
        text = (root / name).read_text()
        for anchor, more in insertions:
            assert not anchor or text.count(anchor) == 1, (name, anchor)
            text = text.replace(anchor, anchor + more) if anchor else text + more
        (root / name).write_text(text)
    for name, source in PROVIDER.items():
        (root / name).parent.mkdir(exist_ok=True)
        shutil.copy(ADDED / source, root / name)


def contents(root: Path) -> dict[str, bytes]:
    files = [f for f in root.rglob("*") if f.is_file()]
    return {f.relative_to(root).as_posix(): f.read_bytes() for f in files}


def copy(folder: Path) -> Path:
    return Path(shutil.copytree(sources.ROOT, folder / "copy", ignore=LEFT_OUT))


def test_four_files_two_files_and_a_folder(tmp_path):
    """What is changed is what CONTRIBUTING.md says, and each place to add at is there."""
    root = copy(tmp_path)
    before = contents(root)
    add(root)
    changed = {name for name, text in contents(root).items() if before.get(name) != text}
    assert changed == {*OP, *A_RULE, *PROVIDER}
    assert (len(OP), len(A_RULE), len(PROVIDER)) == (4, 2, 2)


@pytest.mark.long
def test_the_copy_builds_and_uses_them(tmp_path):
    root = copy(tmp_path)
    add(root)
    env = os.environ | {"CCACHE_BASEDIR": str(root), "CCACHE_NOHASHDIR": "1"}
    run = {"cwd": root, "env": env, "check": True}
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], **run)
    tests = ["tests/passes", "tests/providers/test_tenth.py", "tests/house/test_names.py"]
    pytest_ = [sys.executable, "-m", "pytest", "-q"]
    subprocess.run([*pytest_, "tests/ops/test_ops.py", "-k", "Radians"], **run)
    subprocess.run([*pytest_, "tests/ortmodule/translate", "-k", "deg2rad"], **run)
    subprocess.run([*pytest_, *tests], **run)
