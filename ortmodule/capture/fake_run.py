"""A fake run: a call made on tensors without data, to learn what it does.

A stage of a capture: which code forward runs, what it writes and which operations of torch it
calls, known before it is traced.
"""

import contextlib
import dataclasses
import inspect
import types
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from ..calls import tree
from ..calls.arguments import Arguments
from ..calls.call import Call
from ..errors import NeedsCut, NotCapturable, WarmUp, let_go
from ..guards import observation, questions, state_kinds
from ..guards.observation import Names, Observation
from ..guards.state_walk import changed
from ..places import place_of_forward
from ..python_ops import control_flow, functions
from ..python_ops.contexts import autocast_state, left_again
from ..python_ops.hooks import Hooks
from ..records.autograd_history import as_users_have_them, writes_to_saved
from ..side_effects.effects import Effects, PlainWrite
from ..side_effects.private_state import OF_CACHES, OwnTensors, TensorAttributes, forget
from ..side_effects.told_warnings import Kept, kept_back
from ..torch_internals.tracing import FakeTensor, FakeTensorMode
from . import logged, warned
from .array_memory import ArrayMemory
from .raised import as_error
from .replaced.constant_branches import ConstantBranches
from .replaced.patches import Within
from .torch_calls import Calls

# Attributes that nn.Buffer and nn.Parameter give their tensors.
_OF_BUFFERS = {"persistent", "_is_buffer", "_is_param"}


@dataclasses.dataclass(slots=True)
class FakeRun:
    """What forward did on tensors without data.

    `roots`: functions that it entered; `names`: what their code looks up; `calls`: of torch;
    `writes`: what it wrote, in words, registered buffers aside; `plain`: these writes where
    each sets a scalar in a dict, else None; `error`: what it raised, as at a branch on
    data.
    """

    roots: list[tuple[types.FunctionType | None, types.CodeType]]
    names: Names
    calls: Calls
    writes: list[str]
    plain: list[PlainWrite] | None
    error: Exception | None

    def named_globals(self) -> set[str]:
        """The globals that forward's code names."""
        return {name for _, code in self.roots for name in observation.facts_of(code).globals}


def fake_run(
    module: nn.Module, call: Call, effects: Effects, within: Within, roots: list, warned: list[Kept]
) -> FakeRun:
    """Learns what the call does, in the state that the capture will be for.

    A forward that sets scalars once, as transformers' problem_type, is run again on fake tensors in
    the state that eager's call would leave behind. `within.names` receives what its code looks up,
    `roots` the functions that it enters, `warned` what torch and packages warn of, also where this
    raises. Raises WarmUp where eager must make this call first, NotCapturable where forward does,
    asks or reads what no capture can hold.
    """
    with kept_back(warned):
        first = _run(module, call, effects, within.hooks, roots)
    within.names |= first.names.known | first.named_globals()
    if not first.writes or first.error is not None:
        return first
    if first.plain is None:
        raise warm_up(module, first.writes[0])
    effects.accept(first.plain)
    roots.clear()
    with kept_back(warned):
        settled = _run(module, call, effects, within.hooks, roots)
    if settled.writes or settled.error or first.calls.difference(settled.calls, whole=True):
        raise warm_up(module, first.writes[0])
    return settled


def warm_up(module: nn.Module, write: str) -> WarmUp:
    """Eager must make a call that writes this."""
    return WarmUp(f"forward writes to an attribute: {write}", **place_of_forward(module))


def _run(module: nn.Module, call: Call, effects: Effects, hooks: Hooks, roots: list) -> FakeRun:
    """Runs forward once; all that it wrote is put back."""
    hooks.let_go()
    lasting = {id(w.holder) for w in effects.watched}
    names = Names({"_parameters", "_buffers", "_modules", "training"})
    returned, array_memory = [], ArrayMemory()
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    made = [_fake(t, mode) for t in call.tensors]
    attributes, error = TensorAttributes(), None
    attributes.note(made)
    usual = vars(_fake(torch.empty(()), mode))
    grad = torch.set_grad_enabled(torch.is_grad_enabled())  # forward may leave it changed
    own_tensors = OwnTensors(module, lambda t: _fake(t, mode))
    made_calls = Calls()
    versions = made_calls.versions_kept()
    with grad, left_again(), own_tensors as own, versions, made_calls:
        made_calls.array_memory = array_memory
        attributes.note(own.found())
        try:
            given = Arguments(call.spec, made, call.numbers)
            written = control_flow.watched(
                lambda: [*effects.writes(), *_assigned(own), *given.words()]
            )
            seen = observed(effects, roots, names)
            result = _forward(module, given, mode, seen, written)
            hooks.check()
            returned = _tensors_of(result)
            _check_saved(module, returned)
            attributes.note(_made_by_forward(returned, attributes.tensors()), usual)
            _check_fresh([result, given.containers], lasting | effects.globals())
            if given.changed():
                _check_apart(call.containers, set(map(id, effects.objects())))
        except NotCapturable:
            raise
        except Exception as raised:
            let_go(raised)
            error = raised.with_traceback(None)
    made_calls.array_memory = None
    written = made_calls.plainly | made_calls.through_data
    array_memory.check(returned, written, place_of_forward(module))
    registered = _registered(own)
    writes = effects.writes() + registered
    plain = effects.plain_writes() if writes and not registered else None
    of_tensors = effects.written_in_tensors()
    forget(mode)
    effects.restore()
    if of_tensors:  # a part would write it once
        raise NotCapturable(f"forward writes to an attribute of a tensor: {of_tensors}")
    if attributes.changed():
        raise NeedsCut("forward sets an attribute of a tensor")
    _check_attributes(call.tensors, names)
    return FakeRun([*roots], names, made_calls, writes, plain, error)


