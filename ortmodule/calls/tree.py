"""Flattens arguments and results to a list of tensors and a hashable spec, and builds them back.

Called by call.py, and by flat_module.py inside of a trace. Nothing is registered in
torch's pytree: what a user's process sees of it stays as it was.
"""

import enum
import itertools
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from .containers import Attribute, Container, Content, kind_of
from .exact import exact

_BY_VALUE = (
    type(None), bool, int, str, bytes, torch.dtype, torch.device, torch.layout,
    torch.memory_format, range, type, type(Ellipsis), enum.Enum,
)  # fmt: skip
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
# A call with more containers is not told apart from others by what is in them.
_MOST = 10_000


class UnknownLeaf(TypeError):
    """A value that is neither a tensor, a known container nor a constant we can compare."""


class Const:
    """A leaf that is no tensor; equal to another when type and value are (nan equals nan)."""

    __slots__ = ("value", "key")

    def __init__(self, value: Any):
        self.value = value
        self.key = exact(value)

    def __eq__(self, other):
        return isinstance(other, Const) and self.key == other.key

    def __hash__(self):
        return hash(self.key)

    def __repr__(self):
        return f"Const({self.value!r})"


class Symbol:
    """A size, or a value made of sizes, that the captured module returned; an expression."""

    __slots__ = ("expression", "type")

    def __init__(self, expression: str, kind: type):
        self.expression, self.type = expression, kind

    def __eq__(self, other):
        return isinstance(other, Symbol) and self.expression == other.expression

    def __hash__(self):
        return hash(self.expression)

    def __repr__(self):
        return f"Symbol({self.expression})"


class _Tensor:
    """Stands for the next tensor of the flat list."""

    def __repr__(self):
        return "*"


TENSOR = _Tensor()


class Number:
    """Stands for a number that is a symbol of the capture, the `place`th of a call's."""

    __slots__ = ("place", "type")

    def __init__(self, place: int, kind: type):
        self.place, self.type = place, kind

    def __eq__(self, other):
        return isinstance(other, Number) and (self.place, self.type) == (other.place, other.type)

    def __hash__(self):
        return hash((self.place, self.type))

    def __repr__(self):
        return f"Number({self.place})"


class Met:
    """Stands for a container that came before, the `number`th of those that can be written to."""

    __slots__ = ("number",)

    def __init__(self, number: int):
        self.number = number

    def __eq__(self, other):
        return isinstance(other, Met) and self.number == other.number

    def __hash__(self):
        return self.number

    def __repr__(self):
        return f"Met({self.number})"


class Node:
    """A container in a spec: how to build it (`kind`, `type`, `content`) and what of: the children
    of its content are specs."""

    __slots__ = ("kind", "type", "content", "_hash")

    def __init__(self, kind: Container, of: type, content: Content):
        self.kind, self.type, self.content = kind, of, content
        self._hash = hash((of, content))

    @property
    def children(self) -> tuple:
        return self.content.children

    def __eq__(self, other):
        return self is other or (
            isinstance(other, Node)
            and self._hash == other._hash
            and self.type is other.type
            and self.content == other.content
        )

    def __hash__(self):
        return self._hash

    def __repr__(self):
        keys = self.content.keys or range(len(self.children))
        inner = ", ".join(f"{k}={c!r}" for k, c in zip(keys, self.children, strict=False))
        return f"{self.type.__name__}({inner})"


