"""The autograd.Functions that forward calls: each is one operator of torch in the traced graph.

It runs the user's own forward and, from torch's history of it, the user's own backward, once a call
each. patches.py holds `recorded` around a capture. Where a call is run on fake tensors its backward
is too: what that writes, no capture can hold.
"""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.function import AUTOGRAD_FUNCTION_COUNTER
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from ..errors import NeedsCut, NeedsExactSizes, NotCapturable
from ..guards import state_kinds, tensor_questions
from ..places import caller_place
from ..records.autograd_history import FunctionCall, storage_key
from ..records.steps import Step
from ..side_effects.held import made_by_forward
from ..side_effects.private_state import is_torchs
from ..torch_internals.autograd import applied_by, are_transforms_active, plain_apply
from ..torch_internals.modes import DisableTorchFunction, TorchDispatchMode
from ..torch_internals.tracing import is_fake
from ..translate import autocast
from .always_none import always_none

_REASON = "an autograd.Function, whose backward is its own"
# The classes that torch makes for the gradients of operators written in Python.
_OF_OPERATORS = "GeneratedBackwardFor_"
_HERE = threading.local()


class _Hole(NamedTuple):
    """Stands among the arguments of a Function for the tensor or size that its step is given."""

    kind: type


class _Value(NamedTuple):
    """A number or text."""

    kind: type
    text: str
    value: Any


class _Object:
    """An object that each call hands over, as it was there before forward ran."""

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Object) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


class _Container(NamedTuple):
    """A container that forward makes anew at each call."""

    kind: type
    keys: tuple
    items: tuple


class _Operator(NamedTuple):
    """`gives`: whether the Function returns a tensor or a tuple, known once it has run. `node`: its
    node of autograd in a trace, until that is taken; empty where no tensor is the call's."""

    step: Step
    gives: list[type]
    node: list[Any]


class Recorded:
    """The Functions that one capture of `module` met. `steps`: theirs, for the capture to keep."""

    def __init__(
        self, module: nn.Module, instead: Mapping[type, Callable], seen: Callable[[Any], bool]
    ):
        self.made_before = next(AUTOGRAD_FUNCTION_COUNTER)
        self.module, self.instead, self.seen = module, instead, seen
        self.numbers = itertools.count()
        self.operators: dict[tuple, _Operator] = {}
        self.drawing: set[type] = set()
        self.sharing: set[type] = set()
        self.calls: dict[Any, FunctionCall] = {}  # of the trace, by their nodes of autograd

    @property
    def steps(self) -> list[Step]:
        return [operator.step for operator in self.operators.values()]


@contextlib.contextmanager
def recorded(
    module: nn.Module, instead: Mapping[type, Callable], seen: Callable[[Any], bool]
) -> Iterator[Recorded]:
    """Within, this thread's calls of Function.apply are those of `module`'s capture; `instead`: of
    what to call for some of torch's own; `seen`: whether an object was there before forward ran."""
    outer = getattr(_HERE, "capture", None)
    with applied_by(_applied):
        _HERE.capture = Recorded(module, instead, seen)
        try:
            yield _HERE.capture
        finally:
            _HERE.capture = outer


def _applied(cls: type, args: tuple, kwargs: dict) -> Any:
    """What `cls.apply(*args, **kwargs)` gives, in a thread that captures and in any other."""
    capture = getattr(_HERE, "capture", None)
    if capture is None or is_inside() or _is_torchs(cls) or kwargs:
        return plain_apply(cls, *args, **kwargs)
    if cls in capture.instead:
        return capture.instead[cls](*args)
    if cls._backward_cls._autograd_function_id > capture.made_before:
        _refuse(cls, "forward makes")
    return _recorded(capture, cls, args)


def _is_torchs(cls: type) -> bool:
    """Whether torch calls it on its own account: for an operator written in Python, or for one
    level of torch.func's transforms, within which it then applies the user's."""
    transforms = not issubclass(cls, torch.autograd.Function) or are_transforms_active()
    return transforms or cls.__qualname__.startswith(_OF_OPERATORS)


