"""Flattens arguments and results to a list of tensors and a hashable spec, and builds them back.

Called by call.py, and by flat.py inside of a trace. Nothing is registered in
torch's pytree: what a user's process sees of it stays as it was.
"""

import collections
import dataclasses
import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

_BY_VALUE = (
    type(None), bool, int, str, bytes, torch.dtype, torch.device, torch.layout,
    torch.memory_format, range, type, type(Ellipsis), enum.Enum,
)  # fmt: skip
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class UnknownLeaf(TypeError):
    """A value that is neither a tensor, a known container nor a constant we can compare."""


class Const:
    """A leaf that is no tensor; equal to another when type and value are (nan equals nan)."""

    __slots__ = ("value", "key")

    def __init__(self, value: Any):
        self.value = value
        self.key = (type(value), _value_key(value))

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


class Node:
    """A container in a spec: how to build it (`kind`, `type`, `keys`) and what of (`children`)."""

    __slots__ = ("kind", "type", "keys", "children", "_hash")

    def __init__(self, kind: str, of: type, keys: tuple, children: tuple):
        self.kind, self.type, self.keys, self.children = kind, of, keys, children
        self._hash = hash((kind, of, keys, children))

    def __eq__(self, other):
        return self is other or (
            isinstance(other, Node)
            and self._hash == other._hash
            and (self.kind, self.type, self.keys) == (other.kind, other.type, other.keys)
            and self.children == other.children
        )

    def __hash__(self):
        return self._hash

    def __repr__(self):
        inner = ", ".join(
            f"{k}={c!r}"
            for k, c in zip(self.keys or range(len(self.children)), self.children, strict=False)
        )
        return f"{self.type.__name__}({inner})"


def flatten(
    value: Any,
    where: str = "value",
    express: Callable[[Any], str] | None = None,
) -> tuple[list[torch.Tensor], Any]:
    """Returns the tensors of `value` in order and its spec.

    `where` names the value in errors. `express` turns a symbolic size into an expression; without
    it symbolic sizes are unknown leaves. Raises UnknownLeaf naming the path and the type.
    """
    tensors: list[torch.Tensor] = []
    spec = _flatten(value, where, tensors, express)
    return tensors, spec


def unflatten(
    spec: Any,
    tensors: Sequence[torch.Tensor],
    evaluate: Callable[[Symbol], Any] | None = None,
) -> Any:
    """Builds the value that `spec` describes from `tensors`; `evaluate` gives each Symbol's value.

    Raises ValueError when the count of tensors is not the spec's.
    """
    rest = iter(tensors)
    try:
        value = _unflatten(spec, rest, evaluate)
    except StopIteration:
        raise ValueError(
            f"[unflatten] got {len(tensors)} tensors, expected {count_tensors(spec)}; spec {spec}"
        ) from None
    if next(rest, None) is not None:
        raise ValueError(
            f"[unflatten] got {len(tensors)} tensors, expected {count_tensors(spec)}; spec {spec}"
        )
    return value


def count_tensors(spec: Any) -> int:
    """The number of tensors that `spec` takes."""
    if spec is TENSOR:
        return 1
    return sum(map(count_tensors, spec.children)) if isinstance(spec, Node) else 0


def without_numbers(spec: Any) -> Any:
    """`spec` with the type in place of each int and float."""
    if isinstance(spec, Const):
        return Const(type(spec.value)) if type(spec.value) in (int, float) else spec
    if not isinstance(spec, Node):
        return spec
    return Node(spec.kind, spec.type, spec.keys, tuple(map(without_numbers, spec.children)))


def containers(value: Any) -> list[Any]:
    """The lists, dicts and objects of `value` that somebody may write to."""
    found = None if isinstance(value, torch.Tensor) else _items(value, type(value))
    if found is None:
        return []
    own = [] if isinstance(value, tuple) else [value]
    return own + [inner for child in found[2] for inner in containers(child)]


