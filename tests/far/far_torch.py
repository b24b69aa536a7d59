"""Torch's device "far": tensors in the memory of the engine's device of that name."""

import ctypes
import types

import far
import torch

_torch = ctypes.CDLL(str(far.ROOT / "build" / "current" / "far_torch.so"))
_torch.far_seed.restype = _torch.far_offset.restype = ctypes.c_uint64
_torch.far_set_generator.argtypes = [ctypes.c_uint64, ctypes.c_uint64]

DEVICE = torch.device("privateuseone", 0)


def get_rng_state(device=None) -> torch.Tensor:
    """Seed and offset of the device's generator."""
    return torch.tensor([_torch.far_seed(), _torch.far_offset()]).view(torch.uint8)


def set_rng_state(state: torch.Tensor, device=None) -> None:
    """As get_rng_state gave it."""
    _torch.far_set_generator(*state.view(torch.int64).tolist())


def manual_seed_all(seed: int) -> None:
    """Called by torch.manual_seed."""
    _torch.far_set_generator(seed, 0)


_module = types.ModuleType("torch.privateuseone")
_module.get_rng_state, _module.set_rng_state = get_rng_state, set_rng_state
_module.manual_seed_all = _module.manual_seed = manual_seed_all
_module.is_available = lambda: True
_module.is_initialized = lambda: True
_module._is_in_bad_fork = lambda: False
_module.device_count = lambda: 1
_module.current_device = lambda: 0
_module.synchronize = lambda device=None: None
_module.get_amp_supported_dtype = lambda: [torch.bfloat16]
torch._register_device_module("privateuseone", _module)
