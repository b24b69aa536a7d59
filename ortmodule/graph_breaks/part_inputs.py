"""A graph that Dynamo found, as a capture takes it.

Its inputs are tensors alone. Dynamo gives a graph its symbols as numbers beside its tensors: what
is a size of a tensor is read off that; any other integer is the size of a tensor without elements;
a float is a tensor already. And an autograd.Function that Dynamo has traced both ways, as it does
with torch's own, is one again.
"""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn

from ..calls.varying import MOST, carrier, number_of
from ..errors import NotCapturable
from ..python_ops.contexts import enter_autocast, enter_inference_mode, exit_context
from ..torch_internals.dynamo import (
    LazyGraphModule,
    TensorifyScalarRestartAnalysis,
    TensorifyState,
    TracingContext,
    autograd_function_apply,
    get_data_attr,
)
from ..torch_internals.modes import (
    autocast_enter,
    autocast_exit,
    inference_enter,
    inference_exit,
    set_grad_enabled,
)
from ..torch_internals.tracing import SymT, symbol_is_type

# Where a tensor may stand for a Python float.
_WITH_FLOATS = {
    operator.mul, operator.add, operator.sub, operator.truediv, operator.iadd, operator.imul,
    operator.isub, operator.itruediv, operator.neg, torch.mul, torch.add, torch.sub, torch.div,
}  # fmt: skip


def tensors_alone(graph: fx.GraphModule) -> tuple[Callable[[tuple], tuple], list[list[bool]]]:
    """Rewrites `graph` in place; gives what turns its inputs into those that it takes then, and for
    each tensor of these which axes have any size."""
    given = [node for node in graph.graph.nodes if node.op == "placeholder"]
    values = [node.meta.get("example_value") for node in given]
    sizes = _sizes(given, values)
    free, told, counted = [], set(), set()
    for k, (node, value) in enumerate(zip(given, values, strict=True)):
        if isinstance(value, torch.SymInt):
            known = sizes.get(value.node.expr)
            (counted if known is None else told).add(k)
            if known is None and not -MOST < value < MOST:  # a guard: no carrier is larger
                raise NotCapturable(f"an integer of a part is {int(value)}, expected below {MOST}")
            _read_size(graph, node, known, after=given[-1])
            free += [[False, True, True]] if known is None else []
        elif isinstance(value, torch.Tensor):
            free.append([isinstance(size, torch.SymInt) for size in value.shape])
    _keep_floats(graph)
    _compute_constants(graph)
    _restore_functions(graph)
    for node in graph.graph.nodes:
        if node.target is get_data_attr:  # a capture looks at the attribute itself
            node.target, node.args = getattr, (*node.args, "data")
        node.target = _ENTERED.get(node.target, node.target)
    graph.recompile()
    LazyGraphModule.force_recompile(graph)  # else the first call would write to the module

    def turned(inputs: tuple) -> tuple:
        if not told and not counted:
            return inputs
        return tuple(
            None if k in told else carrier(x) if k in counted else x for k, x in enumerate(inputs)
        )

    return turned, free


def leaves_grad_mode(graph: fx.GraphModule) -> bool:
    """Whether a graph that ends with its function ends in another grad mode than it begins in."""
    set_to = [n.args[0] for n in graph.graph.nodes if n.target is set_grad_enabled]
    ends = not graph.compile_subgraph_reason.graph_break
    return ends and bool(set_to) and set_to[-1] != torch.is_grad_enabled()


def _sizes(given: list[fx.Node], values: list) -> dict[Any, tuple[fx.Node, int]]:
    """By symbol a tensor and an axis that has this size."""
    found: dict[Any, tuple[fx.Node, int]] = {}
    for node, value in zip(given, values, strict=True):
        for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt):
                found.setdefault(size.node.expr, (node, axis))
    return found


def _read_size(graph: fx.GraphModule, node: fx.Node, known: tuple | None, after: fx.Node) -> None:
    with graph.graph.inserting_after(after):
        if known is None:
            size = graph.graph.call_function(number_of, (node,))
        else:
            size = graph.graph.call_method("size", known)
    node.replace_all_uses_with(size, delete_user_cb=lambda user: user is not size)


