"""The arguments of a call, built anew for a run of forward that learns what it does.

A container that forward changes is an effect like any: what is in it then is an output of the
graph, put into the caller's own after a run that succeeded.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ..errors import NeedsCut
from . import tree
from .containers import Content, kind_of


class Edit(NamedTuple):
    """What is in the `number`th container of a call's arguments afterwards."""

    number: int
    spec: tree.Node


class Arguments:
    """`args` and `kwargs` of a spec, of tensors that stand for the call's, and of its numbers."""

    def __init__(self, spec: Any, tensors: Sequence[torch.Tensor], numbers: Sequence[Any]):
        building = tree.Building(tensors, numbers=numbers)
        self.args, self.kwargs = building.value(spec)
        self.containers = building.containers
        self._before = list(map(_content, self.containers))

    def changed(self) -> list[int]:
        """The numbers of the containers in which there is something else now."""
        now = map(_content, self.containers)
        pairs = zip(self._before, now, strict=True)
        return [k for k, pair in enumerate(pairs) if not _same(*pair)]

    def words(self) -> list[str]:
        """What changed, for the words of a refusal."""
        return [
            f"a {type(self.containers[k]).__name__} among the arguments" for k in self.changed()
        ]


def _content(container: Any) -> Content | None:
    found = kind_of(container).content(container)
    return found and Content(found.keys, tuple(found.children), found.extra)


def _same(before: Content, now: Content | None) -> bool:
    if now is None or (before.keys, before.extra) != (now.keys, now.extra):
        return False
    pairs = zip(before.children, now.children, strict=False)
    return len(before.children) == len(now.children) and all(map(_is_same, pairs))


def _is_same(pair: tuple[Any, Any]) -> bool:
    before, now = pair
    if before is now:
        return True
    both = tree.is_constant(before) and tree.is_constant(now)
    return both and tree.Const(before) == tree.Const(now)


def flatten_effects(
    result: Any, given: Arguments, express: Any
) -> tuple[list[torch.Tensor], Any, list[Edit]]:
    """The tensors of the result and of what changed, in order, and the specs of both."""
    flattening = tree.Flattening(express, given.containers)
    try:
        spec = flattening.spec(result, "the result")
        edits = [
            Edit(k, flattening.content(given.containers[k], "a changed argument"))
            for k in given.changed()
        ]
    except tree.UnknownLeaf as error:
        raise NeedsCut(str(error)) from None
    return flattening.tensors, spec, edits


def outcome(spec: Any, edits: Sequence[Edit], building: tree.Building) -> Any:
    """The result, after what changed has been put into the containers that `building` was given."""
    result = building.value(spec)
    contents = [(edit, building.content(edit.spec)) for edit in edits]
    for edit, content in contents:
        edit.spec.kind.fill(building.containers[edit.number], content)
    return result
