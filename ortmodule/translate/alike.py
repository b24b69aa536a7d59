"""Which values are computed alike: what finds elements in one finds as many in the other."""

from collections.abc import Sequence
from typing import Any

_PLAIN = (int, float, str, bytes)


class Alike:
    """The values of one graph; a random op draws by its attributes, so each is its own."""

    def __init__(self, graph: Any):
        self._graph = graph
        self._keys: dict[int, tuple] = {}  # by the value's id
        self._numbers: dict[tuple, int] = {}  # keys by themselves, so that none grows
        self._kept: dict[tuple, Any] = {}

    def note(self, graph: Any, op: str, inputs: Sequence[Any], attrs: dict, outs: list) -> None:
        """`outs` are what `op` makes of these; elsewhere, or with other attributes, it is not
        known."""
        if graph is not self._graph or not all(map(_is_plain, attrs.values())):
            return
        made = (op, tuple(map(self._number, inputs)), repr(sorted(attrs.items())))
        for i, out in enumerate(outs):
            self._keys[out.id] = (*made, i)

    def once(self, graph: Any, x: Any, make: Any) -> Any:
        """make(x), or what it gave for a value computed like x."""
        if graph is not self._graph:
            return make(x)
        key = self._number(x)
        if key not in self._kept:
            self._kept[key] = make(x)
        return self._kept[key]

    def _number(self, value: Any) -> int:
        """The same for values that are computed alike."""
        if value is None:
            return -1
        key = self._keys.get(value.id)
        if key is None:
            known = value.contents
            key = ("value", value.id) if known is None else ("known", value.type, repr(known))
        return self._numbers.setdefault(key, len(self._numbers))


def _is_plain(attr: Any) -> bool:
    items = attr if isinstance(attr, (list, tuple)) else [attr]
    return all(isinstance(item, _PLAIN) for item in items)
