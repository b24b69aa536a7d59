"""Whether code is traced, asked while a module is captured: the user's own code is answered as in
eager, torch's is told, an installed package's is told unless it fails then."""

import contextlib
import dataclasses
import sys
import types
from collections.abc import Callable, Iterator

import torch

from ...guards import questions
from ...places import PACKAGE, TORCH
from ...torch_internals.tracing import export_trace, symbolic_trace


@dataclasses.dataclass(slots=True)
class _Trace:
    """Whether export traces right now; `told`: packages are told so."""

    told: bool
    runs: bool = False


def answer_as_eager(replace: Callable, told: bool) -> None:
    """replace(owner, name, make) for each question. Export's own flags stay off, as functions that
    were imported by name read them."""
    trace = _Trace(told)
    replace(export_trace, "_compiling_state_context", lambda _: lambda: _running(trace))
    for name in questions.OF_THE_TRACE - {"is_dynamo_compiling"}:  # which export answers with no
        replace(torch.compiler, name, lambda _: lambda: _answer(trace))
    for name in ("is_fx_tracing", "is_fx_symbolic_tracing"):
        replace(symbolic_trace, name, asked_by_user(lambda: False))


@contextlib.contextmanager
def _running(trace: _Trace) -> Iterator[None]:
    before, trace.runs = trace.runs, True
    try:
        yield
    finally:
        trace.runs = before


def _answer(trace: _Trace) -> bool:
    frame = sys._getframe(3)  # below the function that chooses by thread
    if frame.f_code.co_name == questions.CALL_OF_LAYER:
        return False
    if _is_torchs(frame) and frame.f_code.co_name not in questions.OF_THE_TRACE:
        return trace.runs
    told = trace.told and trace.runs
    return told and questions.is_told_of_the_trace(_codes_from(frame))


def _codes_from(frame: types.FrameType | None) -> Iterator[types.CodeType]:
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


def asked_by_user(answer: Callable) -> Callable:
    """`answer` where the user's code asks, else torch's own."""

    def make(original: Callable) -> Callable:
        def ask(*args, **kwargs):
            frame = sys._getframe(2)  # below the function that chooses by thread
            return (original if _is_torchs(frame) else answer)(*args, **kwargs)

        return ask

    return make


def _is_torchs(frame: types.FrameType) -> bool:
    return frame.f_code.co_filename.startswith((TORCH, PACKAGE))
