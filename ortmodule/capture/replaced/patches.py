"""What is replaced in torch while a module is captured, for the capturing thread alone.

stages.py holds it around the fake run and the export, which would be silently wrong on what is
refused here. Nothing is patched outside a capture; other threads see the originals during one.
"""

import contextlib
import dataclasses
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
import torch.utils.checkpoint as torch_checkpoint
from torch import nn
from torch.autograd import grad_mode
from torch.autograd import graph as torch_graph
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols
from torch.nn.modules import module as torch_module

from ...errors import NeedsCut, NeedsExactSizes, NotCapturable
from ...guards import surroundings, tensor_questions
from ...places import PACKAGE, TORCH, caller_place
from ...python_ops import collectives, control_flow, floats, functions
from ...python_ops.contexts import autocast_kept, left_again
from ...python_ops.hooks import Hooks
from ...python_ops.markers import (
    attention,
    counting_batch_norm,
    ctc_loss,
    mark_region,
    stand_ins,
    with_counted_dims,
)
from ...records.assumed import assumed
from ...records.steps import Step
from ...side_effects import generators
from ...torch_internals.dynamo import eval_frame
from ...torch_internals.layers import (
    BatchNorm,
    nn_functions,
    recurrent_functions,
)
from ...torch_internals.modes import set_grad_enabled
from ...torch_internals.replace import LOCK, first_of, put, put_for_this_thread
from ...torch_internals.tracing import (
    FakeTensorMode,
    export_trace,
    fake_impls,
    fake_tensor,
    higher_order_utils,
)
from ..unread import leave_out
from .eagers_answers import answer_as_eager, asked_by_user
from .fake_kernels import as_kernels_give, compared, computed_directly

_LAYERS = os.path.join(TORCH, "nn", "modules")
_GENERATOR = "_checkpoint_without_reentrant_generator"
# Its handler takes itself out at its first record, unless TORCH_TRACE asks for it; while it is
# there, torch writes a record with its stack for each guard.
_RECORDS = "torch.__trace"
_OWN_BACKWARD = "forward runs a backward of its own"


@contextlib.contextmanager
def _region(module: nn.Module) -> Iterator[None]:
    """A checkpointed region. Eager runs it again in the backward, with all that it writes."""
    before = _versions(module)
    mark_region(begin=True)
    yield
    mark_region(begin=False)
    if torch.is_grad_enabled() and _versions(module) != before:
        raise NeedsCut("a checkpointed region writes to what the module keeps", **caller_place())


def _versions(module: nn.Module) -> list[int]:
    return [t._version for t in (*module.parameters(), *module.buffers())]


def _plain_checkpoint(module: nn.Module) -> Callable:
    """Stands for torch's reentrant CheckpointFunction during a capture."""

    def apply(function: Callable, _preserve_rng_state: bool, *args) -> Any:
        """As eager: without an argument that requires grad nothing inside gets a gradient."""
        differentiable = any(isinstance(a, torch.Tensor) and a.requires_grad for a in args)
        with torch.set_grad_enabled(torch.is_grad_enabled() and differentiable), _region(module):
            return function(*args)

    return apply