def _keep_floats(graph: fx.GraphModule) -> None:
    """Numbers that only tensors are computed with stay in their tensors. Any other float becomes a
    constant: Dynamo looks at the function again."""
    kept: set[fx.Node] = set()
    for node in reversed(graph.graph.nodes):
        if _is_number(node) and all(_takes_tensor(user, kept) for user in node.users):
            kept.add(node)
    read = [node for node in kept if node.target == "item"]
    _make_constant({str(node.meta["example_value"].node.expr) for node in read})
    for node in read:
        node.replace_all_uses_with(node.args[0])


def _compute_constants(graph: fx.GraphModule) -> None:
    """What methods of constants give: a graph's text of one, as -2.0.__abs__(), is minus the other
    number's."""
    for node in list(graph.graph.nodes):
        plain = all(isinstance(a, (int, float, complex)) for a in node.args) and not node.kwargs
        if node.op == "call_method" and plain:
            number, *rest = node.args
            node.replace_all_uses_with(getattr(number, node.target)(*rest))
            graph.graph.erase_node(node)


def _is_number(node: fx.Node) -> bool:
    return isinstance(node.meta.get("example_value"), torch.SymFloat)


def _takes_tensor(user: fx.Node, kept: set[fx.Node]) -> bool:
    """Whether a tensor of float64, without dimensions, may stand for a number that `user` takes:
    the result has the dtype that it has with a number."""
    values = [arg.meta.get("example_value") for arg in user.all_input_nodes]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    wide = all(t.dtype == torch.float64 or (t.dtype == torch.float32 and t.dim()) for t in tensors)
    return user.target in _WITH_FLOATS and wide and (user in kept or bool(tensors))


def _make_constant(but: set[str]) -> None:
    """Has Dynamo take every float but these as a constant."""
    mode = TracingContext.get().fake_mode
    symbols = mode.shape_env.backed_var_to_val if mode.shape_env is not None else {}
    others = {str(s) for s in symbols if symbol_is_type(s, SymT.FLOAT)} - but
    new = [name for name in others if not TensorifyState.should_specialize(name)]
    for name in new:
        TensorifyState.specialize(name)
    if new:
        raise TensorifyScalarRestartAnalysis


_ENTERED = {
    autocast_enter: enter_autocast,
    autocast_exit: exit_context,
    inference_enter: enter_inference_mode,
    inference_exit: exit_context,
}


class _Function(nn.Module):
    """Calls an autograd.Function whose forward and backward are graphs."""

    def __init__(self, forward: fx.GraphModule, backward: fx.GraphModule, **numbers: list[int]):
        super().__init__()
        self.function = _function_of(forward, backward, **numbers)

    def forward(self, *args):
        return self.function.apply(*args)


def _restore_functions(graph: fx.GraphModule) -> None:
    for node in list(graph.graph.nodes):
        if node.target is autograd_function_apply:
            forward, backward = (getattr(graph, arg.target) for arg in node.args[:2])
            name = f"function_{node.name}"
            graph.add_module(name, _Function(forward, backward, **node.kwargs))
            with graph.graph.inserting_before(node):
                call = graph.graph.call_module(name, node.args[2:])
            node.replace_all_uses_with(call)
            graph.graph.erase_node(node)


def _function_of(
    forward: fx.GraphModule,
    backward: fx.GraphModule,
    non_differentiable_idx: list[int],
    saved_for_backward_idx: list[int],
) -> type[torch.autograd.Function]:
    """As torch's own of these two graphs, but one for all calls. What the user saved is checked for
    writes by torch, what was put on ctx is not."""
    forward_of, backward_of = forward.forward, backward.forward

    class Traced(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *args):
            outputs, kept = forward_of(*args)
            ctx.save_for_backward(*(kept[k] for k in saved_for_backward_idx))
            ctx.others = [None if k in saved_for_backward_idx else x for k, x in enumerate(kept)]
            ctx.mark_non_differentiable(*(outputs[k] for k in non_differentiable_idx))
            return outputs

        @staticmethod
        def backward(ctx, *grads):
            kept = list(ctx.others)
            for k, x in zip(saved_for_backward_idx, ctx.saved_tensors, strict=True):
                kept[k] = x
            return backward_of(*grads, *kept)

    return Traced
