"""Modes that are active around a call, and how code runs without them."""

import sys

from .entry import need

DisableTorchFunction = need("torch._C.DisableTorchFunction", "code of ours under modes")
DisableTorchFunctionSubclass = need("torch._C.DisableTorchFunctionSubclass", "weights in few bits")
set_eval_frame = need("torch._C._dynamo.eval_frame.set_eval_frame", "functions that forward enters")
functorch = need("torch._C._functorch", "transforms that a graph enters")
len_of_dispatch_stack = need("torch._C._len_torch_dispatch_stack", "calls under dispatch modes")
set_grad_enabled = need("torch._C._set_grad_enabled", "grad mode that forward changes")
autocast_enter = need("torch.amp.autocast_mode._enter_autocast", "autocast that forward enters")
autocast_exit = need("torch.amp.autocast_mode._exit_autocast", "autocast that forward enters")
inference_enter = need(
    "torch.autograd.grad_mode._enter_inference_mode", "inference mode that forward enters"
)
inference_exit = need(
    "torch.autograd.grad_mode._exit_inference_mode", "inference mode that forward enters"
)
function_modes = need(
    "torch.overrides._get_current_function_mode_stack", "calls under function modes"
)
DeviceContext = need("torch.utils._device.DeviceContext", "a default device")
TorchDispatchMode = need(
    "torch.utils._python_dispatch.TorchDispatchMode", "what torch computes between parts"
)
disable_current_modes = need(
    "torch.utils._python_dispatch._disable_current_modes", "code of ours under modes"
)
DispatchKey = need("torch._C.DispatchKey", "what torch computes between parts")
include_dispatch_key = need(
    "torch._C._dispatch_tls_set_dispatch_key_included", "what torch computes between parts"
)
current_dispatch_mode = need(
    "torch.utils._python_dispatch._get_current_dispatch_mode", "calls under dispatch modes"
)


def no_dispatch_modes_left() -> None:
    """Where no mode is active, torch looks for none: since 2.15 a call through Dynamo that began
    under a mode ends with the dispatch keys of its begin, also where the mode was left within."""
    if len_of_dispatch_stack() == 0:
        include_dispatch_key(DispatchKey.Python, False)
        include_dispatch_key(DispatchKey.PythonTLSSnapshot, False)


def compiled_autograd_is_on() -> bool:
    """Whether torch compiles backwards now; it is loaded where somebody asked for it."""
    loaded = sys.modules.get("torch._dynamo.compiled_autograd")
    return loaded is not None and bool(loaded.compiled_autograd_enabled)
