"""Tensors from nothing: constants, ranges, fills."""

import numpy as np
import torch

from ..emit import is_value
from ..registry import aten


def _filled(value):
    return lambda t, *args, **kwargs: t.full(t.out_dims(), value, t.out_dtype())


def _new(t, *args, **kwargs):
    """New memory: zeros, or what torch fills it with so that every run reads the same."""
    dtype = t.out_dtype()
    filled = torch.are_deterministic_algorithms_enabled()
    filled = filled and torch.utils.deterministic.fill_uninitialized_memory
    of = getattr(torch, dtype)
    value = float("nan") if of.is_floating_point or of.is_complex else True
    if value is True and of != torch.bool:
        value = torch.iinfo(of).max
    return t.full(t.out_dims(), value if filled else 0, dtype)


for _name, _value in {"zeros": 0, "ones": 1}.items():
    aten(f"{_name}_like.default", f"new_{_name}.default")(_filled(_value))
aten("zeros.default")(_filled(0))
aten("ones.default")(_filled(1))
aten(
    "empty.memory_format", "empty_like.default", "new_empty.default", "empty_permuted.default",
    "empty_strided.default", "new_empty_strided.default",
)(_new)  # fmt: skip


@aten("full.default")
def full(t, dims, value, **kwargs):
    return t.full(t.out_dims(), value, t.out_dtype())


@aten("full_like.default")
def full_like(t, x, value, **kwargs):
    return t.full(t.out_dims(), value, t.out_dtype())


@aten("new_full.default")
def new_full(t, x, dims, value, **kwargs):
    return t.full(t.out_dims(), value, t.out_dtype())


@aten("scalar_tensor.default")
def scalar_tensor(t, value, **kwargs):
    return t.scalar(value, t.out_dtype())


@aten("arange.default", "arange.start", "arange.start_step")
def arange(t, *bounds, **kwargs):
    start, end, step = {1: (0, *bounds, 1), 2: (*bounds, 1), 3: bounds}[len(bounds)]
    dtype = t.out_dtype()
    if all(isinstance(b, (int, float)) for b in (start, end, step)):
        return t.constant(torch.arange(start, end, step, dtype=getattr(torch, dtype)))
    return t.op("Range", *(t.scalar(b, dtype) for b in (start, end, step)))


@aten("linspace.default")
def linspace(t, start, end, steps, **kwargs):
    if is_value(start) or is_value(end) or not isinstance(steps, int):
        return NotImplemented
    dtype = getattr(torch, t.out_dtype())
    return t.constant(torch.linspace(start, end, steps, dtype=dtype))


@aten("eye.default", "eye.m")
def eye(t, rows, columns=None, **kwargs):
    columns = rows if columns is None else columns
    if not (isinstance(rows, int) and isinstance(columns, int)):
        return NotImplemented
    return t.cast(t.constant(np.eye(rows, columns, dtype=np.float32)), t.out_dtype())