def _recorded(capture: Recorded, cls: type, args: tuple) -> Any:
    given = tuple(_described(cls, a, capture.seen) for a in args)
    state = tuple(autocast.ambient().items())
    with DisableTorchFunction():
        if get_proxy_mode() is None:
            return _rehearsed(capture, cls, args)
        operator = _operator(capture, cls, args, given, state)
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        sizes = [a for a in args if isinstance(a, torch.SymInt)]
        number = next(capture.numbers)
        outs = operator.step.overload(tensors, [*sizes, number])
        if operator.node and (node := operator.node.pop()) is not None:
            capture.calls[node] = FunctionCall(number, operator.step.without)
    return tuple(outs) if operator.gives[0] is tuple else outs[0]


def _refuse(cls: type, what: str, kind: type = NeedsCut) -> None:
    raise kind(f"{what} the autograd.Function {cls.__qualname__}", **caller_place())


def _described(cls: type, argument: Any, seen: Callable[[Any], bool]) -> Any:
    """An argument of a Function as part of its operator's identity."""
    if isinstance(argument, torch.Tensor):
        return _Hole(torch.Tensor)
    if isinstance(argument, torch.SymInt):
        return _Hole(torch.SymInt)
    if isinstance(argument, (torch.SymFloat, torch.SymBool)):
        _refuse(cls, "forward gives a number made of sizes to", NeedsExactSizes)
    if isinstance(argument, state_kinds.SCALARS):
        return _Value(type(argument), repr(argument), argument)
    if made_by_forward(argument, seen) is None:
        return _Object(argument)
    if type(argument) in (list, tuple, dict):
        keys = tuple(argument) if isinstance(argument, dict) else ()
        items = argument.values() if keys else argument
        if all(isinstance(key, state_kinds.SCALARS) for key in keys) and not any(
            isinstance(item, (torch.Tensor, torch.SymInt)) for item in items
        ):
            items = tuple(_described(cls, item, seen) for item in items)
            return _Container(type(argument), keys, items)
    return _refuse(cls, f"forward gives a {type(argument).__name__} that it has made to")


def _given(described: Any, rest: Mapping[type, Iterator]) -> Any:
    """The argument of one call."""
    if isinstance(described, _Hole):
        return next(rest[described.kind])
    if not isinstance(described, _Container):
        return described.value
    items = [_given(item, rest) for item in described.items]
    return described.kind(zip(described.keys, items, strict=True) if described.keys else items)


def _operator(capture: Recorded, cls: type, args: tuple, given: tuple, state: tuple) -> _Operator:
    """The operator that calls `cls` with these arguments under this state of autocast."""
    names = _parameters(capture.module, args) if any(type(g) is _Object for g in given) else {}
    key = cls, given, state, tuple(names.items())
    if key not in capture.operators:
        gives: list[type] = []
        node: list[Any] = []

        def call(tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
            rest = {torch.Tensor: iter(tensors), torch.SymInt: iter(sizes)}
            args = [_given(g, rest) for g in given]
            with _inside(), DisableTorchFunction(), autocast.entered(dict(state)):
                out = plain_apply(cls, *args)
            gives[:] = [type(out)]
            outs = list(out) if isinstance(out, tuple) else [out]
            if any(map(is_fake, tensors)):
                node[:] = [_node_of(outs)]
            return outs

        def run(tensors: Sequence[torch.Tensor], sizes: Sequence[int]) -> list[torch.Tensor]:
            if any(map(is_fake, tensors)) or not names:
                return _apart(call(tensors, sizes), tensors)
            own = {k: capture.module.get_parameter(name) for k, name in names.items()}
            return list(_WithOwn.apply(lambda given: call(given, sizes), own, *tensors))

        draws, shares = cls in capture.drawing, cls in capture.sharing
        never = always_none(cls.backward)
        numbers = [k for k, a in enumerate(args) if isinstance(a, torch.Tensor)]
        without = frozenset(i for i, k in enumerate(numbers) if k in never)
        facts = {"without": without, "is_numbered": True}
        step = Step(cls.__name__, run, _REASON, draws, shares, bool(names), **facts)
        capture.operators[key] = _Operator(step, gives, node)
    return capture.operators[key]


def _parameters(module: nn.Module, args: tuple) -> dict[int, str]:
    """Which of the tensors among the arguments are parameters of the module."""
    names = {id(p): name for name, p in module.named_parameters(remove_duplicate=False)}
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    return {k: names[id(t)] for k, t in enumerate(tensors) if id(t) in names}


class _WithOwn(torch.autograd.Function):
    """`call` with the module's own parameters in place of the copies that a step is given: code
    among the arguments of a Function may use them, as a checkpoint of the user's own does."""

    @staticmethod
    def forward(ctx, call, own, *tensors):
        given = [t.detach().requires_grad_(t.requires_grad) for t in tensors]
        ctx.given = [own.get(k, t) for k, t in enumerate(given)]
        with torch.enable_grad():
            ctx.outs = call(ctx.given)
        results = tuple(out.detach() for out in ctx.outs)
        still = [r for r, out in zip(results, ctx.outs, strict=True) if not out.requires_grad]
        ctx.mark_non_differentiable(*still)
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx, *grads):
        pairs = zip(ctx.outs, grads, strict=True)
        outs, grads = zip(*((out, g) for out, g in pairs if g is not None), strict=True)
        asking = [k for k, needs in enumerate(ctx.needs_input_grad[2:]) if needs]
        found = torch.autograd.grad(
            outs, [ctx.given[k] for k in asking], grads, retain_graph=True, allow_unused=True
        )
        of = dict(zip(asking, found, strict=True))
        return None, None, *(of.get(k) for k in range(len(ctx.given)))