class Flattening:
    """Specs of values that may share containers.

    `tensors`: those found so far, in order; `containers`: those that can be written to, which begin
    with `given`. `express` turns a symbolic size into an expression; without it symbolic sizes are
    unknown leaves.
    """

    def __init__(self, express: Callable[[Any], str] | None = None, given: Iterable[Any] = ()):
        self.tensors: list[torch.Tensor] = []
        self.containers = list(given)
        self._express = express
        self._numbers = {id(value): k for k, value in enumerate(self.containers)}

    def spec(self, value: Any, where: str) -> Any:
        """Raises UnknownLeaf naming the path, which begins with `where`, and the type."""
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            return TENSOR
        if isinstance(value, _SYMBOLIC) and self._express is not None:
            return Symbol(self._express(value), type(value))
        if is_constant(value):
            return Const(value)
        if id(value) in self._numbers:
            return Met(self._numbers[id(value)])
        kind, content = _opened(value, where)
        if kind.fill is not None:
            self._numbers[id(value)] = len(self.containers)
            self.containers.append(value)
            if len(self.containers) > _MOST:
                raise UnknownLeaf(f"{where} is one of more than {_MOST} containers")
        return self._node(kind, value, content, where)

    def content(self, value: Any, where: str) -> Node:
        """The spec of a container as if it had not come before."""
        kind, content = _opened(value, where)
        return self._node(kind, value, content, where)

    def _node(self, kind: Container, value: Any, content: Content, where: str) -> Node:
        keys = content.keys or range(len(content.children))
        children = tuple(
            self.spec(child, _path(where, key))
            for key, child in zip(keys, content.children, strict=True)
        )
        return Node(kind, type(value), Content(content.keys, children, content.extra))


class Building:
    """Values of specs that may share containers; `containers`: those that can be written to, which
    begin with `given`. `evaluate` gives each Symbol's value; `numbers`: those of a call."""

    def __init__(
        self,
        tensors: Sequence[torch.Tensor],
        evaluate: Callable[[Symbol], Any] | None = None,
        given: Iterable[Any] = (),
        numbers: Sequence[Any] = (),
    ):
        self.containers = list(given)
        self._rest, self._evaluate, self._numbers = iter(tensors), evaluate, numbers

    def value(self, spec: Any) -> Any:
        """Raises StopIteration where there is no tensor for one."""
        if spec is TENSOR:
            return next(self._rest)
        if isinstance(spec, Const):
            return spec.value
        if isinstance(spec, Symbol):
            return self._evaluate(spec)
        if isinstance(spec, Number):
            return self._numbers[spec.place]
        if isinstance(spec, Met):
            return self.containers[spec.number]
        if spec.kind.fill is None:
            return spec.kind.build(spec.type, self.content(spec))
        made = spec.kind.empty(spec.type, spec.content.extra)
        self.containers.append(made)
        spec.kind.fill(made, self.content(spec))
        return made

    def content(self, node: Node) -> Content:
        """What is in a container of this spec."""
        keys, children, extra = node.content
        return Content(keys, [self.value(child) for child in children], extra)

    def ended(self) -> bool:
        """Whether no tensor is left."""
        return next(self._rest, None) is None


def flatten(
    value: Any, where: str = "value", express: Callable[[Any], str] | None = None
) -> tuple[list[torch.Tensor], Any]:
    """The tensors of `value` in order and its spec; `where` names it in errors."""
    flattening = Flattening(express)
    spec = flattening.spec(value, where)
    return flattening.tensors, spec


def unflatten(
    spec: Any,
    tensors: Sequence[torch.Tensor],
    evaluate: Callable[[Symbol], Any] | None = None,
) -> Any:
    """Builds the value that `spec` describes from `tensors`.

    Raises ValueError when the count of tensors is not the spec's.
    """
    building = Building(tensors, evaluate)
    try:
        value = building.value(spec)
        if building.ended():
            return value
    except StopIteration:
        pass
    raise ValueError(
        f"[unflatten] got {len(tensors)} tensors, expected {count_tensors(spec)}; spec {spec}"
    )


def count_tensors(spec: Any) -> int:
    """The number of tensors that `spec` takes."""
    if spec is TENSOR:
        return 1
    return sum(map(count_tensors, spec.children)) if isinstance(spec, Node) else 0


