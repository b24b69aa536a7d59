"""Collectives of torch.distributed: a node that starts one, and the wait for it.

Called by translator.py for every op of the namespaces that communicate. One without a rule is
refused: torch's own would be read before its data has come.
"""

from typing import Any

from ..torch_internals.distributed import group_size_by_name
from .emit import COMPLEX
from .registry import RULES, aten

_NAMESPACES = {
    "c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd", "symm_mem",
    "ortmodule_collective",
}  # fmt: skip


def is_collective(target: Any) -> bool:
    return target.namespace in _NAMESPACES


def emit_collective(t: Any, name: str, args: list, kwargs: dict) -> Any:
    """The running collective by its rule."""
    rule = RULES.get(name)
    if rule is None:
        t.refuse("the engine has no node for this collective")
    return rule(t, *args, **kwargs)


def _waited_for(t: Any, name: str, x: Any, group: str, **attrs: Any) -> Any:
    """Where the wait stands in program order does not matter: it runs before its first reader."""
    if t.within is not None:
        t.refuse(f"it communicates in {t.within.owner}, which other ranks may not run")
    if t.standard:
        t.refuse("it communicates with other processes, which a file does not know")
    if x.dtype in COMPLEX:
        t.refuse("it communicates complex numbers")
    t.communicates = True
    attrs |= {"group": group, "size": group_size_by_name(group), "once": t.next_once()}
    y, work = t.ort(name, x, n=2, **attrs)
    return t.reshape(t.ort("Wait", y, work), t.out_dims())


def _only_sum(t: Any, op: str, always: bool = False) -> None:
    """torch's backward raises for another reduction; always: and its forward."""
    if op != "sum" and (always or t.needs_gradient()):
        t.refuse(f"torch has a gradient of it for the reduction sum, not for {op}")


@aten("_c10d_functional.all_reduce.default")
def all_reduce(t, x, op, group):
    _only_sum(t, op.lower())
    return _waited_for(t, "AllReduce", x, group, op=op.lower())


@aten(
    "_c10d_functional.all_gather_into_tensor.default",
    "_c10d_functional_autograd.all_gather_into_tensor.default",
)
def all_gather(t, x, _size, group):
    return _waited_for(t, "AllGather", x if x.rank else t.reshape(x, [1]), group)


@aten("_c10d_functional.reduce_scatter_tensor.default")
def reduce_scatter(t, x, op, _size, group):
    _only_sum(t, op.lower())
    return _waited_for(t, "ReduceScatter", x, group, op=op.lower())


@aten("_c10d_functional_autograd.reduce_scatter_tensor.default")
def reduce_scatter_with_gradient(t, x, op, _size, group):
    _only_sum(t, op.lower(), always=True)
    return _waited_for(t, "ReduceScatter", x, group, op="sum")


@aten("_c10d_functional.broadcast.default")
def broadcast(t, x, root, group):
    if t.needs_gradient():
        t.refuse("torch has no gradient for it")
    return _waited_for(t, "Broadcast", x, group, root=root)


# Those of torch.distributed.nn.functional (collectives.py), whose gradients are others.
@aten("ortmodule_collective.all_reduce.default")
def nn_all_reduce(t, x, op, group):
    return _waited_for(t, "AllReduce", x, group, op=op)


@aten("ortmodule_collective.reduce_scatter.default")
def nn_reduce_scatter(t, x, op, group):
    return _waited_for(t, "ReduceScatter", x, group, op=op)


@aten("ortmodule_collective.broadcast.default")
def nn_broadcast(t, x, root, group):
    return _waited_for(t, "Broadcast", x, group, root=root)


@aten("_c10d_functional.wait_tensor.default", "c10d_functional.wait_tensor.default")
def wait_tensor(t, x):
    return x
