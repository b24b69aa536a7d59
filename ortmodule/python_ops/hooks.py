"""Hooks on gradients, of tensors that forward makes and of submodules, as steps of a graph.

patches.py puts `Hooks` in torch's place around a capture. A step is an identity whose history has
the user's own hooks: they run in a backward alone, from the thread that runs it. What a hook
reads, it reads when it runs, so no guard is for it.
"""

import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils.hooks import BackwardHook, RemovableHandle

from ..errors import NeedsCut
from ..places import caller_place
from ..records.autograd_history import storage_key
from ..records.steps import Step, step_of
from ..side_effects.held import made_by_forward
from ..torch_internals.modes import DisableTorchFunction
from ..torch_internals.tracing import HigherOrderOperator, OpOverload, is_fake

_REASON = "hooks on a gradient, which are Python"
_OF_TENSOR = "tensor_hooks"


class Hooks:
    """The hooks that one capture met. `steps`: theirs, for the capture to keep.

    seen: whether an object was there before forward ran.
    """

    def __init__(self, seen: Callable[[Any], bool]):
        self.steps: list[Step] = []
        self._seen = seen
        self._found: list[tuple[Any, dict]] = []  # each hook, and where it was set
        self._of_tensor: dict[int, tuple[torch.Tensor, OrderedDict]] = {}

    def register(self, original: Callable) -> Callable:
        """Instead of Tensor.register_hook."""

        def register_hook(tensor: torch.Tensor, hook: Callable) -> RemovableHandle:
            if not tensor.requires_grad:
                return original(tensor, hook)  # which raises
            place = caller_place()
            if tensor.is_leaf:
                raise NeedsCut("forward sets a hook on a leaf", **place)
            if not torch.is_grad_enabled():
                raise NeedsCut("forward sets a hook where gradients are off", **place)
            self._found.append((hook, place))
            hooks = self._hooks_on(tensor)
            handle = RemovableHandle(hooks)
            hooks[handle.id] = hook
            return handle

        return register_hook

    def around_module(self, _original: type) -> Callable:
        """Instead of torch's BackwardHook."""
        return lambda module, hooks, before: _OfModule(self, module, hooks, before)

    def add(self, name: str, run: Callable, on_itself: Callable | None = None) -> Step:
        """The step `run`, kept."""
        self.steps.append(Step(name, run, _REASON, is_hook=True, on_itself=on_itself))
        return self.steps[-1]

    def check(self) -> None:
        """Raises NotCapturable where a hook reads what is of one call alone; asked when forward has
        run, as a closure may be filled late."""
        for hook, place in self._found:
            made = made_by_forward(hook, self._seen)
            if made is not None:
                kind = type(made).__name__
                raise NeedsCut(f"forward sets a hook that reads a {kind} that it made", **place)

    def let_go(self) -> None:
        """Forgets the traced tensors."""
        self._of_tensor.clear()
        self._found.clear()

    def _hooks_on(self, tensor: torch.Tensor) -> OrderedDict:
        """The hooks of a tensor, in their order; the first makes the step."""
        if id(tensor) not in self._of_tensor:
            hooks: OrderedDict = OrderedDict()
            if get_proxy_mode() is not None:
                step = self.add(
                    _OF_TENSOR,
                    lambda tensors, _: _hooked(tensors, hooks),
                    lambda tensors, _: _with_hooks(tensors, hooks),
                )
                with DisableTorchFunction():
                    step.overload([tensor], [])
            self._of_tensor[id(tensor)] = tensor, hooks
        return self._of_tensor[id(tensor)][1]


def _hooked(tensors: Sequence[torch.Tensor], hooks: OrderedDict) -> list[torch.Tensor]:
    if is_fake(tensors[0]):
        return [tensors[0].clone()]
    return _with_hooks([tensor.view_as(tensor) for tensor in tensors], hooks)


def _with_hooks(tensors: Sequence[torch.Tensor], hooks: OrderedDict) -> list[torch.Tensor]:
    """The tensors themselves: an operator that saved its result leads to it behind the hooks."""
    (same,) = tensors
    for hook in list(hooks.values()) if same.requires_grad else ():
        same.register_hook(hook)
    return [same]