def _not_in_place(computed: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Which operators of a number and of tensors with data the mode of fake tensors computes: one
    that writes would write to the user's tensor."""
    return lambda function: not function._schema.is_mutable and computed(function)


@dataclasses.dataclass(slots=True)
class Within:
    """What a capture collects: the names that forward's code looks up, the autograd.Functions and
    the hooks that it met."""

    names: set[str]
    functions: functions.Recorded
    hooks: Hooks

    def steps(self) -> list[Step]:
        """Python that the graph runs, to be kept as long as it."""
        return [*self.functions.steps, *self.hooks.steps]


@contextlib.contextmanager
def capturing(
    module: nn.Module, device: torch.device, seen: Callable[[Any], bool], told: bool
) -> Iterator[Within]:
    """Holds the capture lock; refuses what export would get wrong; restores all random states.

    device: where `module` computes. seen: whether an object was there before forward ran. told:
    packages are told that they are traced, if they ask.
    """
    names: set[str] = set()
    hooks = Hooks(seen)
    here = surroundings.capture()
    drawn = generators.kept(names, device)
    with LOCK, here, drawn, autocast_kept(), left_again(), contextlib.ExitStack() as stack:
        owner = threading.get_ident()

        def replace(target: Any, name: str, make: Callable[[Any], Any]) -> None:
            put_for_this_thread(stack, target, name, make)

        replace(torch.overrides, "has_torch_function", _no_fused_attention)
        _replace_hooks(replace, hooks)
        for name in ("manual_seed", "set_rng_state"):  # fork_rng ends with the second
            for home in (torch, torch.random):
                replace(home, name, _refused(f"forward calls torch.{name}"))
        replace(torch.autograd, "_engine_run_backward", _no_backward)
        replace(torch_graph.saved_tensors_hooks, "__enter__", _faithful_hooks)
        _replace_modes(replace, told)
        _replace_numbers(replace)
        _replace_functions(replace)
        if any(getattr(child, "momentum", 0) is None for child in module.modules()):
            replace(BatchNorm, "forward", counting_batch_norm)
        replace(torch, "compile", control_flow.uncompiled)
        replace(eval_frame, "_callback_from_stance", _as_written)
        replace(higher_order_utils, "setup_compilation_env", lambda _: control_flow.no_compilation)
        stack.enter_context(control_flow.gradients_as_around())
        for home, name, new in control_flow.stand_ins():
            replace(home, name, lambda _, new=new: new)
        replace(ShapeEnv, "evaluate_expr", assumed)
        replace(fake_impls, "_unique", with_int64_positions)
        replace(FakeTensorMode, "dispatch", as_kernels_give)
        replace(FakeTensorMode, "dispatch", computed_directly)
        replace(FakeTensorMode, "dispatch", compared)
        replace(fake_tensor, "should_allow_numbers_as_tensors", _not_in_place)
        replace(torch.fx.GraphModule, "delete_all_unused_submodules", _deleting)
        replace(torch.fx.Tracer, "call_module", _left_when_it_raises)
        leave_out(replace)
        stack.enter_context(tensor_questions.refused())
        _silence_export(stack, owner)
        collectives.replace_refusals(replace)
        instead = _replace_checkpoints(replace, module) | collectives.stand_ins()
        recorded = stack.enter_context(functions.recorded(module, instead, seen))
        for name, new in stand_ins().items():  # torch looks its own up on each access
            replace(recurrent_functions, name, lambda _, new=new: new)
        yield Within(names, recorded, hooks)


def _replace_numbers(replace: Callable) -> None:
    for name in ("__str__", "__repr__", "__format__"):
        replace(torch.SymInt, name, _no_text)
        replace(torch.SymFloat, name, _no_text)
    for name in floats.ARITHMETIC:
        replace(torch.SymFloat, name, floats.once)


def _replace_checkpoints(replace: Callable, module: nn.Module) -> dict:
    """Those without a Function of their own; gives what stands for the other's Function."""
    replace(
        torch_checkpoint, first_of(torch_checkpoint, f"{_GENERATOR}_impl", _GENERATOR),
        lambda _: lambda *_args, **_kwargs: _no_generator(module),
    )  # fmt: skip
    return {torch_checkpoint.CheckpointFunction: _plain_checkpoint(module)}


def _replace_modes(replace: Callable, told: bool) -> None:
    replace(grad_mode.inference_mode, "__enter__", _recorded_enter)
    replace(grad_mode.inference_mode, "__exit__", _recorded_exit)
    inference = torch.is_inference_mode_enabled()
    replace(torch, "is_inference_mode_enabled", asked_by_user(lambda: inference))
    answer_as_eager(replace, told)


def _replace_functions(replace: Callable) -> None:
    replace(torch, "ctc_loss", lambda _: ctc_loss)
    for name, new in stand_ins().items():  # as the graph of a part calls them
        replace(torch, name, lambda _, new=new: new)
    replace(recurrent_functions, "einsum", _views_of_one)
    replace(torch, "from_numpy", _as_a_call)
    for name in ("norm", "vector_norm"):
        replace(torch.linalg, name, with_counted_dims)
    for home in (torch.nn.functional, nn_functions):
        replace(home, "scaled_dot_product_attention", attention)


def _replace_hooks(replace: Callable, hooks: Hooks) -> None:
    replace(torch.Tensor, "register_hook", hooks.register)
    replace(torch_module, "BackwardHook", hooks.around_module)
    for name in ("register_post_accumulate_grad_hook", "retain_grad"):
        replace(torch.Tensor, name, _refused(f"forward calls Tensor.{name}"))


def _as_written(_original: Callable) -> Callable:
    """What was compiled before runs as written: Dynamo evaluates frames in ours' place."""
    return lambda _callback: None


def _no_generator(module: nn.Module) -> Iterator[None]:
    with _region(module):
        yield  # checkpoint() itself calls the function here


def _deleting(_original: Callable) -> Callable:
    """torch's would delete a graph that only a graph within another names."""

    def delete(module: torch.fx.GraphModule) -> None:
        used = [n.target for n in module.graph.nodes if n.op in ("get_attr", "call_module")]
        for name in [name for name, _ in module.named_children()]:
            if not any(target.split(".")[0] == name for target in used):
                module.delete_submodule(name)

    return delete


def _left_when_it_raises(original: Callable) -> Callable:
    """A trace notes which layers it is in; torch's stays in one whose error forward catches."""

    def call_module(tracer: torch.fx.Tracer, *args: Any) -> Any:
        depth = len(tracer.module_stack)
        try:
            return original(tracer, *args)
        except BaseException:
            while len(tracer.module_stack) > depth:
                tracer.module_stack.popitem()
            raise

    return call_module


def with_int64_positions(original: Callable) -> Callable:
    """torch traces the positions and counts of unique with the dtype of its elements."""

    def unique(*args, **kwargs):
        found, *rest = original(*args, **kwargs)
        return found, *(x.new_empty(x.shape, dtype=torch.int64) for x in rest)

    return unique


def _views_of_one(original: Callable) -> Callable:
    """An einsum of one operand is a view of it, as 'ii->i', or a sum of one: traced as such."""

    def einsum(equation: str, operands: Any, path: Any = None) -> torch.Tensor:
        if len(operands) == 1:
            return torch.ops.aten.einsum.default.decompose(equation, operands)
        return original(equation, operands, path=path)

    return einsum


def _as_a_call(original: Callable) -> Callable:
    """Modes of torch see as_tensor, and of from_numpy only what it does inside."""

    def from_numpy(array: Any) -> torch.Tensor:
        if isinstance(array, np.ndarray):
            return torch.as_tensor(array, device="cpu")
        return original(array)

    return from_numpy


def _refused(reason: str) -> Callable:
    def make(_original: Callable) -> Callable:
        def refuse(*_args, **_kwargs):
            raise NeedsCut(reason, **caller_place())

        return refuse

    return make


def _no_text(original: Callable) -> Callable:
    """The text of a size, or of a number read out of a tensor, would be a symbol's."""

    def text(*args: Any) -> str:
        if not sys._getframe(2).f_code.co_filename.startswith((TORCH, PACKAGE)):
            if free_unbacked_symbols(args[0]):
                reason = "forward asks for the text of a number read out of a tensor"
                raise NotCapturable(reason, **caller_place())
            raise NeedsExactSizes("forward asks for the text of a size", **caller_place())
        return original(*args)

    return text


def _no_backward(original: Callable) -> Callable:
    refuse = _refused(_OWN_BACKWARD)(original)

    def run(*args, **kwargs):
        return (original if functions.is_inside() else refuse)(*args, **kwargs)

    return run


def _recorded_enter(original: Callable) -> Callable:
    """inference_mode sets the grad mode too; a trace records only what is set by itself."""

    def enter(self):
        self.grad_before = torch.is_grad_enabled()
        original(self)
        set_grad_enabled(not self.mode)

    return enter


def _recorded_exit(original: Callable) -> Callable:
    def leave(self, *error):
        set_grad_enabled(self.grad_before)
        return original(self, *error)

    return leave


def _faithful_hooks(original: Callable) -> Callable:
    def enter(self):
        if not surroundings.is_faithful(self.pack_hook):
            raise NeedsCut("forward sets hooks on saved tensors", **caller_place())
        return original(self)

    return enter


def _no_fused_attention(original: Callable) -> Callable:
    """torch's layers ask this last before an operator that leaves rows nan where all is masked."""
    masks = ("attn_mask", "key_padding_mask", "src_mask", "src_key_padding_mask")

    def asked(tensors: Iterable[Any]) -> bool:
        caller = sys._getframe(2)
        masked = any(caller.f_locals.get(name) is not None for name in masks)
        slopes = torch.is_grad_enabled() and any(
            getattr(t, "requires_grad", False) for t in tensors
        )
        if masked and not slopes and caller.f_code.co_filename.startswith(_LAYERS):
            raise NotCapturable(
                "without gradients torch computes the attention of masked sequences by another "
                "operator, whose rows are NaN where all is masked",
                **caller_place(),
            )
        return original(tensors)

    return asked


def _silence_export(stack: contextlib.ExitStack, owner: int) -> None:
    """A failing export prints its whole graph and logs warnings; the refusal says it in a line."""

    def quiet(*args, **kwargs):
        if threading.get_ident() != owner:
            print(*args, **kwargs)

    put(stack, export_trace, "print", quiet)  # hides the builtin there
    names = [n for n in logging.root.manager.loggerDict if n[:5] == "torch" and n != _RECORDS]
    loggers = map(logging.getLogger, names)
    for handler in {h for logger in loggers for h in logger.handlers}:
        handler.addFilter(drop := lambda record: record.thread != owner)
        stack.callback(handler.removeFilter, drop)
