"""Traces one call of a module by torch.export: a stage of a capture.

Forward's Python runs once more, on tensors without data and symbolic sizes. Nothing of it is left
behind.
"""

import collections
import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.export import Dim, export

from ..calls.call import Call
from ..errors import (
    NeedsCut,
    NeedsEagersAnswers,
    NeedsExactSizes,
    NeedsFewerSymbols,
    NotCapturable,
    let_go,
)
from ..guards import observation
from ..guards.questions import asks_whether_traced
from ..places import error_place
from ..python_ops.contexts import left_again
from ..python_ops.hooks import Hooks, place_steps
from ..side_effects.effects import Effects
from ..side_effects.private_state import OwnTensors, forget
from ..side_effects.told_warnings import hidden
from ..torch_internals.tracing import FakeTensor
from .budget import Budget, OutOfTime, TooSlow, pace
from .fake_run import FakeRun, observed, warm_up
from .flat_module import Flat, Notes
from .logged import told_before
from .torch_calls import Calls


@dataclasses.dataclass(slots=True)
class Traced:
    """The exported program, what forward did besides, and for each tensor of the call the number of
    its object among the distinct ones."""

    program: Any
    notes: Notes
    order: list[int]


def trace(
    module: nn.Module, call: Call, fake: FakeRun, effects: Effects, hooks: Hooks,
    free: Sequence[Sequence[bool]], budget: Budget,
) -> Traced:  # fmt: skip
    """Traces `module` called as `call`, which must do as it did on fake tensors.

    free: for each tensor of the call which axes may have other sizes. budget: what all traces of
    this capture may take. Raises WarmUp where eager must make this call first, NeedsExactSizes
    where symbols are what fails, NeedsEagersAnswers where it may be that forward asks whether it is
    traced, else NotCapturable.
    """
    hooks.let_go()
    flat = Flat(module, call, _distinct(call.tensors), list(fake.calls.real.values()))
    flat.notes.hooks = hooks
    try:
        program = _traced(flat, effects, fake, call.tensors, free, budget)
        for graph_module in program.graph_module.modules():
            place_steps(graph_module.graph)
        return Traced(program, flat.notes, flat.order)
    finally:
        flat.let_go()
        hooks.let_go()


def _traced(
    flat: Flat, effects: Effects, fake: FakeRun, tensors: list[torch.Tensor],
    free: Sequence, budget: Budget,
) -> Any:  # fmt: skip
    module, whole = flat.child, fake.error is None
    exact = not any(map(any, free))
    kind = NeedsCut
    if whole:  # as eager does it, with plain sizes
        asks = any(map(asks_whether_traced, {code for _, code in fake.roots}))
        kind = NeedsExactSizes if not exact else NeedsEagersAnswers if asks else NeedsCut
    with OwnTensors(module) as own, contextlib.ExitStack() as stack:
        flat.notes.own, flat.notes.effects = own, effects
        stack.enter_context(flat.notes.calls.versions_kept())
        if whole:
            stack.enter_context(told_before())
        else:  # code that the fake run did not come to
            stack.enter_context(observed(effects, fake.roots, fake.names))
        too_slow = None if exact else pace()

        def look(made: int) -> None:
            budget.look()
            if too_slow:
                too_slow(made)

        flat.notes.calls.look = look
        try:
            program = budget.run(lambda: _export(flat, tensors, free), last=exact)
        except TooSlow:
            raise NeedsFewerSymbols("symbols for all sizes take too long") from None
        except OutOfTime:
            raise _too_long(flat.notes.calls, budget.seconds, exact) from None
        except NotCapturable:
            raise
        except Exception as error:
            refusal = _refusal(error, kind)
            refusal.raised = type(fake.error).__module__ == "builtins" and not whole
            let_go(error)
            raise refusal from None
    if flat.notes.writes:
        write = flat.notes.writes[0]
        if kind is NeedsExactSizes and not fake.writes:  # a size that was a number, as eager's
            raise NeedsExactSizes(f"forward writes a size: {write}")
        raise warm_up(module, write)
    found = fake.calls.difference(flat.notes.calls, whole)
    if found and found[1] != observation.PACKAGE:  # these are written to be traced
        words, _, file, line = found
        kind = NotCapturable if exact else NeedsExactSizes
        raise kind(f"forward does otherwise while it is traced: {words}", file=file, line=line)
    return program


