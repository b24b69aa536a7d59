"""Where a graph of Dynamo's ends, or holds a call as it is: its own way would not be eager's.

dynamo.py holds these around each frame that it has Dynamo look into.
"""

import collections
import contextlib
import enum
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._dynamo.exc import ObservedAttributeError, unimplemented
from torch._dynamo.symbolic_convert import (
    InliningInstructionTranslator,
    InstructionTranslatorBase,
    compare_op_handlers,
)
from torch._dynamo.utils import proxy_args_kwargs
from torch._dynamo.variables.builder import VariableBuilder, wrap_fx_proxy
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.dicts import ConstDictVariable
from torch._dynamo.variables.functions import (
    CollectiveFunctionRewriteVariable,
    UserMethodVariable,
)
from torch._dynamo.variables.higher_order_ops import CheckpointHigherOrderVariable
from torch._dynamo.variables.lists import BaseListVariable
from torch._dynamo.variables.misc import (
    AutogradFunctionVariable,
    StringFormatVariable,
    produce_trampoline_autograd_apply,
)
from torch._dynamo.variables.tensor import SymNodeVariable, TensorVariable
from torch._dynamo.variables.user_defined import UserDefinedObjectVariable

from . import kinds
from .errors import NotCapturable
from .observe import OWN, PACKAGE, is_library, kind_of_file
from .tensor_questions import ONLY_EAGER, refusal

# What Dynamo reads once, as it traces: no guard would tell that it moved on.
_FROZEN = (*kinds.GENERATORS, collections.deque, enum.Enum)
_WITH_STATE = (UserDefinedObjectVariable, BaseListVariable, ConstDictVariable)