def _forward(
    module: nn.Module, given: Arguments, mode: FakeTensorMode, seen: Any, written: Any
) -> Any:
    """What it gives within these contexts; refused where it leaves autocast changed."""
    autocast = autocast_state()
    with mode, as_users_have_them(), seen, written, ConstantBranches(), as_error():
        result = module.forward(*given.args, **given.kwargs)
    _check_awaited(result)
    if autocast_state() != autocast:
        raise NotCapturable("forward leaves autocast changed", **place_of_forward(module))
    return result


def _check_attributes(tensors: Sequence[torch.Tensor], names: Names) -> None:
    """Of the call's tensors, which are others at the next call."""
    for tensor in tensors:
        read = [n for n in vars(tensor) if n in names and n not in _OF_BUFFERS | OF_CACHES]
        if read:
            raise NeedsCut(f"forward reads {read[0]}, an attribute that a tensor was given")


@contextlib.contextmanager
def observed(effects: Effects, roots: list, names: Names) -> Iterator[None]:
    """Adds what forward enters to `effects` before it runs, to `roots`, and its names to `names`.

    Raises the first NotCapturable met, also where forward caught it.
    """
    refused: list[NotCapturable] = []

    def refuse(error: NotCapturable) -> None:
        refused.append(error)
        raise error

    def entered(function: Any, code: types.CodeType, kind: int) -> None:
        try:
            inside = functions.is_inside()
            if kind == observation.STANDARD:
                if not inside:
                    questions.check_called(function)
                return
            if inside:
                questions.check_in_function(function, code, kind, functions.attributes_inside())
            else:
                questions.check(function, code, kind)
                if control_flow.in_body():
                    questions.check_in_body(function, code, kind)
            kept = effects.kept_by_a_cache(function)
            if kept is not None:  # to put it back, what the cache keeps would have to go
                raise WarmUp(f"forward writes to an attribute: the cache of {kept} was missed")
            effects.add_function(function, code, of_body=control_flow.in_body())
            effects.check_seen(names)
        except NotCapturable as error:
            refuse(error)
        roots.append((function, code))

    with Observation(entered, names), warned.refused(refuse), logged.refused(refuse):
        try:
            yield
        finally:
            if refused:
                first = refused[0]
                refused.clear()  # the functions that hold it are in its own traceback
                raise first


def _check_awaited(result: Any) -> None:
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise NotCapturable("forward returns what is to be awaited")


def _check_fresh(result: Any, lasting: set[int]) -> None:
    """A list of the module's own that forward gives to the caller would be a copy of it."""
    for container in tree.containers(result):
        if lasting & {id(container), id(getattr(container, "__dict__", container))}:
            kind = type(container).__name__
            raise NeedsCut(f"forward returns a {kind} that is the module's")


def _tensors_of(result: Any) -> list[torch.Tensor]:
    """None where it has what no result may have."""
    try:
        return tree.flatten(result, "the result")[0]
    except tree.UnknownLeaf:
        return []


def _check_saved(module: nn.Module, returned: list[torch.Tensor]) -> None:
    """What eager's backward would raise, a graph's would not."""
    if writes_to_saved(returned):
        reason = "forward writes in place to what its own backward reads"
        raise NotCapturable(reason, **place_of_forward(module))


def _made_by_forward(returned: list[torch.Tensor], known: list[torch.Tensor]) -> list[torch.Tensor]:
    """Those that are none of the call's and the module's."""
    others = set(map(id, known))
    return [t for t in returned if isinstance(t, FakeTensor) and id(t) not in others]


def _check_apart(containers: list, reached: set[int]) -> None:
    """What forward changes in its arguments would not be seen where it finds them otherwise."""
    for container in containers:
        if id(container) in reached:
            reason = "forward changes an argument that the module refers to as well"
            raise NeedsCut(reason)


def _assigned(own: OwnTensors) -> list[str]:
    return [changed(path, was, now) for _, path, was, now in own.written()]


def _registered(own: OwnTensors) -> list[str]:
    """Writes to registries that no output of the graph stands for."""
    found = []
    for kind, path, was, now in own.written():
        if (
            kind == "_parameters"
            or state_kinds.MISSING in (was, now)
            or not isinstance(now, torch.Tensor)
        ):
            found.append(changed(path, was, now))
    return found


def _fake(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    return mode.from_tensor(tensor, static_shapes=True)