def _refusal(error: Exception, kind: type[NotCapturable]) -> NotCapturable:
    """Why export failed."""
    refusal = _refusal_in(error)
    if refusal is not None:
        return refusal
    first = (str(error).strip().splitlines() or [""])[0]
    return kind(f"torch.export: {type(error).__name__}: {first}", **error_place(error))


def _export(flat: Flat, tensors: list[torch.Tensor], free: Sequence[Sequence[bool]]) -> Any:
    """The training IR, the dims AUTO that are free."""
    first = [i for i, number in enumerate(flat.order) if flat.order.index(number) == i]
    given = tuple(_bare(tensors[i]) for i in first)
    kinds = Dim.STATIC, Dim.AUTO
    shapes = tuple({axis: kinds[f] for axis, f in enumerate(free[i])} for i in first)
    grad = torch.is_grad_enabled()  # leaving inference mode would turn it on
    inference_off = contextlib.nullcontext()
    if torch.is_inference_mode_enabled():
        inference_off = torch.inference_mode(False)
    on = torch.set_grad_enabled(grad)
    with hidden(), inference_off, on, _unmarked(given), left_again():
        dynamic_shapes = (shapes,) if given else None
        program = export(flat, given, dynamic_shapes=dynamic_shapes, strict=False)
    for mode in {v.fake_mode for v in map(_value, program.graph.nodes) if v is not None}:
        forget(mode)
    return program


def _bare(tensor: torch.Tensor) -> torch.Tensor:
    """A leaf without its gradient, which would be traced beside it; a tensor like one made in
    inference mode, which could not be written to."""
    if tensor.is_inference():
        with torch.inference_mode(False):
            facts = {"dtype": tensor.dtype, "device": tensor.device}
            return torch.empty_strided(tensor.shape, tensor.stride(), **facts)
    if not tensor.is_leaf or tensor.grad is None:
        return tensor
    bare = tensor.detach().requires_grad_(tensor.requires_grad)
    bare = nn.Parameter(bare, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else bare
    vars(bare).update(vars(tensor))
    return bare


@contextlib.contextmanager
def _unmarked(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """An export that fails leaves its marks of dynamic sizes on the caller's tensors."""
    before = [set(vars(tensor)) for tensor in tensors]
    try:
        yield
    finally:
        for tensor, names in zip(tensors, before, strict=True):
            for name in vars(tensor).keys() - names:
                delattr(tensor, name)


def _value(node: Any) -> FakeTensor | None:
    value = node.meta.get("val")
    return value if isinstance(value, FakeTensor) else None


def _too_long(calls: Calls, seconds: float, exact: bool) -> NotCapturable:
    """Why there is no capture: how much had been traced, and the line that did most of it."""
    lines = collections.Counter(made[3:] for made in calls.made)
    allowed = f"Options(capture_seconds={seconds:.3g}) allows"
    reason = f"a trace of this call takes longer than {allowed}"
    if not lines:
        return (NotCapturable if exact else NeedsExactSizes)(reason)
    (file, line), count = lines.most_common(1)[0]
    reason += f": {len(calls.made)} operators were traced, {count} of them on one line"
    return (NotCapturable if exact else NeedsExactSizes)(
        reason, file=file or None, line=line or None
    )


def _distinct(tensors: list[torch.Tensor]) -> list[int]:
    """For each tensor the number of its object among the distinct ones."""
    seen: dict[int, int] = {}
    return [seen.setdefault(id(t), len(seen)) for t in tensors]


def _refusal_in(error: BaseException | None) -> NotCapturable | None:
    """A NotCapturable that export wrapped in an error of its own."""
    while error is not None:
        if isinstance(error, NotCapturable):
            return error
        error = error.__cause__ or error.__context__
    return None
