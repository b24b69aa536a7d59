"""Tensors of the traced program that may share memory: a Graph's values are never written.

Used by translator.py. A Storage is a piece of memory with its current value; a Ref is a tensor that
looks at it through a chain of view ops. A write through a view rebuilds the storage's value with
the views' inverses, or where there is none at the positions that the view shows; refs that look at
it afterwards replay their chain.
"""

from typing import Any

from .positions import positions_of, put
from .registry import INVERSES, RULES

# Of a tensor whose views were made where gradients were off: it is a leaf that requires grad.
CUT_OFF = "cut off"
# Views that no gradient passes; the second shows the bytes as numbers of another dtype.
_WITHOUT_GRADIENT = ("detach.default", "view.dtype", CUT_OFF)


class Storage:
    """Memory: its value now, how often it was written, the graph input it came from, the traced
    tensor that was made in it, whether it holds a cast that was not traced, and whether it cannot
    change its size, as others show it too."""

    __slots__ = ("value", "version", "source", "tainted", "traced", "cast", "fixed")

    def __init__(
        self,
        value: Any,
        tainted: bool = False,
        source: Any = None,
        traced: Any = None,
        cast: bool = False,
    ):
        self.value, self.version, self.source, self.tainted = value, 0, source, tainted
        self.traced, self.cast, self.fixed = traced, cast, False


class Link:
    """One view op between a base and its view. `target`: the operator of `name`; `graded`: whether
    it was made where gradients were on."""

    __slots__ = ("name", "node", "target", "args", "kwargs", "index", "graded")

    def __init__(
        self, name: str, node: Any, target: Any, args: tuple, kwargs: dict, index, graded=True
    ):
        self.name, self.node, self.target = name, node, target
        self.args, self.kwargs, self.index, self.graded = args, kwargs, index, graded

    def forward(self, t: Any, base: Any) -> Any:
        """The view of `base`."""
        if self.name in ("detach.default", CUT_OFF):
            return t.stop(base)
        ref = Ref(Storage(base))
        with t.at(self.node):
            t.refs, rule = [ref, *self.args], RULES.get(self.name)
            out = NotImplemented if rule is None else rule(t, base, *self.args, **self.kwargs)
            if out is NotImplemented:
                t.target = self.target
                out = t.apply(self.name, [ref, *self.args], self.kwargs)
                out = out[0] if self.index is None and isinstance(out, (list, tuple)) else out
        return out if self.index is None else out[self.index]

    def backward(self, t: Any, base: Any, view: Any) -> Any:
        """`base` with the elements that the view shows replaced by `view`."""
        if self.name == CUT_OFF:
            return view
        args = self.args if self.index is None else (self.index, *self.args)
        undo = INVERSES.get(self.name)
        with t.at(self.node):
            new = NotImplemented if undo is None else undo(t, base, view, *args, **self.kwargs)
        if new is not NotImplemented:
            return new
        if self.name not in RULES or view.dtype != base.dtype:
            t.refuse(f"forward writes through {self.name}, which cannot be undone", op=self.name)
        return put(t, base, self.forward(t, positions_of(t, base)), view)


class Ref:
    """A tensor: a storage seen through views.

    `key`: of its memory as it is traced; `also`: of what was traced as a copy and is the tensor
    itself.
    """

    __slots__ = ("storage", "links", "key", "also", "_version", "_value")

    def __init__(self, storage: Storage, links: tuple = (), key: Any = None, value: Any = None):
        self.storage, self.links, self.key = storage, links, key
        self.also: frozenset = frozenset()
        self._version = storage.version if value is not None else -1
        self._value = value

    @property
    def tainted(self) -> bool:
        """Whether a gradient flows to it."""
        return self.storage.tainted and not self.is_detached

    @property
    def is_detached(self) -> bool:
        """Whether no gradient passes from it to its storage."""
        return any(link.name in _WITHOUT_GRADIENT for link in self.links)

    def read(self, t: Any) -> Any:
        """The tensor's value now."""
        if self._version != self.storage.version:
            value = self.storage.value
            for link in self.links:
                value = link.forward(t, value)
            self._value, self._version = value, self.storage.version
        return self._value

    def write(self, t: Any, value: Any, tainted: bool) -> None:
        """Makes `value` the tensor's value, and so changes its storage's."""
        storage, bases = self.storage, [self.storage.value]
        for link in self.links[:-1]:
            bases.append(link.forward(t, bases[-1]))
        new = value
        for link, base in zip(reversed(self.links), reversed(bases), strict=False):
            new = link.backward(t, base, new)
        storage.value = new
        storage.version += 1
        storage.tainted = storage.tainted or tainted
        self._value, self._version = value, storage.version

    def renew(self, storage: Storage) -> None:
        """Other memory, which it shows whole."""
        self.storage, self.links = storage, ()
        self._version, self._value = storage.version, storage.value

    def forget(self) -> None:
        """Its value is to be made anew of its storage's."""
        self._version = -1

    def look_through(self, link: Link) -> None:
        """Metadata written in place (t_): the same tensor, seen through one more view."""
        self.links = (*self.links, link)
        self.forget()


def any_tainted(tree: Any) -> bool:
    """Whether a gradient flows to any tensor among an op's arguments."""
    return any(isinstance(x, Ref) and x.tainted for x in leaves(tree))


def leaves(tree: Any) -> list[Any]:
    """What lists, tuples and dicts of an op's arguments hold."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        return [leaf for x in tree for leaf in leaves(x)]
    return [tree]
