"""Where the user's code asks by `is` or `in` which object something is, and what of that no capture
holds. snapshot.py and finish.py ask here.
"""

import types
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..calls import tree
from ..calls.call import Call
from ..calls.exact import MADE_ANEW, is_nan, is_seen
from ..errors import NotCapturable
from .observation import OWN, facts_of, kind_of_file

if TYPE_CHECKING:
    from .snapshot import Snapshot

_Roots = Iterable[tuple[types.FunctionType | None, types.CodeType]]


def asked_of_values(roots: _Roots) -> Callable[[Any], bool] | None:
    """Of which values code may tell two equal ones apart: by `is` all that are no singletons, by
    `in` those that do not equal themselves; None: it does not ask."""
    own = [root for root in roots if _is_own(root[1])]
    if any(_line_of_is(*root) for root in own):
        return is_seen
    return is_nan if any(facts_of(code).compared for _, code in own) else None


def asks_of_containers(call: Call, roots: _Roots) -> types.CodeType | None:
    """The code that may ask whether a list, dict or object of the call's is one of the module's;
    None: none does, or the call has none but those of its arguments."""
    if len(call.containers) <= len(("args and kwargs", "kwargs")):
        return None
    own = (code for _, code in roots if _is_own(code))
    return next((c for c in own if facts_of(c).compared or facts_of(c).equated), None)


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
    code = asks_of_containers(call, snapshot.roots)
    if code is not None and snapshot.reaches(call.containers):
        raise NotCapturable(
            "forward compares objects (`is`, `in`, ==), and an argument holds one of the module's",
            file=code.co_filename, line=facts_of(code).compared or facts_of(code).equated,
        )  # fmt: skip
    seen = asked_of_values(snapshot.roots)
    given = (kind for part in call.spec.children for kind in _told_apart(part, seen))
    kind = next(given, None) if seen is not None else None
    if kind is not None:
        code = next(c for _, c in snapshot.roots if _is_own(c) and facts_of(c).compared)
        raise NotCapturable(
            f"forward asks by `is` or `in` for an object, and an argument has a {kind.__name__}, "
            "of which equal ones are several objects",
            file=code.co_filename, line=facts_of(code).compared,
        )  # fmt: skip


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


def _told_apart(spec: Any, seen: Callable[[Any], bool]) -> Iterator[type]:
    """The classes of the values in what an argument list holds that code tells apart; a tuple
    stands for itself too."""
    for child in spec.children:
        if isinstance(child, tree.Const) and seen(child.value):
            yield type(child.value)
        elif isinstance(child, tree.Number) and seen(child.type(1e9)):
            yield child.type
        elif isinstance(child, tree.Node):
            is_tuple = issubclass(child.type, (tuple, frozenset))
            made_anew = seen is is_seen and issubclass(child.type, MADE_ANEW)
            if made_anew or (is_tuple and seen(child.children or (child.content.extra,))):
                yield child.type
            yield from _told_apart(child, seen)