class _OfModule:
    """Full backward hooks around one call of a module: a step where its arguments enter, one where
    its results leave. Both share torch's own BackwardHook of a run."""

    def __init__(self, hooks: Hooks, module: nn.Module, after: list, before: list):
        self._hooks = hooks
        self._make = lambda: BackwardHook(module, after, before)
        self._running = threading.local()  # a capture may run in several threads at once
        self._enters, self._n_inputs = False, -1

    def setup_input_hook(self, args: Any) -> Any:
        """As torch's: `args`, behind the step."""
        self._n_inputs = len(args)
        given, self._enters = self._through("enters_hooked_module", args, self._enter)
        return given

    def setup_output_hook(self, result: Any) -> Any:
        """As torch's: `result`, behind the step."""
        results = result if isinstance(result, tuple) else (result,)
        found, _ = self._through("leaves_hooked_module", results, self._leave)
        return found if isinstance(result, tuple) else found[0]

    def _through(self, name: str, values: Any, run: Callable) -> tuple[Any, bool]:
        """The values with their tensors behind a step, where one requires a gradient."""
        at = [k for k, value in enumerate(values) if isinstance(value, torch.Tensor)]
        slopes = torch.is_grad_enabled() and any(values[k].requires_grad for k in at)
        if not slopes or get_proxy_mode() is None:
            return values, slopes

        def step(tensors: Sequence[torch.Tensor], _sizes: Sequence[int]) -> list[torch.Tensor]:
            if any(map(is_fake, tensors)):
                return [tensor.clone() for tensor in tensors]
            whole = [None] * len(values)
            for k, tensor in zip(at, tensors, strict=True):
                whole[k] = tensor
            out = run(tuple(whole))
            return [out[k] for k in at]

        with DisableTorchFunction():
            outs = self._hooks.add(name, step).overload([values[k] for k in at], [])
        found = list(values)
        for k, out in zip(at, outs, strict=True):
            found[k] = out
        return type(values)(found) if type(values) is tuple else type(values)(*found), True

    def _enter(self, args: tuple) -> tuple:
        self._running.hook = self._make()
        return self._running.hook.setup_input_hook(args)

    def _leave(self, results: tuple) -> tuple:
        if self._enters:
            running, self._running.hook = self._running.hook, None
        else:  # no argument requires a gradient
            running = self._make()
            running.setup_input_hook((None,) * self._n_inputs)
        return running.setup_output_hook(results)


def place_steps(graph: fx.Graph) -> None:
    """Puts each step on a tensor's gradient between the tensor and all that reads it, also what did
    before the hook was set. Raises NotCapturable where memory that a step passes on or keeps is
    written to.
    """
    for node in list(graph.nodes):
        step = step_of(node.target)
        if step is None:
            continue
        if node.target.__name__.startswith(_OF_TENSOR):
            _check_apart(graph, node.args[0][0])
            _place_behind(graph, node)
        if step.shares or step.reason == _REASON:
            _check_unwritten(graph, node)


def _check_apart(graph: fx.Graph, hooked: fx.Node) -> None:
    """Raises NeedsCut where what forward returns shares the hooked tensor's memory with what it was
    given, or with another result: the step gives memory of its own."""
    key = storage_key(hooked.meta.get("val"))
    results = {node for node in graph.output_node().args[0] if isinstance(node, fx.Node)}
    given = graph.find_nodes(op="placeholder")
    sharing = [node for node in (*given, *results) if storage_key(node.meta.get("val")) == key]
    if len(sharing) > 1 and not results.isdisjoint(sharing):
        raise NeedsCut("forward sets a hook on a view that it returns, or on the base of one")


def _place_behind(graph: fx.Graph, node: fx.Node) -> None:
    (tensor,) = node.args[0]
    source = tensor.args[0] if tensor.target is operator.getitem else tensor
    if tensor.op != "call_function" or isinstance(source.target, HigherOrderOperator):
        raise NeedsCut("forward sets a hook on a tensor that it did not make itself")
    readers = [user for user in tensor.users if user is not node]
    for got in [user for user in node.users if user.target is operator.getitem]:
        got.replace_all_uses_with(tensor)
        graph.erase_node(got)
    tensor.append(node)
    with graph.inserting_after(node):
        hooked = graph.call_function(operator.getitem, (node, 0))
    hooked.meta = dict(tensor.meta)
    for reader in readers:
        reader.replace_input_with(tensor, hooked)


def _check_unwritten(graph: fx.Graph, node: fx.Node) -> None:
    shared = {storage_key(value) for value in _values([*node.args[0], node])}
    before = True
    for other in graph.nodes:
        before = before and other is not node
        for place, argument in enumerate(_arguments(other)):
            if before or argument.alias_info is None or not argument.alias_info.is_write:
                continue
            if {storage_key(value) for value in _values([*other.args][place : place + 1])} & shared:
                raise NeedsCut(
                    f"forward writes to what {step_of(node.target).reason} passes on or keeps"
                )


def _arguments(node: fx.Node) -> list[Any]:
    return node.target._schema.arguments if isinstance(node.target, OpOverload) else []


def _values(nodes: list) -> list[Any]:
    found: list[Any] = []
    for node in nodes:
        value = node.meta.get("val") if isinstance(node, fx.Node) else None
        found += value if isinstance(value, (list, tuple)) else [value]
    return [value for value in found if isinstance(value, torch.Tensor)]