def tensor_paths(spec: Any, where: str = "value") -> list[str]:
    """The path of each tensor of `spec`, in order, as in `kwargs['input_ids']`."""
    if spec is TENSOR:
        return [where]
    if not isinstance(spec, Node):
        return []
    keys = spec.keys if spec.kind != "sequence" else range(len(spec.children))
    dotted = spec.kind in ("fields", "attributes")
    return [
        path
        for key, child in zip(keys, spec.children, strict=False)
        for path in tensor_paths(child, f"{where}.{key}" if dotted else f"{where}[{key!r}]")
    ]


def _value_key(value: Any) -> Any:
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, (complex, slice)):
        return repr(value)
    if isinstance(value, np.generic):
        return value.tobytes()
    return value


def _is_constant(value: Any) -> bool:
    return isinstance(value, (*_BY_VALUE, float, complex, slice, np.generic))


def _is_cache(of: type) -> bool:
    """transformers' Cache classes and their layers: plain objects that hold tensors."""
    return any(base.__module__ == "transformers.cache_utils" for base in of.__mro__)


def _items(value: Any, of: type) -> tuple[str, tuple, Sequence] | None:
    """(kind, keys, children) of a container; None when it is none, or one we could not build."""
    model_output = dataclasses.is_dataclass(of) and isinstance(value, collections.OrderedDict)
    if of in (dict, collections.OrderedDict) or model_output:
        return "dict", tuple(value), tuple(value.values())
    if isinstance(value, tuple) and hasattr(of, "_fields") and not getattr(value, "__dict__", None):
        return "namedtuple", of._fields, value
    if of in (list, tuple, torch.Size) or of.__module__ == "torch.return_types":
        return "sequence", (), value
    if dataclasses.is_dataclass(of):
        names = tuple(f.name for f in dataclasses.fields(of) if hasattr(value, f.name))
        names += tuple(n for n in getattr(value, "__dict__", ()) if n not in names)
        return "fields", names, tuple(getattr(value, name) for name in names)
    if _is_cache(of):
        state = vars(value)
        return "attributes", tuple(state), tuple(state.values())
    return None


def _flatten(value: Any, where: str, tensors: list, express: Callable | None) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return TENSOR
    if isinstance(value, _SYMBOLIC) and express is not None:
        return Symbol(express(value), type(value))
    if _is_constant(value) and not isinstance(value, _SYMBOLIC):
        return Const(value)
    of = type(value)
    found = _items(value, of)
    if found is None:
        raise UnknownLeaf(
            f"{where} has type {of.__module__}.{of.__qualname__}, expected tensors, Python "
            "scalars, strings, None, or dict, list, tuple, dataclass or transformers Cache objects "
            "of them"
        )
    kind, keys, children = found
    names = keys or range(len(children))
    return Node(
        kind,
        of,
        keys,
        tuple(
            _flatten(child, f"{where}[{name!r}]", tensors, express)
            for name, child in zip(names, children, strict=False)
        ),
    )


def _unflatten(spec: Any, rest: Any, evaluate: Callable | None) -> Any:
    if spec is TENSOR:
        return next(rest)
    if isinstance(spec, Const):
        return spec.value
    if isinstance(spec, Symbol):
        return evaluate(spec)
    children = [_unflatten(child, rest, evaluate) for child in spec.children]
    return _BUILD[spec.kind](spec.type, spec.keys, children)


def _build_dict(of: type, keys: tuple, children: list) -> Any:
    if dataclasses.is_dataclass(of):  # transformers' ModelOutput: an OrderedDict with fields
        return of(**dict(zip(keys, children, strict=False)))
    return of(zip(keys, children, strict=False))


def _build_sequence(of: type, _keys: tuple, children: list) -> Any:
    return children if of is list else of(children)


def _build_namedtuple(of: type, _keys: tuple, children: list) -> Any:
    return tuple.__new__(of, children)  # its own __new__ has run


def _build_object(of: type, keys: tuple, children: list) -> Any:
    """Without calling __init__: it may compute, and a frozen dataclass takes no assignments."""
    value = of.__new__(of)
    for key, child in zip(keys, children, strict=False):
        object.__setattr__(value, key, child)
    return value


_BUILD = {
    "dict": _build_dict,
    "sequence": _build_sequence,
    "namedtuple": _build_namedtuple,
    "fields": _build_object,
    "attributes": _build_object,
}
