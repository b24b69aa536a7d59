"""What is active around a call that the engine cannot see: then the plain module runs.

dispatcher.py asks the C++ half (csrc/torch_bridge/guards) at the top of each call whether
there is anything, then `reason()`, and reports the answer like any fallback.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.autograd import graph
from torch.nn.parallel import DistributedDataParallel
from torch.utils import checkpoint

from .. import _native, devices
from ..records import autograd_history
from ..torch_internals.autograd import top_saved_tensors_hooks
from ..torch_internals.layers import active_data_parallel, caches_parametrized
from ..torch_internals.modes import DeviceContext, compiled_autograd_is_on, function_modes
from ..torch_internals.tracing import fx_traces

_HERE = threading.local()
_CAPTURING: list[int] = []  # threads that capture a module now
# Hooks on saved tensors that give back what they were given: save_on_cpu's and checkpoint's.
_FAITHFUL = {graph.__file__, checkpoint.__file__, autograd_history.__file__}


def reason() -> str | None:
    """Why a call that comes now must run the plain module; None when nothing speaks against it."""
    if compiled_autograd_is_on():
        return "compiled autograd is active"
    bridge = _native.torch_bridge()
    found = bridge.active()
    if found is None and bridge.has_function_modes():
        found = _function_modes()
    if found is None and bridge.has_saved_tensors_hooks():
        found = _saved_tensors_hooks()
    own = not _CAPTURING  # else the flag, which is the whole process's, is our own trace's
    if found is None and own and fx_traces():
        found = "torch.fx traces"
    return found


def _function_modes() -> str | None:
    for mode in function_modes():
        if type(mode) is not DeviceContext or not devices.is_provided(mode.device):
            return f"a TorchFunctionMode is active ({type(mode).__name__})"
    return None


def _saved_tensors_hooks() -> str | None:
    top = top_saved_tensors_hooks(False)
    if top is None:
        return None
    pack = top[0]
    if is_faithful(pack):
        return None
    return f"hooks on saved tensors are active ({getattr(pack, '__qualname__', pack)})"


def is_faithful(pack: Any) -> bool:
    """Whether a hook on saved tensors is one of torch's or ours, which change no value."""
    pack = getattr(pack, "_torchdynamo_orig_callable", pack)  # as later checkpoints wrap it
    code = getattr(pack, "__code__", None)
    return code is not None and code.co_filename in _FAITHFUL


def foreign_parameter(module: nn.Module) -> str | None:
    """Why a module's parameters are not its own now, as within torch.func.functional_call."""
    if caches_parametrized():
        return "torch.nn.utils.parametrize.cached() is active"
    for path, child in module.named_modules(remove_duplicate=False):
        for name, parameter in child._parameters.items():
            if parameter is not None and not isinstance(parameter, nn.Parameter):
                name = f"{path}.{name}" if path else name
                return f"parameter {name} is a {type(parameter).__name__}, expected a Parameter"
    return None


def parallel() -> DistributedDataParallel | None:
    """The DistributedDataParallel that makes this call."""
    return active_data_parallel()


def bucket_bytes() -> int | None:
    """The size of its buckets; None: there is none."""
    ddp = parallel()
    return ddp and min([ddp.bucket_bytes_cap, *(ddp.bucket_bytes_cap_list or ())])


def in_capture() -> bool:
    """Whether this thread captures a module, of which the called wrapper is then a part."""
    return getattr(_HERE, "captures", 0) > 0


@contextmanager
def capture() -> Iterator[None]:
    """Around whatever runs a module's Python to learn what it does."""
    _HERE.captures = getattr(_HERE, "captures", 0) + 1
    _CAPTURING.append(threading.get_ident())
    try:
        with aside():
            yield
    finally:
        _HERE.captures -= 1
        _CAPTURING.pop()


@contextmanager
def aside() -> Iterator[None]:
    """Within, the calls of this thread look at their surroundings."""
    bridge = _native.torch_bridge()
    bridge.step_aside(1)
    try:
        yield
    finally:
        bridge.step_aside(-1)


def unwrapped(module: Any) -> Any:
    """The module that a wrapper runs; any other module itself."""
    while "_ortmodule" in vars(module) and getattr(type(module), "is_ortmodule", False):
        module = vars(module)["_ortmodule"].module
    return module
