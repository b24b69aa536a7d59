"""Where a graph of Dynamo's ends, or holds a call as it is: its own way would not be eager's.

dynamo.py holds these around each frame that it has Dynamo look into.
"""

import collections
import contextlib
import enum
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import torch

from ..errors import NotCapturable
from ..guards import questions, state_kinds
from ..guards.observation import OWN, PACKAGE, is_library, kind_of_file
from ..guards.tensor_questions import ONLY_EAGER, refusal
from ..torch_internals.dynamo import (
    AttrSource,
    AutogradFunctionVariable,
    BaseListVariable,
    BuiltinVariable,
    CheckpointHigherOrderVariable,
    CollectiveFunctionRewriteVariable,
    ConstantVariable,
    GuardBuilder,
    InliningInstructionTranslator,
    InstructionTranslatorBase,
    SkipFunctionVariable,
    StringFormatVariable,
    SymNodeVariable,
    TensorSubclassVariable,
    TensorVariable,
    TorchInGraphFunctionVariable,
    VariableBuilder,
    compare_op_handlers,
    hashing,
    install_guard,
    produce_trampoline_autograd_apply,
    proxy_args_kwargs,
    supported_comparison_ops,
    unimplemented,
    wrap_fx_proxy,
)
from ..torch_internals.layers import hooks_where_any_raises
from ..torch_internals.replace import first_of, replaced

# What Dynamo reads once, as it traces: no guard would tell that it moved on.
_FROZEN = (*state_kinds.GENERATORS, collections.deque, enum.Enum)
_SETS_AUTOCAST = (
    torch.set_autocast_enabled, torch.set_autocast_dtype, torch.set_autocast_cache_enabled,
    torch.autocast_increment_nesting, torch.autocast_decrement_nesting,
)  # fmt: skip
_KNOWN_LATER = "it is known when forward runs"


@contextlib.contextmanager
def compared(names: Iterable[str], check: Callable[[Any, str, Any, Any], None]) -> Iterator[None]:
    """Within, check(translator, name, left, right) is told of each comparison of these names ahead
    of it, also by a function of `operator`, and may raise."""
    functions = {supported_comparison_ops[name]: name for name in names}
    originals = {name: compare_op_handlers[name] for name in names}

    def comparing(name: str, original: Callable) -> Callable:
        def compare(tx: Any, operands: Any, keywords: Any) -> Any:
            check(tx, name, *(operand.realize() for operand in operands))
            return original(tx, operands, keywords)

        return compare

    def calling(original: Callable) -> Callable:
        def call_function(self, tx: Any, operands: Any, keywords: Any) -> Any:
            name = functions.get(self.fn) if len(operands) == len(("left", "right")) else None
            if name is not None:
                check(tx, name, *(operand.realize() for operand in operands))
            return original(self, tx, operands, keywords)

        return call_function

    compare_op_handlers.update({n: comparing(n, original) for n, original in originals.items()})
    try:
        with replaced(BuiltinVariable, "call_function", calling):
            yield
    finally:
        compare_op_handlers.update(originals)


def end(what: str, context: str, why: str) -> NoReturn:
    """Ends the graph here."""
    unimplemented(gb_type=what, context=context, explanation=why, hints=[])


def cut_at_hooks() -> contextlib.AbstractContextManager:
    """A hook on a tensor that a graph makes ends it: Dynamo's own way, a Function in the tensor's
    place, calls several hooks in the wrong order and fails on what is computed before one."""

    def make(original: Callable) -> Callable:
        def register(self, tx: Any, name: str, *args: Any, **kwargs: Any) -> Any:
            if not self.source:
                end("a hook on a tensor", name, "it is torch's own")
            return original(self, tx, name, *args, **kwargs)

        return register

    return replaced(TensorVariable, "_method_register_hook", make)


def cut_at_checkpoints() -> contextlib.AbstractContextManager:
    """A checkpointed region runs again in the backward, with all that it writes; in Dynamo's graph
    it would be a call like any other."""

    def call_function(*_args: Any, **_kwargs: Any) -> Any:
        end("a checkpointed region", "torch.utils.checkpoint", "it runs again in the backward")

    return replaced(CheckpointHigherOrderVariable, "_call_function", lambda _: call_function)


def text_as_it_is() -> contextlib.AbstractContextManager:
    """The text of a number that is no constant ends a graph: Dynamo formats its text, not it."""

    def make(original: Callable) -> Callable:
        def format_value(self, spec: Any, flags: int) -> None:
            if isinstance(self.stack[-1], SymNodeVariable):
                end("the text of a number", "format", "it is none of a graph's")
            original(self, spec, flags)

        return format_value

    return replaced(InstructionTranslatorBase, "_format_value", make)


def texts_compared() -> contextlib.AbstractContextManager:
    """A compared text that has a tensor's in it ends a graph: to Dynamo it is unlike any other."""

    def check(_tx: Any, name: str, *operands: Any) -> None:
        if any(isinstance(operand, StringFormatVariable) for operand in operands):
            end("a tensor's text is compared", name, _KNOWN_LATER)

    return compared(("==", "!="), check)


