"""Torch's device "far": tensors in the memory of the engine's device of that name."""

import ctypes
import types

import far
import torch

_torch = ctypes.CDLL(str(far.ROOT / "build" / "current" / "far_torch.so"))
_torch.far_seed.restype = _torch.far_offset.restype = ctypes.c_uint64
_torch.far_set_generator.argtypes = [ctypes.c_uint64, ctypes.c_uint64]


def get_rng_state(device=None) -> torch.Tensor:
    """Seed and offset of the device's generator."""
    return torch.tensor([_torch.far_seed(), _torch.far_offset()]).view(torch.uint8)


def set_rng_state(state: torch.Tensor, device=None) -> None:
    """As get_rng_state gave it."""
    _torch.far_set_generator(*state.view(torch.int64).tolist())


def manual_seed_all(seed: int) -> None:
    """Called by torch.manual_seed."""
    _torch.far_set_generator(seed, 0)


def _module() -> types.ModuleType:
    """What torch asks of a device's module."""
    module = types.ModuleType("torch.far")
    module.get_rng_state, module.set_rng_state = get_rng_state, set_rng_state
    module.manual_seed_all = module.manual_seed = manual_seed_all
    module.is_available = module.is_initialized = lambda: True
    module._is_in_bad_fork = lambda: False
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module.synchronize = lambda device=None: None
    module.get_amp_supported_dtype = lambda: [torch.bfloat16]
    return module


torch.utils.rename_privateuse1_backend("far")
torch._register_device_module("far", _module())
DEVICE = torch.device("far", 0)
