"""Traces one call of a module by torch.export, in the state that the capture will be for.

capture.py calls `trace`. Forward's Python runs twice, on tensors without data: rehearsed, where its
effects and questions are found, and traced. Nothing of either is left behind.
"""

import contextlib
import ctypes
import dataclasses
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import Dim, export

from . import contract, observe
from .effects import Effects
from .errors import NeedsExactSizes, NotCapturable, WarmUp, let_go
from .flat import Flat, place_of_forward
from .guards import Snapshot
from .private import OwnTensors, forget
from .rehearse import Rehearsal, observed, rehearse

# A trace that takes longer is given up: sympy may never end.
BUDGET_SECONDS = 30.0


@dataclasses.dataclass(slots=True)
class Traced:
    """The exported program, what forward did besides (`flat.notes`), what it relies on, and the
    tensors with data that it met in a rehearsal."""

    flat: Flat
    program: Any
    snapshot: Snapshot
    met: list[torch.Tensor]


def trace(module: nn.Module, spec: Any, tensors: list[torch.Tensor], exact: bool = False) -> Traced:
    """Traces `module` called with `spec` of `tensors`; exact: for these sizes only.

    A forward that sets scalars once, as transformers' problem_type, is traced in the state that
    eager's call would leave behind. Raises WarmUp where eager must make this call first,
    NeedsExactSizes where symbols are what fails, NotCapturable otherwise.
    """
    flat = Flat(module, spec, _distinct(tensors))
    effects = Effects(module)
    done = False
    try:
        with contract.capturing() as names:
            rehearsed = rehearse(module, effects, spec, tensors)
            names |= rehearsed.names.known | rehearsed.named_globals()
            if rehearsed.writes and rehearsed.error is None:
                rehearsed = _settled(module, effects, rehearsed, spec, tensors)
            program = _traced(flat, effects, rehearsed, tensors, exact)
        effects.restore()
        snapshot = Snapshot(module, rehearsed.roots, rehearsed.names)
        done = True
        return Traced(flat, program, snapshot, list(rehearsed.calls.real.values()))
    finally:
        if not done:
            flat.let_go()
            effects.undo()


def _settled(
    module: nn.Module, effects: Effects, before: Rehearsal, spec: Any, tensors: Sequence
) -> Rehearsal:
    """The rehearsal in the state that the writes leave: it must do the same and write no more."""
    if before.plain is None:
        raise _warm_up(module, before.writes[0])
    effects.accept(before.plain)
    after = rehearse(module, effects, spec, tensors)
    if after.writes or after.error or before.calls.difference(after.calls, whole=True):
        raise _warm_up(module, before.writes[0])
    return after


def _warm_up(module: nn.Module, write: str) -> WarmUp:
    return WarmUp(f"forward writes to an attribute: {write}", **place_of_forward(module))


def _traced(
    flat: Flat, effects: Effects, rehearsed: Rehearsal, tensors: list[torch.Tensor], exact: bool
) -> Any:
    module, whole = flat.child, rehearsed.error is None
    with OwnTensors(module) as own, contextlib.ExitStack() as stack:
        flat.notes.own, flat.notes.effects = own, effects
        if not whole:  # code that the rehearsal did not come to
            stack.enter_context(observed(effects, rehearsed.roots, rehearsed.names))
        try:
            program = _export(flat, tensors, exact)
        except NotCapturable:
            raise
        except Exception as error:
            refusal = _refusal(error, whole and not exact)
            let_go(error)
            raise refusal from None
    if flat.notes.writes:
        raise _warm_up(module, flat.notes.writes[0])
    found = rehearsed.calls.difference(flat.notes.calls, whole)
    if found and found[1] != observe.PACKAGE:  # these are written to be traced
        words, _, file, line = found
        kind = NotCapturable if exact else NeedsExactSizes
        raise kind(f"forward does otherwise while it is traced: {words}", file=file, line=line)
    return program


def _refusal(error: Exception, symbols_at_fault: bool) -> NotCapturable:
    """Why export failed; where the rehearsal, on plain sizes, did not: because of symbols."""
    refusal = _refusal_in(error)
    if refusal is not None:
        return refusal
    first = (str(error).strip().splitlines() or [""])[0]
    kind = NeedsExactSizes if symbols_at_fault else NotCapturable
    return kind(f"torch.export: {type(error).__name__}: {first}", **contract.error_place(error))


def _export(flat: Flat, tensors: list[torch.Tensor], exact: bool) -> Any:
    """The training IR, every dim AUTO unless `exact`."""
    given = tuple(tensors[i] for i in range(len(tensors)) if flat.order.index(flat.order[i]) == i)
    kind = Dim.STATIC if exact else Dim.AUTO
    shapes = tuple(dict.fromkeys(range(t.dim()), kind) for t in given)
    grad = torch.is_grad_enabled()  # leaving inference mode would turn it on
    inference_off = contextlib.nullcontext()
    if torch.is_inference_mode_enabled():
        inference_off = torch.inference_mode(False)
    on = torch.set_grad_enabled(grad)
    with warnings.catch_warnings(), inference_off, on, _unmarked(given):
        warnings.simplefilter("ignore")
        program = _within_budget(
            lambda: export(flat, given, dynamic_shapes=(shapes,), strict=False)
        )
    for mode in {v.fake_mode for v in map(_value, program.graph.nodes) if v is not None}:
        forget(mode)
    return program


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


class _OutOfTime(BaseException):
    """Raised in the tracing thread from outside; no handler of Exception swallows it."""


def _within_budget(work: Callable[[], Any]) -> Any:
    """work(), unless it takes too long.

    No context manager: the error could come between the end of its body and its own `finally`.
    """
    thread, lock = ctypes.c_ulong(threading.get_ident()), threading.Lock()
    raise_in, ended, given_up = ctypes.pythonapi.PyThreadState_SetAsyncExc, [], []

    def give_up():
        with lock:
            if not ended:
                given_up.append(True)
                raise_in(thread, ctypes.py_object(_OutOfTime))

    timer = threading.Timer(BUDGET_SECONDS, give_up)
    timer.daemon = True
    result = None
    try:
        try:
            timer.start()
            result = work()
        finally:
            with lock:
                ended.append(True)
                if given_up:
                    raise_in(thread, None)  # where it has not come yet
            timer.cancel()
    except _OutOfTime:
        pass
    if given_up:
        raise NeedsExactSizes(f"torch.export took longer than {BUDGET_SECONDS:.0f} s")
    return result


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