def cut_at_largest() -> contextlib.AbstractContextManager:
    """min() and max() of a tensor, or of numbers of several types, end a graph: they give one of
    their arguments, as data chooses. Dynamo's torch.maximum and clamp are of another type, and
    share a gradient between equals."""

    def make(original: Callable) -> Callable:
        def call(self, tx: Any, *operands: Any) -> Any:
            given = [operand.realize() for operand in operands if operand is not None]
            if any(type(each) is TensorVariable for each in given):
                end("the smallest or largest of tensors", self.fn.__name__, _KNOWN_LATER)
            late = any(isinstance(each, SymNodeVariable) for each in given)
            if late and len({each.python_type() for each in given}) > 1:
                end("the smallest or largest of numbers", self.fn.__name__, _KNOWN_LATER)
            return original(self, tx, *operands)

        return call

    return replaced(BuiltinVariable, "_call_min_max_binary", make)


def cut_at_rounding() -> contextlib.AbstractContextManager:
    """round() of a whole number that is told how many digits to keep ends a graph: a symbol gives
    itself, also for -1, which is tens."""

    def make(original: Callable) -> Callable:
        def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
            if name == "__round__" and args and self.python_type() is int:
                end("a whole number is rounded", "round", _KNOWN_LATER)
            return original(self, tx, name, args, kwargs)

        return call_method

    return replaced(SymNodeVariable, "call_method", make)


