"""Captures one call of a module as a graph: the line of stages, each from the records before it.

admit -> fake run -> trace -> guard -> name -> translate -> finish. The Dispatcher has described the
call. making.py and export.py ask for a capture when no kept one fits; nothing is run on real data.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from .. import devices
from ..calls import tree
from ..calls.call import Call
from ..errors import (
    NeedsEagersAnswers,
    NeedsExactSizes,
    NeedsFewerSymbols,
    NotCapturable,
    ReadsData,
    WarmUp,
)
from ..guards.snapshot import Snapshot
from ..options import Options
from ..records.sizes import naming
from ..side_effects import imports
from ..side_effects.effects import Effects
from ..side_effects.held import seen_in
from ..side_effects.told_warnings import tell, told_stays_told
from ..translate import translate
from .admit import admit
from .budget import Budget
from .fake_run import fake_run
from .finish import Capture, finish
from .naming import name, names_of_sizes
from .quiet import quiet
from .replaced import patches
from .trace import trace
from .unread import collected_seldom


def capture(
    module: nn.Module,
    call: Call,
    make_graph: Callable[[], Any],
    share_memory: bool = True,
    free: Sequence[Sequence[bool]] | None = None,
    seconds: float = Options.capture_seconds,
) -> Capture:
    """Captures `call` of `module` into `make_graph()`.

    share_memory: outputs share memory as in eager, and hooks of the module itself are the caller's
    to run; else each output is one of the graph, and hooks are refused. free: for each tensor of
    the call which axes may have other sizes; None: all that forward allows. seconds: of processor
    time that its traces may take. Raises NotCapturable
    with the reason and, where known, op, module, file and line.
    """
    admit(module, call, with_its_hooks=not share_memory)
    free = free or [[True] * t.dim() for t in call.tensors]
    warned: list = []
    line = functools.partial(
        _in_own_context, module, call, make_graph, share_memory, Budget(seconds), warned
    )
    try:
        with quiet(), collected_seldom(), told_stays_told():
            found = _with_answers(line, call, free)
    except NotCapturable:
        with contextlib.suppress(Warning):  # which eager raises
            tell(warned)
        raise
    try:
        tell(warned)
    except Warning as error:  # eager raises it from where it is given
        raise WarmUp(f"a filter makes an error of a warning: {error}") from None
    return found


def _with_answers(line: Callable[[Sequence, bool], Capture], call: Call, free: Sequence) -> Capture:
    """Code that asks whether it is traced is told so, or where that fails, eager's answers."""
    try:
        return _with_sizes(line, call, free, told=True)
    except NeedsEagersAnswers as error:
        first = error
    try:
        return _with_sizes(line, call, free, told=False)
    except WarmUp:
        raise
    except NotCapturable:  # the reason is why it fails where it is told
        raise first from None


def _with_sizes(
    line: Callable[[Sequence, bool], Capture], call: Call, free: Sequence, told: bool
) -> Capture:
    """With a symbol for each size that may vary; where that fails with fewer, or with none."""
    fewer = None
    try:
        return line(free, told)
    except NeedsFewerSymbols:
        fewer = [[axis == 0 and f for axis, f in enumerate(axes)] for axes in free]
    except NeedsExactSizes:
        pass
    if fewer is not None and fewer != free:
        with contextlib.suppress(NeedsExactSizes):  # no context of another error
            return line(fewer, told)
    return line([[False] * t.dim() for t in call.tensors], told)


def _in_own_context(*given: Any) -> Capture:
    """What forward sets a context variable to, the caller's context does not see."""
    return contextvars.copy_context().run(_stages, *given)


def _stages(
    module: nn.Module, call: Call, make_graph: Callable[[], Any], share_memory: bool,
    budget: Budget, warned: list, free: Sequence, told: bool,
) -> Capture:  # fmt: skip
    device = devices.of((*module.parameters(), *module.buffers(), *call.tensors))
    roots: list = []
    classes = tree.classes(call.spec)
    try:
        with Effects(module) as effects:
            effects.add_classes(classes)
            seen = seen_in(module, effects)
            with patches.capturing(module, device, seen, told) as within, imports.kept(effects):
                fake = fake_run(module, call, effects, within, roots, warned)
                traced = trace(module, call, fake, effects, within.hooks, free, budget)
            effects.restore()
            snapshot = Snapshot(module, fake.roots, fake.names, classes)
    except NotCapturable as error:
        raise error.entered(roots) from None
    graph, grad_enabled = make_graph(), torch.is_grad_enabled()
    program = traced.program.graph_module
    history = traced.notes.history
    with naming(names_of_sizes(module, call, traced)):
        named = name(module, call, fake, traced, snapshot)
        try:
            done = translate(
                program, graph, named.placeholders, grad_enabled, share_memory, not share_memory,
                history.through if history is not None else (),
            )  # fmt: skip
            return finish(module, call, traced, snapshot, named, done, graph, within.steps())
        except (ReadsData, WarmUp) as error:
            raise error.entered(fake.roots) from None
