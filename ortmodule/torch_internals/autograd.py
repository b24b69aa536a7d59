"""Torch's autograd engine and what a tensor has for it."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .. import _native
from ..errors import NotCapturable
from .entry import need

TensorBase = need("torch._C.TensorBase", "questions that a traced tensor answers otherwise")
top_saved_tensors_hooks = need(
    "torch._C._autograd._top_saved_tensors_default_hooks", "hooks on saved tensors"
)
set_version_counter = need(
    "torch._C._autograd._unsafe_set_version_counter", "captures of writes, timing"
)
current_graph_task = need("torch._C._current_graph_task_id", "optimizers within the backward")
is_alias_of = need("torch._C._is_alias_of", "weights in few bits")
make_subclass = need("torch.Tensor._make_subclass", "weights in few bits")
execution_engine = need(
    "torch.autograd.Variable._execution_engine", "optimizers within the backward"
)
FunctionBase = need("torch._C._FunctionBase", "captures")
are_transforms_active = need("torch._C._are_functorch_transforms_active", "captures")


@contextlib.contextmanager
def applied_by(call: Callable[[type, tuple, dict], Any]) -> Iterator[None]:
    """Within, F.apply(*args, **kwargs) of every autograd.Function is call(F, args, kwargs), in all
    threads, also where it was bound before."""
    bridge = _native.torch_bridge()
    try:
        bridge.replace_apply(FunctionBase, call)
    except bridge.Error as error:
        raise NotCapturable(f"torch {torch.__version__}: {error}") from None
    try:
        yield
    finally:
        bridge.restore_apply()


def plain_apply(cls: type, *args: Any, **kwargs: Any) -> Any:
    """Torch's own `cls.apply(*args, **kwargs)`, whatever stands there now or overrides it."""
    return _native.torch_bridge().original_apply(FunctionBase, cls, args, kwargs)
