"""Tensors of the traced program that may share memory: a Graph's values are never written.

Used by translator.py. A Storage is a piece of memory with its current value; a Ref is a tensor that
looks at it through a chain of view ops. A write through a view rebuilds the storage's value with
the views' inverses; refs that look at it afterwards replay their chain.
"""

from collections.abc import Callable
from typing import Any

from .registry import INVERSES


class Storage:
    """Memory: its value now, how often it was written, the graph input it came from, the traced
    tensor that was made in it, and whether it holds a cast that was not traced."""

    __slots__ = ("value", "version", "source", "tainted", "traced", "cast")

    def __init__(
        self,
        value: Any,
        tainted: bool = False,
        source: Any = None,
        traced: Any = None,
        cast: bool = False,
    ):
        self.value, self.version, self.source, self.tainted = value, 0, source, tainted
        self.traced, self.cast = traced, cast


class Link:
    """One view op between a base and its view."""

    __slots__ = ("name", "node", "rule", "args", "kwargs", "index")

    def __init__(self, name: str, node: Any, rule: Callable, args: tuple, kwargs: dict, index):
        self.name, self.node, self.rule = name, node, rule
        self.args, self.kwargs, self.index = args, kwargs, index

    def forward(self, t: Any, base: Any) -> Any:
        """The view of `base`."""
        if self.name == "detach.default":
            return t.stop(base)
        with t.at(self.node):
            out = self.rule(t, base, *self.args, **self.kwargs)
        return out if self.index is None else out[self.index]

    def backward(self, t: Any, base: Any, view: Any) -> Any:
        """`base` with the elements that the view shows replaced by `view`."""
        undo = INVERSES.get(self.name)
        if undo is None:
            t.refuse(f"forward writes through {self.name}, which cannot be undone", op=self.name)
        args = self.args if self.index is None else (self.index, *self.args)
        with t.at(self.node):
            return undo(t, base, view, *args, **self.kwargs)


class Ref:
    """A tensor: a storage seen through views."""

    __slots__ = ("storage", "links", "key", "_version", "_value")

    def __init__(self, storage: Storage, links: tuple = (), key: Any = None, value: Any = None):
        self.storage, self.links, self.key = storage, links, key
        self._version = storage.version if value is not None else -1
        self._value = value

    @property
    def tainted(self) -> bool:
        """Whether a gradient flows to it."""
        return self.storage.tainted and not self.is_detached

    @property
    def is_detached(self) -> bool:
        """Whether no gradient passes from it to its storage."""
        return any(link.name == "detach.default" for link in self.links)

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

    def look_through(self, link: Link) -> None:
        """Metadata written in place (t_): the same tensor, seen through one more view."""
        self.links = (*self.links, link)
        self._version = -1


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