@contextlib.contextmanager
def cut_at_hooks() -> Iterator[None]:
    """A hook on a tensor that a graph makes ends it: Dynamo's own way, a Function in the tensor's
    place, calls several hooks in the wrong order and fails on what is computed before one."""
    original = TensorVariable._method_register_hook

    def register(self, tx: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if not self.source:
            unimplemented(
                gb_type="a hook on a tensor",
                context=name,
                explanation="it is torch's own",
                hints=[],
            )
        return original(self, tx, name, *args, **kwargs)

    TensorVariable._method_register_hook = register
    try:
        yield
    finally:
        TensorVariable._method_register_hook = original


@contextlib.contextmanager
def cut_at_checkpoints() -> Iterator[None]:
    """A checkpointed region runs again in the backward, with all that it writes; in Dynamo's graph
    it would be a call like any other."""
    original = CheckpointHigherOrderVariable._call_function

    def call_function(*_args: Any, **_kwargs: Any) -> Any:
        unimplemented(
            gb_type="a checkpointed region",
            context="torch.utils.checkpoint",
            explanation="it runs again in the backward",
            hints=[],
        )

    CheckpointHigherOrderVariable._call_function = call_function
    try:
        yield
    finally:
        CheckpointHigherOrderVariable._call_function = original


@contextlib.contextmanager
def text_as_it_is() -> Iterator[None]:
    """The text of a number that is no constant ends a graph: Dynamo formats its text, not it."""
    original = InstructionTranslatorBase._format_value

    def format_value(self, spec: Any, flags: int) -> None:
        if isinstance(self.stack[-1], SymNodeVariable):
            unimplemented(
                gb_type="the text of a number",
                context="format",
                explanation="it is none of a graph's",
                hints=[],
            )
        original(self, spec, flags)

    InstructionTranslatorBase._format_value = format_value
    try:
        yield
    finally:
        InstructionTranslatorBase._format_value = original


@contextlib.contextmanager
def identities_as_they_are() -> Iterator[None]:
    """Whether two objects of a module's are one ends a graph, as no guard holds it; objects that do
    not say when they are equal are equal to themselves."""
    originals = {n: compare_op_handlers[n] for n in ("is", "is not", "==", "!=", "in", "not in")}

    def asks(name: str, left: Any, right: Any) -> bool:
        if not isinstance(left, _WITH_STATE) or left.source is None:
            return False
        by_identity = isinstance(left, UserDefinedObjectVariable) and (
            left.python_type().__eq__ is object.__eq__
        )
        if "in" in name:
            return by_identity
        other = isinstance(right, _WITH_STATE) and right.source is not None
        return other and (name.startswith("is") or by_identity)

    def comparing(name: str, original: Callable) -> Callable:
        def compare(tx: Any, operands: Any, keywords: Any) -> Any:
            if asks(name, *(operand.realize() for operand in operands)):
                unimplemented(
                    gb_type="whether two objects are one",
                    context=name,
                    explanation="it is known when forward runs",
                    hints=[],
                )
            return original(tx, operands, keywords)

        return compare

    compare_op_handlers.update({n: comparing(n, original) for n, original in originals.items()})
    try:
        yield
    finally:
        compare_op_handlers.update(originals)


@contextlib.contextmanager
def missing_attributes_as_they_are() -> Iterator[None]:
    """An attribute that an object lacks ends a graph: no guard would tell that it has come."""
    original = UserDefinedObjectVariable.var_getattr

    def var_getattr(self, tx: Any, name: str) -> Any:
        try:
            return original(self, tx, name)
        except ObservedAttributeError:
            if self.source is None:
                raise
            unimplemented(
                gb_type="an attribute that is not there",
                context=name,
                explanation="it may be at another call",
                hints=[],
            )

    UserDefinedObjectVariable.var_getattr = var_getattr
    try:
        yield
    finally:
        UserDefinedObjectVariable.var_getattr = original


@contextlib.contextmanager
def missing_keys_guarded() -> Iterator[None]:
    """A KeyError is caught in the graph only as long as the dict lacks the key."""
    original = ConstDictVariable.getitem_const_raise_exception_if_absent

    def getitem(self, tx: Any, key: Any) -> Any:
        if key not in self:
            self.install_dict_contains_guard(tx, [key])
        return original(self, tx, key)

    ConstDictVariable.getitem_const_raise_exception_if_absent = getitem
    try:
        yield
    finally:
        ConstDictVariable.getitem_const_raise_exception_if_absent = original


@contextlib.contextmanager
def truth_of_objects() -> Iterator[None]:
    """What an object's __bool__ or __len__ says of a number is guarded: a branch that Dynamo takes
    on it does not ask for which of the two answers it jumps."""
    original = UserMethodVariable.call_function

    def call_function(self, tx: Any, *rest: Any) -> Any:
        result = original(self, tx, *rest)
        if isinstance(result, SymNodeVariable) and self.get_name() in ("__bool__", "__len__"):
            return ConstantVariable.create(result.evaluate_expr())
        return result

    UserMethodVariable.call_function = call_function
    try:
        yield
    finally:
        UserMethodVariable.call_function = original


@contextlib.contextmanager
def texts_compared() -> Iterator[None]:
    """A compared text that has a tensor's in it ends a graph: to Dynamo it is unlike any other."""
    originals = {name: compare_op_handlers[name] for name in ("==", "!=")}

    def comparing(original: Callable) -> Callable:
        def compare(tx: Any, operands: Any, keywords: Any) -> Any:
            if any(isinstance(o.realize(), StringFormatVariable) for o in operands):
                unimplemented(
                    gb_type="a tensor's text is compared",
                    context="compare",
                    explanation="it is known when forward runs",
                    hints=[],
                )
            return original(tx, operands, keywords)

        return compare

    compare_op_handlers.update({n: comparing(original) for n, original in originals.items()})
    try:
        yield
    finally:
        compare_op_handlers.update(originals)


@contextlib.contextmanager
def cut_at_collectives() -> Iterator[None]:
    """torch's Functions that communicate, whose gradient Dynamo loses, and what writes in place to
    a tensor that requires grad, for which it makes one that eager has not."""
    function, written = AutogradFunctionVariable, CollectiveFunctionRewriteVariable
    call_method, call_function = function.call_method, written.call_function

    def cut(name: str) -> None:
        unimplemented(
            gb_type="a collective that autograd sees",
            context=name,
            explanation="its gradient would be another than eager's",
            hints=[],
        )

    def method(self, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name == "apply" and self.fn_cls.__module__.startswith("torch.distributed."):
            cut(self.fn_cls.__name__)
        return call_method(self, tx, name, args, kwargs)

    def called(self, tx: Any, args: Any, kwargs: Any) -> Any:
        if torch.is_grad_enabled() and any(map(_requires_grad, (*args, *kwargs.values()))):
            cut(self.fn.__name__)
        return call_function(self, tx, args, kwargs)

    function.call_method, written.call_function = method, called
    try:
        yield
    finally:
        function.call_method, written.call_function = call_method, call_function


def _requires_grad(given: Any) -> bool:
    if isinstance(given, BaseListVariable):
        return any(map(_requires_grad, given.items))
    return isinstance(given, TensorVariable) and given.requires_grad is not False


@contextlib.contextmanager
def functions_as_they_are(undone: Callable) -> Iterator[None]:
    """A user's autograd.Function is a call in a graph. Dynamo would trace it both ways: what its
    backward reads when it runs would be frozen, set_materialize_grads be lost.

    undone: gives a context in which functions may run without data.
    """
    original = AutogradFunctionVariable.call_method

    def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        cls = self.fn_cls
        if name != "apply" or cls.__module__.partition(".")[0] == "torch":
            return original(self, tx, name, args, kwargs)
        called = produce_trampoline_autograd_apply(cls)
        with undone([cls.forward, cls.setup_context]):
            proxies = proxy_args_kwargs(args, kwargs)
            proxy = tx.output.create_proxy("call_function", called, *proxies)
            return wrap_fx_proxy(tx=tx, proxy=proxy)

    AutogradFunctionVariable.call_method = call_method
    try:
        yield
    finally:
        AutogradFunctionVariable.call_method = original


@contextlib.contextmanager
def inlined(entered: Callable[[Any, dict, Any], None]) -> Iterator[None]:
    """`entered(code, globals, function or None)` is told of each function that Dynamo takes into a
    graph."""
    original = InliningInstructionTranslator.build_inline_tracer

    def build(*args: Any) -> InliningInstructionTranslator:
        tracer = original(*args)
        _, called, *_ = args
        function = getattr(called, "fn", None)
        known = isinstance(function, types.FunctionType) and function.__code__ is tracer.f_code
        entered(tracer.f_code, tracer.f_globals, function if known else None)
        return tracer

    InliningInstructionTranslator.build_inline_tracer = staticmethod(build)
    try:
        yield
    finally:
        InliningInstructionTranslator.build_inline_tracer = staticmethod(original)


@contextlib.contextmanager
def asks_of_tensors(asked: Callable[[NotCapturable], None]) -> Iterator[None]:
    """`asked` is told where code looks up on a tensor what Dynamo would answer once."""
    var_getattr, call_method = TensorVariable.var_getattr, TensorVariable.call_method

    def check(tx: Any, name: str) -> None:
        code = tx.f_code
        if name in ONLY_EAGER and kind_of_file(code.co_filename) in (PACKAGE, OWN):
            asked(
                refusal(name, file=code.co_filename, line=tx.current_instruction.positions.lineno)
            )

    def attribute(self, tx: Any, name: str) -> Any:
        check(tx, name)
        return var_getattr(self, tx, name)

    def method(self, tx: Any, name: str, *args: Any) -> Any:
        check(tx, name)
        return call_method(self, tx, name, *args)

    TensorVariable.var_getattr, TensorVariable.call_method = attribute, method
    try:
        yield
    finally:
        TensorVariable.var_getattr, TensorVariable.call_method = var_getattr, call_method


@contextlib.contextmanager
def reads_of_objects(asked: Callable[[NotCapturable], None]) -> Iterator[None]:
    """`asked` is told where code reads an object that Dynamo takes to stay as it is."""
    original = VariableBuilder._call_impl

    def call(self, value: Any) -> Any:
        held = getattr(value, "__self__", None)  # of a generator's method
        found = held if isinstance(held, kinds.GENERATORS) else value
        plain = kinds.is_plain(found) or is_library(type(found).__module__)
        if isinstance(found, _FROZEN) and not (plain and isinstance(found, enum.Enum)):
            kind = type(found).__name__
            asked(NotCapturable(f"forward reaches a {kind}, which parts do not follow"))
        return original(self, value)

    VariableBuilder._call_impl = call
    try:
        yield
    finally:
        VariableBuilder._call_impl = original
