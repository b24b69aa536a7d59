"""What can be seen of a value, and how what two runs saw differs.

A run is a list of sights; a sight a list of (place, fact). A tensor's fact has its type, sizes,
strides, whether it requires grad, which others share its memory, and its elements.
Used by run_module.py and run_file.py.
"""

import dataclasses
import math

import torch
from torch import nn

NEAR = {torch.float64: (1e-8, 1e-9), torch.float32: (1e-4, 1e-5)}
HALF = {torch.bfloat16: (2**-6, 2**-6), torch.float16: (2**-9, 2**-9)}


@dataclasses.dataclass(frozen=True)
class Seen:
    """A tensor as it was when it was looked at."""

    dtype: torch.dtype
    sizes: tuple
    strides: tuple
    requires_grad: bool
    leaf: bool
    shares: int  # the number of the first tensor of this sight with the same memory
    elements: torch.Tensor


@dataclasses.dataclass(frozen=True)
class Difference:
    """Where two runs differ: in which sight, where in it, in what (kind), and how."""

    kind: str
    place: str
    text: str

    def __str__(self):
        return f"{self.kind} of {self.place}: {self.text}"


def look(values: tuple) -> list:
    """A sight: the facts of values, in a fixed order."""
    found, memory = [], {}

    def walk(place: str, value):
        if isinstance(value, torch.Tensor):
            found.append((place, _tensor(value, memory)))
            if value.is_leaf and value.grad is not None:
                walk(f"{place}.grad", value.grad)
        elif isinstance(value, nn.Module):
            found.append((place, _class(value)))
            for name, item in _members(value):
                walk(f"{place}.{name}", item)
        elif isinstance(value, (dict, list, tuple)) or dataclasses.is_dataclass(value):
            found.append((place, _class(value)))
            items = value if isinstance(value, dict) else None
            items = items if items is not None else dict(_items(value))
            for name, item in items.items():
                walk(f"{place}[{name!r}]", item)
        else:
            plain = isinstance(value, (int, float, str, type(None), bytes, type))
            found.append((place, (type(value).__name__, value if plain else "")))

    for at, value in enumerate(values):
        walk(str(at), value)
    return found


def _class(value) -> str:
    return type(value).__name__


def _items(value):
    if dataclasses.is_dataclass(value):
        return [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
    return enumerate(value)


def _members(module: nn.Module):
    """Parameters, buffers and the user's own attributes of it and of what is in it."""
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)
    for name, inner in module.named_modules():
        yield f"{name}.training", inner.training
        if type(inner).__module__ == module.__class__.__module__:
            yield from ((n, v) for n, v in vars(inner).items() if n[:1] != "_")


def _tensor(value: torch.Tensor, memory: dict) -> Seen:
    key = value.untyped_storage().data_ptr() or id(value)
    return Seen(
        value.dtype,
        tuple(value.shape),
        tuple(s for s, n in zip(value.stride(), value.shape, strict=True) if n > 1),
        value.requires_grad,
        value.is_leaf,
        memory.setdefault(key, len(memory)),
        value.detach().resolve_conj().clone(),
    )


def difference(ours: list, eager: list, exact=None, moved=()) -> Difference | None:
    """The first one. exact: the run in float64; moved: eager's with its inputs moved by an ulp."""
    for at, (mine, theirs) in enumerate(zip(ours, eager, strict=False)):
        others = [run[at] if len(run) > at else [] for run in ([exact] if exact else [])]
        if found := _of_sights(mine, theirs, others, [r[at] for r in moved if len(r) > at]):
            return dataclasses.replace(found, place=f"sight {at}, {found.place}")
    if len(ours) != len(eager):
        return Difference("length", "the run", f"{len(ours)} sights, eager {len(eager)}")
    return None


def _of_sights(mine: list, theirs: list, exact: list, moved: list) -> Difference | None:
    for at, ((place, a), (other, b)) in enumerate(zip(mine, theirs, strict=False)):
        if place != other:
            return Difference("structure", place, f"there, eager has {other}")
        near = [run[at][1] for run in exact if len(run) > at and run[at][0] == place]
        runs = [run[at][1] for run in moved if len(run) > at and run[at][0] == place]
        if found := _of_facts(a, b, near[0] if near else None, runs):
            return Difference(found[0], place, found[1])
    if len(mine) != len(theirs):
        odd = (mine if len(mine) > len(theirs) else theirs)[min(len(mine), len(theirs))][0]
        return Difference("structure", odd, "there in one of both alone")
    return None


def _of_facts(a, b, exact, moved) -> tuple[str, str] | None:
    if not isinstance(a, Seen) or not isinstance(b, Seen):
        same = type(a) is type(b) and (a == b or _near_numbers(a, b))
        return None if same else ("value", f"{_brief(a)}, eager {_brief(b)}")
    for kind in ("dtype", "sizes", "requires_grad", "leaf", "shares"):
        if getattr(a, kind) != getattr(b, kind):
            return kind, f"{getattr(a, kind)}, eager {getattr(b, kind)}"
    if not _equal(a.elements, b.elements):
        exact = exact.elements if isinstance(exact, Seen) else None
        moved = [m.elements for m in moved if isinstance(m, Seen)]
        if not _as_near(a.elements, b.elements, exact, moved):
            return "value", f"{_brief(a)}, eager {_brief(b)}"
    if a.strides != b.strides and a.elements.numel():
        return "strides", f"{a.strides} of {a.sizes}, eager {b.strides}"
    return None


def _near_numbers(a: tuple, b: tuple) -> bool:
    if len(a) != 2 or a[0] != b[0] or not isinstance(b[1], float):
        return False
    nans = a[1] != a[1] and b[1] != b[1]
    return nans or math.isclose(a[1], b[1], rel_tol=1e-4, abs_tol=1e-5)


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not (b.is_floating_point() or b.is_complex()):
        return torch.equal(a, b)
    rtol, atol = {**NEAR, **HALF}.get(b.dtype, NEAR[torch.float32])
    finite = b.isfinite()
    scale = float(b[finite].abs().max()) if finite.any() else 1.0
    return torch.allclose(a, b, rtol, atol * max(scale, 0.1), equal_nan=True)


def _as_near(a, b, exact, moved: list) -> bool:
    """Whether a is no farther from float64 than twice eager and some ulps, or eager itself goes as
    far where its inputs are moved."""
    a, b = a.to(torch.complex128), b.to(torch.complex128)
    others = [m.to(torch.complex128) for m in moved if m.shape == b.shape]
    if exact is not None and exact.shape == b.shape:
        x = exact.to(torch.complex128)
        odd = a.isfinite() != x.isfinite()
        if not odd.any() or (b.isfinite() != x.isfinite()).any():
            near = x.isfinite() & a.isfinite() & b.isfinite()
            allowed = 2 * _far(b[near], x[near]) + 1e-6 * _far(x[near], 0 * x[near])
            if _far(a[near], x[near]) <= allowed and (not odd.any() or _others_odd(b, others)):
                return True
    reach = max((_far(m, b) for m in others), default=0.0)
    return reach > 0 and _far(a, b) <= 4 * reach


def _others_odd(b, others) -> bool:
    return any((m.isfinite() != b.isfinite()).any() for m in others)


def _far(a: torch.Tensor, b: torch.Tensor) -> float:
    found = (a - b).abs()
    return float(found[~found.isnan()].max()) if (~found.isnan()).any() else 0.0


def _brief(fact) -> str:
    if isinstance(fact, Seen):
        return " ".join(str(fact.elements).split())[:160]
    return str(fact)[:160]
