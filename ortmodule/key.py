"""The key of a call: equal for calls that one capture may serve, whatever their sizes."""

from typing import Any

import torch

from . import _native


def call_key(spec: Any, tensors: list[torch.Tensor]) -> tuple:
    """The hashable part of a call that a capture is for: all but the sizes.

    Tree with its constants, per tensor dtype, device, rank, requires_grad, strides' pattern and
    attributes that somebody put on it, which tensors are the same or share memory, grad and
    inference mode, autocast, default dtype.
    """
    first: dict[int, int] = {}
    same = tuple(first.setdefault(id(t), i) for i, t in enumerate(tensors))
    storages: dict[int, int] = {}
    shared = tuple(
        storages.setdefault(_storage(t), i) for i, t in enumerate(tensors) if same[i] == i
    )
    foreign = _native.torch_bridge().foreign
    facts = tuple(
        (
            t.dtype,
            t.device,
            t.dim(),
            t.requires_grad,
            _layout(t),
            type(t),
            foreign(t),
            tuple(vars(t)),
        )
        for t in tensors
    )
    modes = (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled("cuda"),
        torch.get_default_dtype(),
    )
    return spec, facts, same, shared, modes


def _storage(tensor: torch.Tensor) -> int:
    """A key for the memory a tensor lies in; empty and exotic tensors share nothing."""
    try:
        return tensor.untyped_storage().data_ptr() or -id(tensor)
    except (NotImplementedError, RuntimeError):
        return -id(tensor)


def _layout(tensor: torch.Tensor) -> Any:
    """True when contiguous; else the strides as far as sizes do not tell them."""
    if tensor.layout != torch.strided:
        return False
    if tensor.is_contiguous():
        return True
    strides = tensor.stride()
    order = tuple(sorted(range(len(strides)), key=lambda d: -strides[d]))
    plain = tensor.permute(order).is_contiguous()
    return order if plain else strides