def _apart(outs: list[torch.Tensor], tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """An operator's results share no memory with its arguments; where the engine runs it they are
    copied anyway."""
    memory = {storage_key(t) for t in tensors} if any(map(is_fake, tensors)) else set()
    return [out.clone() if storage_key(out) in memory else out for out in outs]


def calls_of_trace() -> Mapping[Any, FunctionCall]:
    """The calls that this thread's trace has met, by their nodes of autograd."""
    capture = getattr(_HERE, "capture", None)
    return {} if capture is None else capture.calls


def is_inside() -> bool:
    """Whether this thread runs the code of a Function, which runs for real at each call."""
    return getattr(_HERE, "inside", None) is not None


def attributes_inside() -> frozenset[str]:
    """Those of the tensors that the Function was given whose code this thread runs."""
    return _HERE.inside


@contextlib.contextmanager
def _inside(given: Sequence[torch.Tensor] = ()) -> Iterator[None]:
    before = getattr(_HERE, "inside", None)
    _HERE.inside = frozenset(n for t in given for n in vars(t) if not is_torchs(n))
    try:
        with tensor_questions.in_function(given):
            yield
    finally:
        _HERE.inside = before


class _Draws(TorchDispatchMode):
    """Notes whether random numbers are drawn."""

    def __init__(self):
        super().__init__()
        self.any = False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.any = self.any or torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **(kwargs or {}))


def _rehearsed(capture: Recorded, cls: type, args: tuple) -> Any:
    """What the Function gives; refuses one that no operator without effects stands for."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    versions = [t._version for t in tensors]
    with _inside(tensors), _Draws() as draws:
        out = plain_apply(cls, *args)
        outs = out if isinstance(out, tuple) else (out,)
        if not outs or not all(isinstance(o, torch.Tensor) for o in outs):
            _refuse(cls, "a value that is no tensor comes from")
        _rehearse_backward(outs)
    if [t._version for t in tensors] != versions:
        _refuse(cls, "an argument is written to by")
    memory = {storage_key(o) for o in outs}
    if len(memory) < len(outs):
        _refuse(cls, "results that share memory come from")
    given = {storage_key(t) for t in tensors}
    if memory & given or _saved_by(outs) & (memory | given):
        capture.sharing.add(cls)
    if draws.any:
        capture.drawing.add(cls)
    return out


def _saved_by(outs: Sequence[torch.Tensor]) -> set[int | None]:
    """The memory of what a Function saved of these results and of its arguments."""
    nodes = {o.grad_fn for o in outs if o.grad_fn is not None}
    saved = [s for node in nodes for s in getattr(node, "_raw_saved_tensors", None) or ()]
    return {storage_key(s.data) for s in saved} - {None}


def _node_of(outs: Sequence[torch.Tensor]) -> Any:
    return next((o.grad_fn for o in outs if o.requires_grad), None)


def _rehearse_backward(outs: Sequence[torch.Tensor]) -> None:
    """Runs the user's backward once on tensors without data; what it raises, it will then."""
    node = _node_of(outs)
    try:
        with torch.no_grad():
            if node is not None:
                node.apply(*map(torch.empty_like, outs))
    except NotCapturable:
        raise
    except Exception:
        return
