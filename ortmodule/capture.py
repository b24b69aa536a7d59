"""Captures one call of a module as a graph: the line of stages, each from the records before it.

describe (call.py) -> admit -> rehearse -> trace -> name -> translate -> finish. captures.py asks
for a capture when no kept one fits; nothing is run on real data.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from . import devices, patches
from .admit import admit
from .call import Call
from .effects import Effects
from .errors import NeedsExactSizes
from .finish import Capture, finish
from .guards import Snapshot
from .name import name
from .rehearse import rehearse
from .trace import trace
from .translate import translate


def capture(
    module: nn.Module, call: Call, make_graph: Callable[[], Any], share_memory: bool = True
) -> Capture:
    """Captures `call` of `module` into `make_graph()`.

    share_memory: outputs share memory as in eager, and hooks of the module itself are the caller's
    to run; else each output is one of the graph, and hooks are refused. Raises NotCapturable
    with the reason and, where known, op, module, file and line.
    """
    admit(module, call, with_its_hooks=not share_memory)
    try:
        return _line(module, call, make_graph, share_memory, exact=False)
    except NeedsExactSizes:
        return _line(module, call, make_graph, share_memory, exact=True)


def _line(
    module: nn.Module, call: Call, make_graph: Callable[[], Any], share_memory: bool, exact: bool
) -> Capture:
    """exact: for the call's own sizes only."""
    device = devices.of((*module.parameters(), *module.buffers(), *call.tensors))
    with Effects(module) as effects:
        with patches.capturing(device) as names:
            rehearsed = rehearse(module, call, effects, names)
            traced = trace(module, call, rehearsed, effects, exact)
        effects.restore()
        snapshot = Snapshot(module, rehearsed.roots, rehearsed.names)
    named = name(module, call, rehearsed, traced, snapshot)
    graph, grad_enabled = make_graph(), torch.is_grad_enabled()
    program = traced.program.graph_module
    done = translate(
        program, graph, named.placeholders, grad_enabled, share_memory, standard=not share_memory
    )
    return finish(module, call, traced, snapshot, named, done, graph)
