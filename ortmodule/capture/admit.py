"""Which modules and tensors are captured at all; asked of a call before its forward is learnt."""

from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from .. import _native, devices
from ..calls import tree
from ..calls.call import Call
from ..errors import NeedsCut, NotCapturable, WarmUp
from ..guards import surroundings
from ..guards.state_walk import GLOBAL_HOOKS
from ..lowbit.shown import FrozenWeight
from ..places import place_of
from ..torch_internals.distributed import composable_state

# Those of submodules are part of what is traced.
_HOOKS = {
    "_forward_pre_hooks": "forward pre-hook", "_forward_hooks": "forward hook",
    "_backward_pre_hooks": "backward pre-hook", "_backward_hooks": "backward hook",
}  # fmt: skip

# Classes that add nothing to a tensor's numbers.
_PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer, FrozenWeight)


def admit(module: nn.Module, call: Call, with_its_hooks: bool) -> None:
    """Raises NotCapturable when hooks, parameters, arguments or modes rule a whole capture out.

    with_its_hooks: hooks of the module itself too, which a wrapper runs around the capture.
    """
    _check_module(module, with_its_hooks)
    for tensor, path in zip(call.tensors, tree.tensor_paths(call.spec, "arguments"), strict=True):
        check_tensor(tensor, f"input {path}")


def communicates(module: nn.Module) -> str | None:
    """What makes a module communicate: DistributedDataParallel, fully_shard, replicate or
    FullyShardedDataParallel; None: nothing."""
    module = surroundings.unwrapped(module)
    if type(vars(module).get("reducer")).__name__ == "Reducer":
        return type(module).__name__
    state = composable_state(module)
    if state is None:
        return None
    names = {"FSDPState": "fully_shard", "_ReplicateState": "replicate"}
    return names.get(type(state).__name__, type(state).__name__)


def in_hooks(module: nn.Module) -> bool:
    """Whether a module that communicates does so around its forward alone."""
    return communicates(module) in ("fully_shard", "replicate")


def _check_module(module: nn.Module, with_its_hooks: bool) -> None:
    for name in GLOBAL_HOOKS:
        for hook in getattr(torch_module, name).values():
            raise NotCapturable(f"a global module hook is set ({_name_of(hook)})", **place_of(hook))
    for name, parameter in module.named_parameters():
        if isinstance(parameter, torch.nn.parameter.UninitializedTensorMixin):
            raise WarmUp(f"parameter {name} is not initialised yet")
    for path, child in module.named_modules():
        child = surroundings.unwrapped(child)
        if (kind := communicates(child)) and not (child is module and in_hooks(module)):
            raise NotCapturable(
                f"{kind} communicates there: what lies between is captured, forward itself runs as "
                "Python",
                module=path or type(child).__name__,
            ).at_seams()
        if isinstance(child, torch.jit.ScriptModule):
            where = path or type(child).__name__
            raise NotCapturable("torch.jit runs it, past what Python sees", module=where)
        if child._backward_hooks and child._is_full_backward_hook is False:
            raise NotCapturable(
                "a hook of register_backward_hook is set, which looks at grad_fn",
                module=path or type(child).__name__,
            )
        hooks = _HOOKS if child is module and with_its_hooks else {}
        for attribute, kind in hooks.items():
            for hook in getattr(child, attribute, {}).values():
                raise NeedsCut(
                    f"a {kind} is set ({_name_of(hook)})",
                    module=path or type(child).__name__,
                    **place_of(hook),
                )
    for name, parameter in module.named_parameters():
        check_tensor(parameter, f"parameter {name}")
    for name, buffer in module.named_buffers():
        if buffer.is_nested:
            raise NotCapturable(f"buffer {name} is a nested tensor")


def check_tensor(tensor: torch.Tensor, what: str) -> None:
    """Raises NotCapturable unless it is a plain dense tensor of a device and dtype we take."""
    if type(tensor) not in _PLAIN:
        raise NotCapturable(f"{what} is a {type(tensor).__name__}, expected a torch.Tensor")
    foreign = _native.torch_bridge().foreign(tensor)
    if foreign is not None:
        raise NotCapturable(f"{what} {foreign}")
    if tensor.layout != torch.strided:
        raise NotCapturable(f"{what} has layout {tensor.layout}, expected torch.strided")
    if tensor._is_zerotensor():
        raise NotCapturable(f"{what} is zeros without memory")
    if tensor.has_names():
        raise NotCapturable(f"{what} has names for its axes")
    if not devices.is_provided(tensor.device):
        raise NotCapturable(f"{what} is on {tensor.device}, expected {devices.expected()}")
    if tensor.dtype == torch.complex32:
        raise NotCapturable(f"{what} has dtype {tensor.dtype}, which graphs do not have")


def _name_of(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)
