"""Torch's autograd engine and what a tensor has for it."""

from .entry import need

TensorBase = need("torch._C.TensorBase", "questions that a traced tensor answers otherwise")
top_saved_tensors_hooks = need(
    "torch._C._autograd._top_saved_tensors_default_hooks", "hooks on saved tensors"
)
set_version_counter = need(
    "torch._C._autograd._unsafe_set_version_counter", "timing without writes"
)
current_graph_task = need("torch._C._current_graph_task_id", "optimizers within the backward")
is_alias_of = need("torch._C._is_alias_of", "weights in few bits")
make_subclass = need("torch.Tensor._make_subclass", "weights in few bits")
execution_engine = need(
    "torch.autograd.Variable._execution_engine", "optimizers within the backward"
)
# Its code is another's during a capture, so that one bound before is replaced too.
function_apply = need("torch.autograd.Function.apply.__func__", "captures")
