"""What an op is stands in its entry: no list elsewhere names ops, no name is compared."""

import re

import pytest

from ortmodule import _native

from . import sources

# Rooms whose subject are single ops.
ROOMS = (
    "csrc/ops/",
    "csrc/passes/rules/",
    "csrc/onnx/edits.cpp",
    "csrc/onnx/lowest.cpp",
    "csrc/onnx/meanings.cpp",
    "csrc/onnx/upgrade.cpp",
    "csrc/program/body_kernel.cpp",  # one for each op that owns bodies
    "providers/",
    "ortmodule/translate/",
    "tests/",
    "benchmarks/",
    "tools/programs/",
)
# Making a node names its op.
MADE = r'(?:emit1?|unary|binary|reduce|op)\(\s*"[^"]*"|add_string\([^;]*?"[^"]*"'
NAMES = {schema["name"] for schema in _native.core().schemas()}
# Words that are ops' names and other things too: of our classes, of sympy's functions.
OTHER = {"Adam", "Sum", "Shape", "Size", "Split", "Where", "Check", "Range", "backward", "Gradient"}
SYMPY = {"ortmodule/records/sizes.py": {"Max", "Min", "Mod"}}


def compared(text: str) -> list[str]:
    """The ops that string literals of a source name, where none of them is made."""
    rest = re.sub(MADE, "", text, flags=re.DOTALL)
    literals = set(re.findall(r'"([A-Za-z_:]+)"', rest)) | set(re.findall(r"'([A-Za-z_:]+)'", rest))
    bare = {name.rpartition("::")[2] for name in NAMES} - OTHER
    found = literals & (NAMES - OTHER | bare)
    domains = re.findall(r'domain(?:\(\))?\s*[!=]=\s*"\w+"', rest)
    return sorted(found) + domains


def test_a_comparison_is_seen():
    assert compared('if (node.is("ort::Sizes")) f();') == ["ort::Sizes"]
    assert compared('static const std::set<std::string> kCheap{"Add", "Mul"};') == ["Add", "Mul"]
    assert compared('node.op.starts_with("Conv")') == ["Conv"]
    assert compared('node.domain() == "aten"') == ['domain() == "aten"']
    assert compared('graph.emit1("Add", {a, b}); unary("Neg", x)') == []


@pytest.mark.parametrize(
    "name, read", [("C++", sources.cpp_files), ("Python", sources.python_files)]
)
def test_no_op_is_named_outside_its_rooms(name, read):
    found = {}
    for path in read():
        if sources.name(path).startswith(ROOMS):
            continue
        text = sources.code(path) if name == "C++" else path.read_text()
        known = SYMPY.get(sources.name(path), set())
        if ops := [name for name in compared(text) if name not in known]:
            found[sources.name(path)] = ops
    assert found == {}


def files_that_name(op: str) -> list[str]:
    """All but benchmarks and tests of other things: tests of ops are its row."""
    files = [*sources.cpp_files(), *sources.python_files()]
    literal = re.compile(f'"(ort::)?{op.rpartition("::")[2]}"')
    named = [sources.name(f) for f in files if literal.search(f.read_text())]
    named = [f for f in named if not f.startswith("benchmarks/")]
    return [f for f in named if not f.startswith("tests/") or re.match("tests/ops/(?!test_)", f)]


@pytest.mark.parametrize("op", ["Mish", "Softsign", "Celu", "ort::HardTanh", "LpNormalization"])
def test_an_op_is_three_files(op):
    """Its entry, its row, its translation: whatever passes and plans know of it is in the entry."""
    found = files_that_name(op)
    rooms = ["csrc/ops/", "tests/ops/", "ortmodule/translate/"]
    assert len(found) <= 3
    assert [room for room in rooms[:2] if not any(f.startswith(room) for f in found)] == []
    assert [f for f in found if not f.startswith(tuple(rooms))] == []


RULES = sorted(f.stem for f in (sources.ROOT / "csrc/passes/rules").glob("*.cpp"))


@pytest.mark.parametrize("subject", RULES)
def test_a_rule_is_two_files(subject):
    """Its subject's file, which lists it, and its subject's cases: nothing else names it."""
    text = (sources.ROOT / f"csrc/passes/rules/{subject}.cpp").read_text()
    rules = re.findall(r"^Rule (\w+)\(\) \{", text, flags=re.M)
    assert rules, subject
    assert (sources.ROOT / f"tests/graphs/{subject}.txt").exists()
    core = [f for f in sources.cpp_files("csrc") if f.stem != subject]
    named = {
        (rule, sources.name(f))
        for rule in rules
        for f in core
        if re.search(rf"\b{rule}\(\)", f.read_text())
    }
    shared = {("pow_two", "csrc/passes/rules/rules.h"), ("pow_two", "csrc/passes/simplify.cpp")}
    assert named <= shared


def test_a_provider_is_one_folder():
    """The build takes each folder of providers; no list names one."""
    text = (sources.ROOT / "CMakeLists.txt").read_text()
    named = set(re.findall(r"providers/(\w+)", text))
    assert named == {"aten"}, "aten is a part of _torch, the others of the core"


# Words that were given up, and what is said instead (docs/glossary.md has those that stay).
RETIRED = {
    r"rehears\w*": "fake run",
    r"late size\w*": "data-dependent size",
    r"layout of a graph": "lowered graph",
    r"captures\.py": "dispatch",
}


def test_no_head_comment_has_a_retired_word():
    found = []
    for path in [*sources.cpp_files(), *sources.python_files()]:
        head = re.split(r"\n\s*\n(?=import|from|#include|#pragma)", path.read_text())[0][:2000]
        for word, instead in RETIRED.items():
            if path.name != "test_names.py" and re.search(rf"\b{word}\b", head, re.IGNORECASE):
                found.append(f"{sources.name(path)} says {word}, expected {instead}")
    assert found == []
