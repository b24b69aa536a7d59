"""Dtypes that torch's kernels refuse although a trace does not: eager raises its own error.

Which these are is asked of torch itself: the op runs once on a few ones.
"""

import functools
import itertools
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from .. import devices
from ..calls.tree import Const
from ..interface.sizes import hint_of
from ..torch_internals.tracing import OpOverload

_RANDOM = torch.Tag.nondeterministic_seeded
# Operands whose dtypes are tried in turn, to learn whether they are at fault.
_OPERANDS = 5


class _Ones(NamedTuple):
    """Stands for a tensor of an op: as many axes, of two elements at most."""

    dtype: torch.dtype
    device: torch.device
    sizes: tuple[int, ...]

    def made(self) -> torch.Tensor:
        return torch.ones(self.sizes, dtype=self.dtype, device=self.device)


class _Flag(NamedTuple):
    """Stands for a bool among an op's operands, which has a say in their dtype."""

    value: Any

    def made(self) -> Any:
        return self.value


class _Unknown(Exception):
    """An argument that only a run of the module tells."""


def is_refused(t: Any) -> bool:
    """Whether torch's kernel of the running op raises for the dtypes of its operands."""
    target = t.node.target
    if not isinstance(target, OpOverload) or _RANDOM in target.tags:
        return False
    try:
        args, kwargs = t.traced_arguments(lambda value, _: _stand_in(value))
        numbers = [str(a.type) in ("number", "Tensor") for a in target._schema.arguments]
        args = tuple(_frozen(a, n) for a, n in zip(args, numbers, strict=False))
        given = args, tuple((name, _frozen(value)) for name, value in kwargs.items())
    except _Unknown:
        return False
    odd = [x for x in _operands(given) if isinstance(x, _Flag) or not x.dtype.is_floating_point]
    dtypes = {x.dtype for x in _operands(given) if isinstance(x, _Ones)}
    return bool(odd or len(dtypes) > 1) and _kernel_refuses(target, given)


@functools.lru_cache(maxsize=4096)
def _kernel_refuses(target: OpOverload, given: tuple) -> bool:
    """Whether it raises for these operands, but not where some of them are float32."""
    if _runs(target, given, {}):
        return False
    other = [isinstance(x, _Flag) or x != _as_float(x) for x in _operands(given)]
    operands = [k for k, is_other in enumerate(other) if is_other][:_OPERANDS]
    others = (
        chosen
        for count in range(1, len(operands) + 1)
        for chosen in itertools.combinations(operands, count)
    )
    return any(_runs(target, given, set(chosen)) for chosen in others)


def _runs(target: OpOverload, given: tuple, floats: Any) -> bool:
    numbered = itertools.count()

    def made(x: Any) -> Any:
        if isinstance(x, (_Ones, _Flag)):
            return (_as_float(x) if next(numbered) in floats else x).made()
        return [made(item) for item in x] if isinstance(x, tuple) else x.value

    args, kwargs = made(given[0]), {name: made(value) for name, value in given[1]}
    # An operator of ours, or one made of others, may draw without a tag that says so.
    device = next((x.device for x in _operands(given) if isinstance(x, _Ones)), devices.HOST)
    states = devices.random_states(device)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            target(*args, **kwargs)
        except Exception:
            return False
        finally:
            devices.set_random_states(device, states)
    return True


def _as_float(x: Any) -> Any:
    return _Flag(1.0) if isinstance(x, _Flag) else x._replace(dtype=torch.float32)


def _operands(given: Any) -> Iterator[Any]:
    if isinstance(given, (_Ones, _Flag)):
        yield given
    elif isinstance(given, tuple):
        for item in given:
            yield from _operands(item)


def _stand_in(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        sizes = tuple(min(_number(size), 2) for size in value.shape)
        return _Ones(value.dtype, value.device, sizes)
    return _number(value)


def _number(value: Any) -> Any:
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return value
    if isinstance(value, torch.SymInt):
        return hint_of(value)
    if value.node.hint is None:
        raise _Unknown
    return value.node.hint


def _frozen(value: Any, is_number: bool = False) -> Any:
    """An argument that tells 1 from 1.0 and True; is_number: it is an operand of the op."""
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    if isinstance(value, _Ones):
        return value
    return _Flag(value) if is_number and isinstance(value, bool) else Const(value)
