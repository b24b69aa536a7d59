"""The smallest program that still fails in the same way: parts of its syntax tree are removed.

`shrink(text, fails)`: `fails(text)` says whether a text still does. It knows Python alone and
nothing of what programs are about. Used by __main__.py.
"""

import ast
from collections.abc import Callable, Iterator

TRIES = 600


def shrink(text: str, fails: Callable[[str], bool], tries: int = TRIES) -> str:
    """Removes what can be removed until a pass over all of it finds nothing more."""
    left = [tries]
    seen: set[str] = set()

    def holds(candidate: str) -> bool:
        if candidate in seen or left[0] <= 0:
            return False
        seen.add(candidate)
        left[0] -= 1
        return fails(candidate)

    plain = ast.unparse(ast.parse(text))
    text = plain if holds(plain) else text
    changed = True
    while changed and left[0] > 0:
        changed = False
        for edits in EDITS:
            at = 0
            while True:  # an edit that holds changes what the later ones are: go on at its place
                candidate = _nth(edits(ast.parse(text)), at)
                if candidate is None:
                    break
                if candidate != text and holds(candidate):
                    text, changed = candidate, True
                else:
                    at += 1
    return text


def _nth(candidates: Iterator[str], at: int) -> str | None:
    for k, candidate in enumerate(candidates):
        if k == at:
            return candidate
    return None


def _bodies(tree: ast.AST) -> list[list]:
    found = []
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody", "handlers"):
            body = getattr(node, field, None)
            if isinstance(body, list) and body:
                found.append(body)
    return found


def without_statements(tree: ast.Module) -> Iterator[str]:
    """Runs of statements left out, long ones first."""
    bodies = _bodies(tree)
    longest = max(len(b) for b in bodies)
    size = 1 << longest.bit_length()
    while size:
        for body in bodies:
            if size > max(len(body), 1):
                continue
            for at in range(0, len(body), size):
                kept = body[:]
                del body[at : at + size]
                filler = not body and body is not tree.body
                if filler:
                    body.append(ast.Pass())
                yield _text(tree)
                body[:] = kept
        size //= 2


def simpler_statements(tree: ast.Module) -> Iterator[str]:
    """Compound statements replaced by what is in them."""
    for body in _bodies(tree):
        for at, node in enumerate(body):
            inner = [getattr(node, f, None) for f in ("body", "orelse")]
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                continue
            for part in inner:
                if isinstance(part, list) and part:
                    kept = body[:]
                    body[at : at + 1] = part
                    yield _text(tree)
                    body[:] = kept


def without_variables(tree: ast.Module) -> Iterator[str]:
    """A variable replaced by its value; of several that one statement sets only one."""
    for body in _bodies(tree):
        for at, node in enumerate(body):
            if not isinstance(node, ast.Assign) or len(node.targets) != 1:
                continue
            target = node.targets[0]
            if isinstance(target, ast.Tuple):
                for kept in target.elts:
                    node.targets = [kept]
                    yield from _instead(
                        tree, lambda _, new, n=node: setattr(n, "value", new), 0, node.value
                    )
                node.targets = [target]
            elif isinstance(target, ast.Name):
                changed = ast.parse(ast.unparse(tree))
                other = _bodies(changed)[_bodies(tree).index(body)]
                value = other.pop(at).value
                yield _text(_Put(target.id, value).visit(changed))


class _Put(ast.NodeTransformer):
    """A variable's value in each place where it is read."""

    def __init__(self, name: str, value: ast.expr):
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        read = node.id == self.name and isinstance(node.ctx, ast.Load)
        return self.value if read else node


def without_parameters(tree: ast.Module) -> Iterator[str]:
    """A parameter left out of definitions, and what has its name left out of calls."""
    names = {a.arg for node in ast.walk(tree) if isinstance(node, ast.arguments) for a in node.args}
    for name in sorted(names):
        changed = ast.parse(ast.unparse(tree))
        for node in ast.walk(changed):
            if isinstance(node, ast.arguments):
                node.args = [a for a in node.args if a.arg != name]
            elif isinstance(node, ast.Call):
                node.args = [a for a in node.args if not _is_name(a, name)]
                node.keywords = [k for k in node.keywords if k.arg != name]
        yield _text(changed)


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def simpler_expressions(tree: ast.Module) -> Iterator[str]:
    """Each expression replaced by one inside of it; arguments and items left out; small numbers."""
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                yield from _fewer(tree, value)
                for at, item in enumerate(value):
                    if isinstance(item, ast.expr):
                        yield from _instead(tree, value.__setitem__, at, item)
            elif isinstance(value, ast.expr):
                yield from _instead(
                    tree, lambda key, new, node=node: setattr(node, key, new), name, value
                )


def _fewer(tree, items: list) -> Iterator[str]:
    """Without one argument, item or keyword. Statements are removed elsewhere."""
    if not all(isinstance(x, (ast.expr, ast.keyword, ast.arg)) for x in items):
        return
    for at in range(len(items)):
        kept = items[:]
        del items[at]
        yield _text(tree)
        items[:] = kept


def _instead(tree, put, key, value) -> Iterator[str]:
    for new in _smaller(value):
        put(key, new)
        yield _text(tree)
        put(key, value)


def _smaller(value: ast.expr) -> list:
    if isinstance(value, ast.Constant):
        if type(value.value) is int and value.value > 0:
            return [
                ast.Constant(n)
                for n in sorted({0, 1, value.value // 2, value.value - 1})
                if n < value.value
            ]
        return []
    inner = [c for c in ast.iter_child_nodes(value) if isinstance(c, ast.expr)]
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        inner.insert(0, value.func.value)  # a method's object
    return inner


def _text(tree) -> str:
    try:
        return ast.unparse(ast.fix_missing_locations(tree))
    except Exception:  # a tree that is no program
        return ""


EDITS = (
    without_statements,
    simpler_statements,
    without_parameters,
    without_variables,
    simpler_expressions,
)