@contextlib.contextmanager
def cut_at_collectives() -> Iterator[None]:
    """torch's Functions that communicate, whose gradient Dynamo loses, and what writes in place to
    a tensor that requires grad, for which it makes one that eager has not."""

    def cut(name: str) -> NoReturn:
        end("a collective that autograd sees", name, "its gradient would be another than eager's")

    def of_function(original: Callable) -> Callable:
        def method(self, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
            if name == "apply" and self.fn_cls.__module__.startswith("torch.distributed."):
                cut(self.fn_cls.__name__)
            return original(self, tx, name, args, kwargs)

        return method

    def of_written(original: Callable) -> Callable:
        def called(self, tx: Any, args: Any, kwargs: Any) -> Any:
            if torch.is_grad_enabled() and any(map(_requires_grad, (*args, *kwargs.values()))):
                cut(self.fn.__name__)
            return original(self, tx, args, kwargs)

        return called

    with (
        replaced(AutogradFunctionVariable, "call_method", of_function),
        replaced(CollectiveFunctionRewriteVariable, "call_function", of_written),
    ):
        yield


def _requires_grad(given: Any) -> bool:
    if isinstance(given, BaseListVariable):
        return any(map(_requires_grad, given.items))
    return isinstance(given, TensorVariable) and given.requires_grad is not False


def functions_as_they_are(undone: Callable) -> contextlib.AbstractContextManager:
    """A user's autograd.Function is a call in a graph. Dynamo would trace it both ways: what its
    backward reads when it runs would be frozen, set_materialize_grads be lost. One that is given a
    list or dict, which it may write to, ends the graph: a graph would hold a copy.

    undone: gives a context in which functions may run without data.
    """

    def make(original: Callable) -> Callable:
        def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
            cls = self.fn_cls
            if name != "apply" or cls.__module__.partition(".")[0] == "torch":
                return original(self, tx, name, args, kwargs)
            if any(map(_is_written_to, (*args, *kwargs.values()))):
                end("a list or dict that a Function is given", cls.__name__, "it may write to it")
            called = produce_trampoline_autograd_apply(cls)
            with undone([cls.forward, cls.setup_context]):
                proxies = proxy_args_kwargs(args, kwargs)
                proxy = tx.output.create_proxy("call_function", called, *proxies)
                return wrap_fx_proxy(tx=tx, proxy=proxy)

        return call_method

    return replaced(AutogradFunctionVariable, "call_method", make)


def _is_written_to(given: Any) -> bool:
    found = given.realize()
    if isinstance(found, BaseListVariable):
        fixed = issubclass(found.python_type(), (tuple, range))
        return not fixed or any(map(_is_written_to, found.items))
    return isinstance(found, hashing()) and found.python_type() is not frozenset


def inlined(entered: Callable[[Any, dict, Any], None]) -> contextlib.AbstractContextManager:
    """`entered(code, globals, function or None)` is told of each function that Dynamo takes into a
    graph."""

    def make(original: Callable) -> Any:
        def build(*args: Any, **kwargs: Any) -> InliningInstructionTranslator:
            tracer = original(*args, **kwargs)
            _, called, *_ = args
            function = getattr(called, "fn", None)
            known = isinstance(function, types.FunctionType) and function.__code__ is tracer.f_code
            entered(tracer.f_code, tracer.f_globals, function if known else None)
            return tracer

        return staticmethod(build)

    return replaced(InliningInstructionTranslator, "build_inline_tracer", make)


@contextlib.contextmanager
def asks_of_tensors(asked: Callable[[NotCapturable], None]) -> Iterator[None]:
    """`asked` is told where code looks up on a tensor what Dynamo would answer once."""

    def checking(original: Callable) -> Callable:
        def look_up(self, tx: Any, name: str, *args: Any) -> Any:
            code = tx.f_code
            if name in ONLY_EAGER and kind_of_file(code.co_filename) in (PACKAGE, OWN):
                line = tx.current_instruction.positions.lineno
                asked(refusal(name, file=code.co_filename, line=line))
            if name == "grad" and not self.source:  # Dynamo's answer is some object
                end("a gradient of a tensor that a graph makes", name, "it is torch's own")
            return original(self, tx, name, *args)

        return look_up

    with (
        replaced(
            TensorVariable, first_of(TensorVariable, "tp_getattro_impl", "var_getattr"), checking
        ),
        replaced(TensorVariable, "call_method", checking),
    ):
        yield


def subclasses_made(
    asked: Callable[[NotCapturable], None],
) -> contextlib.AbstractContextManager:
    """`asked` is told where code makes a tensor of a subclass out of what is no tensor: no graph
    does, and torch refuses it where it is observed (outside.py)."""

    def make(original: Callable) -> Callable:
        def call_function(self, tx: Any, args: Any, kwargs: Any) -> Any:
            of_tensor = len(args) == 1 and args[0].is_tensor() and not kwargs
            if self.value.__new__ is torch.Tensor.__new__ and not of_tensor:
                name = self.value.__name__
                asked(NotCapturable(f"forward makes a {name}, which parts do not follow"))
            return original(self, tx, args, kwargs)

        return call_function

    return replaced(TensorSubclassVariable, "call_function", make)


def asked_of_the_trace() -> contextlib.AbstractContextManager:
    """Who asks whether it is traced is answered as in a whole capture."""

    def make(original: Callable) -> Callable:
        def call_function(self, tx: Any, *args: Any) -> Any:
            asks = getattr(self.value, "__name__", None) in questions.OF_THE_TRACE
            if asks and not questions.is_told_of_the_trace(_codes_from(tx)):
                return ConstantVariable.create(False)
            if asks and tx.f_code.co_name == questions.CALL_OF_LAYER and _has_lasting_hooks(tx):
                end("hooks that run when a layer raises", "always_call", "a graph has none")
            return original(self, tx, *args)

        return call_function

    return replaced(TorchInGraphFunctionVariable, "call_function", make)


def _has_lasting_hooks(tx: Any) -> bool:
    """Whether hooks of the layer that is called, or of all, run also when it raises."""
    found = tx.output.side_effects.load_cell(tx.symbolic_locals["self"])  # of a function within
    layer = getattr(found.realize(), "value", None)
    of_layer = getattr(layer, "_forward_hooks_always_called", None)
    return bool(of_layer or hooks_where_any_raises)


def _codes_from(tx: Any) -> Iterator[types.CodeType]:
    while tx is not None:
        yield tx.f_code
        tx = getattr(tx, "parent", None)


def autocast_set(
    asked: Callable[[NotCapturable], None],
) -> contextlib.AbstractContextManager:
    """`asked` is told where code sets autocast and leaves it so: after torch 2.11 Dynamo puts back
    what was before, when a function that it runs has ended."""

    def make(original: Callable) -> Callable:
        def call_function(self, tx: Any, *args: Any) -> Any:
            own = kind_of_file(tx.f_code.co_filename) in (PACKAGE, OWN)
            if own and self.value in _SETS_AUTOCAST:
                asked(NotCapturable("forward sets autocast, which parts do not follow"))
            return original(self, tx, *args)

        return call_function

    return replaced(TorchInGraphFunctionVariable, "call_function", make)


def reads_of_objects(
    asked: Callable[[NotCapturable], None],
) -> contextlib.AbstractContextManager:
    """`asked` is told where code reads an object that Dynamo takes to stay as it is. A graph ends
    where a function draws, as `random.random` does: Dynamo would draw ahead of the graph."""

    def make(original: Callable) -> Callable:
        def call(self, value: Any) -> Any:
            if isinstance(getattr(value, "__self__", None), state_kinds.GENERATORS):
                install_guard(self.source.make_guard(GuardBuilder.ID_MATCH))
                return SkipFunctionVariable(value, source=self.source)
            in_c = isinstance(value, state_kinds.IN_C) or state_kinds.is_of_pybind(value)
            kept = type(self.source) is not AttrSource  # which may make it anew at each look
            if in_c or (kept and isinstance(value, types.MethodWrapperType)):
                install_guard(self.source.make_guard(GuardBuilder.ID_MATCH))
            stays = isinstance(value, enum.Enum) and (
                state_kinds.stays(value) or is_library(type(value).__module__)
            )
            if isinstance(value, _FROZEN) and not stays:
                kind = type(value).__name__
                asked(NotCapturable(f"forward reaches a {kind}, which parts do not follow"))
            return original(self, value)

        return call

    return replaced(VariableBuilder, "_call_impl", make)
