"""Devices: which of them the engine computes on, and what torch keeps for each."""

import contextlib
import functools
from collections.abc import Collection, Iterable
from typing import Any

import torch

from . import _native
from .errors import NotCapturable
from .torch_internals.devices import ensure_cuda_guard, privateuse1_name

HOST = torch.device("cpu")


@functools.cache
def prepare() -> None:
    """Sets torch's guard for devices that are not there, in the thread that makes a wrapper first:
    set by the first capture in a thread beside others, it ended the process. The guard counts one
    device, for which autograd's engine would start threads at its first backward, after which no
    forked child can run one; so the engine counts devices, by a backward, before it is set."""
    if torch.cuda.is_available():
        return
    with contextlib.suppress(RuntimeError), torch.inference_mode(False), torch.enable_grad():
        torch.ones((), requires_grad=True).backward()
    ensure_cuda_guard()


def is_provided(device: torch.device) -> bool:
    """Whether the engine computes on `device`."""
    return device.type in provided()


def provided() -> set[str]:
    """The types, in torch's words, of devices with a provider."""
    names = {"private_use": privateuse1_name()}
    return {names.get(kind, kind) for kind in _native.core().device_kinds()}


def expected() -> str:
    """The types with a provider, as an error names them."""
    return " or ".join(sorted(provided()))


def of(tensors: Iterable[torch.Tensor]) -> torch.device:
    """Where a call with these tensors computes: 0-d ones of the host stand beside a device's."""
    return next((t.device for t in tensors if t.device.type != HOST.type), HOST)


def check_asked(device: torch.device, providers: Collection[str]) -> None:
    """Raises NotCapturable on a GPU whose kernels nobody asked for: torch's are quicker yet."""
    if device.type == "cuda" and "cuda" not in providers:
        raise NotCapturable(
            f"its tensors are on {device}, where a module runs in eager unless it is asked for by "
            "Options(providers=('cuda', 'aten', 'cpu')), which is slower yet (docs/gpu.md)"
        )


def random_states(device: torch.device) -> tuple[torch.Tensor, ...]:
    """The states of the generators that code on `device` draws from: the host's, the device's."""
    return tuple(home.get_rng_state(*where) for home, where in _generators(device))


def set_random_states(device: torch.device, states: tuple[torch.Tensor, ...]) -> None:
    """Puts the generators into states that `random_states` gave."""
    for (home, where), state in zip(_generators(device), states, strict=True):
        home.set_rng_state(state, *where)


def _generators(device: torch.device) -> list[tuple[Any, tuple]]:
    if device.type == HOST.type:
        return [(torch, ())]
    return [(torch, ()), (torch.get_device_module(device), (device,))]
