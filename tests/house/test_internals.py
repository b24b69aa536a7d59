"""Torch's private names, and what is put in torch's place, are in one room of the Python side."""

import ast
from collections.abc import Iterator
from pathlib import Path

from . import sources

ROOM = "ortmodule/torch_internals/"


def files() -> list[Path]:
    found = sources.python_files("ortmodule", "optim", "distributed")
    return [f for f in found if not sources.name(f).startswith((ROOM, "setup.py"))]


def parts_of(node: ast.AST) -> list[str]:
    """The names of a dotted expression; none where it begins with anything but a name."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.insert(0, node.attr)
        node = node.value
    return [node.id, *names] if isinstance(node, ast.Name) else []


def of_torch(tree: ast.AST) -> dict[str, list[str]]:
    """What the names that a file imports from torch stand for."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            path = node.module.split(".")
            if path[0] == "torch":
                found |= {a.asname or a.name: [*path, a.name] for a in node.names}
        elif isinstance(node, ast.Import):
            for alias in node.names:
                path = alias.name.split(".")
                if path[0] == "torch":
                    found[alias.asname or "torch"] = path if alias.asname else ["torch"]
    return found


def of_the_room(tree: ast.AST) -> dict[str, list[str]]:
    """What a file imports from the room is torch's too."""
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level and n.module]
    found = [n for n in nodes if n.module.startswith("torch_internals.")]
    found = [n for n in found if not n.module.endswith((".entry", ".replace"))]
    return {a.asname or a.name: ["torch", a.name] for n in found for a in n.names}


def imported(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield from ((node.lineno, [*node.module.split("."), a.name]) for a in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, a.name.split(".")) for a in node.names)


def is_private(path: list[str]) -> bool:
    return path[0] == "torch" and any(n[0] == "_" and n[:2] != "__" for n in path)


def test_private_names_of_torch_are_in_their_room():
    found = []
    for path in files():
        tree = ast.parse(path.read_text())
        known = of_torch(tree)
        named = list(imported(tree))
        for node in ast.walk(tree):
            parts = parts_of(node) if isinstance(node, ast.Attribute) else []
            if parts and parts[0] in known:
                named.append((node.lineno, [*known[parts[0]], *parts[1:]]))
        found += [f"{sources.name(path)}:{at} {'.'.join(p)}" for at, p in named if is_private(p)]
    assert sorted(set(found)) == []


def test_what_stands_in_torchs_place_is_put_there_by_the_room():
    """No assignment to an attribute of torch's, and no setattr or patch of one."""
    found = []
    for path in files():
        tree = ast.parse(path.read_text())
        known = of_torch(tree) | of_the_room(tree)

        def is_torchs(node: ast.AST, known=known) -> bool:
            return bool(parts := parts_of(node)) and parts[0] in known

        for node in ast.walk(tree):
            targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else []
            written = any(isinstance(t, ast.Attribute) and is_torchs(t) for t in targets)
            calls = isinstance(node, ast.Call) and node.args and is_torchs(node.args[0])
            if written or (calls and parts_of(node.func)[-1:] in (["setattr"], ["delattr"])):
                found.append(f"{sources.name(path)}:{node.lineno}")
    assert found == []
