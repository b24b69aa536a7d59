"""Imports between the packages of ortmodule/ go one way; each package says what it may import."""

import ast
import re

import pytest

from . import sources

# A package may import those before it. What stands in ortmodule/ itself is below all of them, with
# the door to torch's internals, but for what users import, which is above.
DOOR = "torch_internals"
ORDER = (
    "calls",
    "records",
    "guards",
    "side_effects",
    "translate",
    "python_ops",
    "lowbit",
    "capture",
    "graph_breaks",
    "dispatch",
    "attach",
    "custom_ops",
    "inference",
)
ABOVE = {"module", "export", "backend", "view", "lora"}
ROOM = sources.ROOT / "ortmodule"


def rank(parts: tuple[str, ...]) -> int:
    """Where a module of ortmodule stands in the order; its name comes as its parts."""
    if parts and parts[0] in ORDER:
        return 1 + ORDER.index(parts[0])
    return len(ORDER) + 1 if parts and parts[0] in ABOVE else 0


def imported(path) -> list[tuple[int, tuple[str, ...]]]:
    """(line, parts below ortmodule) of every import of the project, wherever it stands."""
    package = path.relative_to(sources.ROOT).parent.parts
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, tuple(a.name.split("."))) for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            found += [(node.lineno, (*base, a.name)) for a in node.names]
    return [(line, parts[1:]) for line, parts in found if parts[0] == "ortmodule"]


def test_imports_go_one_way():
    found = []
    for path in sorted(ROOM.rglob("*.py")):
        mine = path.relative_to(ROOM).with_suffix("").parts
        if mine == ("__init__",):
            continue
        for line, parts in imported(path):
            if rank(parts) > rank(mine) and parts[0] not in ("optim", "distributed"):
                found.append(f"{sources.name(path)}:{line} imports {'.'.join(parts)}")
    assert found == []


def test_the_order_is_all_packages():
    folders = {f.parent.name for f in ROOM.glob("*/__init__.py")}
    assert folders == {*ORDER, DOOR}
    assert {f.stem for f in ROOM.glob("*.py")} >= ABOVE


@pytest.mark.parametrize("package", [*ORDER, DOOR])
def test_a_package_says_what_it_does(package):
    """Its docstring: a sentence, what comes in and goes out, what it imports."""
    text = ast.get_docstring(ast.parse((ROOM / package / "__init__.py").read_text()))
    assert text is not None
    assert 3 <= len(text.splitlines()) <= 9
    says = re.search(r"^Imports (.*)$", text, re.MULTILINE)
    assert says, f"{package}/__init__.py does not say what it imports"
    if says[1].startswith(("every", "what")):
        return
    named = set(re.findall(r"[a-z_]+", says[1])) & set(ORDER)
    below = (p[0] for f in (ROOM / package).rglob("*.py") for _, p in imported(f) if p)
    assert {p for p in below if p in ORDER and p != package} == named
