"""Where the user's code asks by `is` or `in` which object something is, and what of that no capture
holds. guards.py and finish.py ask here.
"""

import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from . import tree
from .call import Call
from .errors import NotCapturable
from .exact import is_nan, is_seen
from .observe import OWN, facts_of, kind_of_file

if TYPE_CHECKING:
    from .guards import Snapshot

_Roots = Iterable[tuple[types.FunctionType | None, types.CodeType]]


def asked_of_values(roots: _Roots) -> Callable[[Any], bool] | None:
    """Of which values code may tell two equal ones apart: by `is` all that are no singletons, by
    `in` those that do not equal themselves; None: it does not ask."""
    own = [root for root in roots if _is_own(root[1])]
    if any(_line_of_is(*root) for root in own):
        return is_seen
    return is_nan if any(facts_of(code).compared for _, code in own) else None


def check(call: Call, snapshot: "Snapshot") -> None:
    """Which object a traced argument is, `x is self.kept` would ask: only for registered tensors a
    trace tells it as eager. It has others in their place, but not where they are held besides. And
    a call's values are equal to those of the next one, but others."""
    for code, line in ((c, facts_of(c).compared) for _, c in snapshot.roots if _is_own(c)):
        path = snapshot.registered_elsewhere() if line else None
        if path is not None:
            raise NotCapturable(
                f"forward asks by `is` or `in` for an object, and {path} is a registered tensor",
                file=code.co_filename, line=line,
            )  # fmt: skip
    for tensor in call.tensors:
        path = snapshot.kept_at(tensor)
        if path is not None:
            raise NotCapturable(f"an argument is the tensor that is kept at {path}")
    seen = asked_of_values(snapshot.roots)
    given = [value for part in call.spec.children for value in _values(part)]
    value = next(filter(seen, given), None) if seen is not None else None
    if value is not None:
        kind = type(value).__name__
        raise NotCapturable(
            f"forward asks by `is` or `in` for an object, and an argument has a {kind}, "
            "of which equal ones are several objects"
        )


def _is_own(code: types.CodeType) -> bool:
    return kind_of_file(code.co_filename) == OWN


def _line_of_is(function: types.FunctionType | None, code: types.CodeType) -> int | None:
    """Where code first asks by `is` for what may be a value."""
    scope = function.__globals__ if function is not None else {}
    for path, line in facts_of(code).identities:
        value = scope.get(path[0]) if path else None
        for name in path[1:]:
            value = getattr(value, name, None) if isinstance(value, types.ModuleType) else None
        if value is None or is_seen(value):
            return line
    return None


def _values(spec: Any) -> Iterator[Any]:
    """The values in what an argument list holds; a tuple stands for itself too."""
    for child in spec.children:
        if isinstance(child, tree.Const):
            yield child.value
        elif isinstance(child, tree.Number):
            yield child.type(1e9)
        elif isinstance(child, tree.Node):
            if issubclass(child.type, (tuple, frozenset)):
                yield child.children or (child.content.extra,)
            yield from _values(child)