def without_numbers(spec: Any) -> Any:
    """`spec` with the type in place of each int and float, and of an array's elements."""
    if isinstance(spec, Const):
        return Const(type(spec.value)) if type(spec.value) in (int, float) else spec
    if not isinstance(spec, Node):
        return spec
    keys, children, extra = spec.content
    extra = extra[:-1] if spec.type is np.ndarray else extra
    return Node(spec.kind, spec.type, Content(keys, tuple(map(without_numbers, children)), extra))


def containers(value: Any) -> list[Any]:
    """The lists, dicts and objects of `value` that somebody may write to; of what is no container
    that could be built, none."""
    found: dict[int, Any] = {}
    waiting = [value]
    while waiting:
        value = waiting.pop()
        kind = None if is_constant(value) or isinstance(value, torch.Tensor) else kind_of(value)
        content = kind and kind.content(value)
        if content is None or id(value) in found:
            continue
        if kind.fill is not None:
            found[id(value)] = value
        waiting += content.children
    return list(found.values())


def has_met(spec: Any) -> bool:
    """Whether it refers to a container that came before it."""
    return isinstance(spec, Met) or (isinstance(spec, Node) and any(map(has_met, spec.children)))


def classes(spec: Any) -> set[type]:
    """Of the containers."""
    if not isinstance(spec, Node):
        return set()
    return {spec.type}.union(*map(classes, spec.children))


def numbers(spec: Any) -> list[int | float]:
    """The ints and floats, in order."""
    if isinstance(spec, Const):
        return [spec.value] if type(spec.value) in (int, float) else []
    return [n for child in spec.children for n in numbers(child)] if isinstance(spec, Node) else []


def with_symbols(spec: Any, chosen: Sequence[int]) -> Any:
    """`spec` with symbols for those of its numbers that have these places."""
    places = {place: k for k, place in enumerate(chosen)}
    count = itertools.count()

    def replaced(spec: Any) -> Any:
        if isinstance(spec, Node):
            keys, children, extra = spec.content
            return Node(spec.kind, spec.type, Content(keys, tuple(map(replaced, children)), extra))
        if not isinstance(spec, Const) or type(spec.value) not in (int, float):
            return spec
        place = places.get(next(count))
        return spec if place is None else Number(place, type(spec.value))

    return replaced(spec)


def tensor_paths(spec: Any, where: str = "value") -> list[str]:
    """The path of each tensor of `spec`, in order, as in `kwargs['input_ids']`; then of each number
    that is a symbol."""
    leaves = list(_leaves(spec, where))
    paths = [path for leaf, path in leaves if leaf is TENSOR]
    return paths + [path for leaf, path in leaves if isinstance(leaf, Number)]


def _leaves(spec: Any, where: str) -> Iterator[tuple[Any, str]]:
    if not isinstance(spec, Node):
        yield spec, where
        return
    keys = spec.content.keys or range(len(spec.children))
    for key, child in zip(keys, spec.children, strict=False):
        yield from _leaves(child, _path(where, key))


def is_constant(value: Any) -> bool:
    """Whether it is a leaf that calls are told apart by."""
    if isinstance(value, (*_BY_VALUE, float, complex, slice, np.generic)):
        return not isinstance(value, _SYMBOLIC)
    return isinstance(value, _FUNCTIONS) and _is_found_by_name(value)


def _is_found_by_name(function: Any) -> bool:
    """Whether there is one of it, not one of each call."""
    module = sys.modules.get(function.__module__)
    return getattr(module, function.__qualname__, None) is function or (
        isinstance(function, types.BuiltinFunctionType)
        and getattr(torch, function.__name__, None) is function
    )


def _opened(value: Any, where: str) -> tuple[Container, Content]:
    kind = kind_of(value)
    content = kind and kind.content(value)
    if content is None:
        of = type(value)
        raise UnknownLeaf(
            f"{where} has type {of.__module__}.{of.__qualname__}, expected tensors, Python "
            "scalars, strings, None, or containers and objects of them"
        )
    return kind, content


def _path(where: str, key: Any) -> str:
    return f"{where}.{key.name}" if isinstance(key, Attribute) else f"{where}[{key!r}]"
