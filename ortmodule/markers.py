"""Ops of our own that stand in a traced graph: recurrent layers, ctc_loss, the ends of regions.

contract.py patches torch with them during a capture; translate/ has the rules. Traced through,
torch's own lstm fixes the length and gives its last state a wrong rank, and torch's ctc_loss has
an inner result whose size depends on data.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from .errors import NotCapturable

_OPS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_TAIL = (
    "Tensor[] weights, bool has_biases, int num_layers, float dropout, bool train, "
    "bool bidirectional, bool batch_first)"
)

_CTC = (
    "Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank, "
    "int reduction, bool zero_infinity"
)


@functools.cache
def _library() -> torch.library.Library:
    """ortmodule::lstm, gru, rnn_tanh, rnn_relu, ctc_loss (run for real: torch's), mark_region."""
    library = torch.library.Library("ortmodule", "FRAGMENT")
    library.define(f"lstm(Tensor x, Tensor[] hx, {_TAIL} -> (Tensor, Tensor, Tensor)")
    for name in _OPS[1:]:
        library.define(f"{name}(Tensor x, Tensor hx, {_TAIL} -> (Tensor, Tensor)")
    for name in _OPS:
        library.impl(name, getattr(torch._C._VariableFunctions, name), "CPU")
        torch.library.register_fake(f"ortmodule::{name}", _fake, lib=library)
    library.define(f"ctc_loss({_CTC}) -> Tensor")
    library.impl("ctc_loss", torch.ctc_loss, "CPU")
    torch.library.register_fake("ortmodule::ctc_loss", _fake_ctc_loss, lib=library)
    library.define("mark_region(bool begin) -> ()")
    library.impl("mark_region", lambda begin: None, "CompositeExplicitAutograd")
    torch.fx.node.has_side_effect(torch.ops.ortmodule.mark_region.default)
    return library


def mark_region(begin: bool) -> None:
    """Marks the begin or the end of a region of nodes that backward recomputes."""
    _library()
    torch.ops.ortmodule.mark_region(begin)


def _fake(x, hx, weights, has_biases, num_layers, dropout, train, bidirectional, batch_first):
    states = hx if isinstance(hx, (list, tuple)) else [hx]
    width = states[0].shape[-1] * (2 if bidirectional else 1)
    first, second = x.shape[:2]
    if batch_first:  # torch computes with the time first
        outs = [x.new_empty((second, first, width)).transpose(0, 1)]
    else:
        outs = [x.new_empty((first, second, width))]
    return (*outs, *(s.new_empty(s.shape) for s in states))


def _fake_ctc_loss(log_probs, targets, inputs, lengths, blank, reduction, zero_infinity):
    each = log_probs.shape[1:-1] if reduction == 0 else ()
    return log_probs.new_empty(each)


def ctc_loss(log_probs, targets, inputs, lengths, blank=0, reduction=1, zero_infinity=False):
    """What torch.ctc_loss is replaced by during a capture."""
    _library()
    counts = [n if isinstance(n, torch.Tensor) else torch.tensor(n) for n in (inputs, lengths)]
    given = (log_probs, targets, *counts, blank, reduction, zero_infinity)
    return torch.ops.ortmodule.ctc_loss(*given)


def stand_ins() -> dict[str, Callable]:
    """What torch._VF's recurrent functions are replaced by during a capture, by name."""
    _library()
    return {name: functools.partial(_call, name) for name in _OPS}


def _call(name: str, x: Any, hx: Any, *rest: Any) -> Any:
    if not isinstance(rest[0], (list, tuple)):
        raise NotCapturable(f"forward calls {name} on a packed sequence")
    op = getattr(torch.ops.ortmodule, name)
    hx = list(hx) if isinstance(hx, (list, tuple)) else hx
    weights, has_biases, layers, dropout, train, bidirectional, batch_first = rest
    return op(x, hx, list(weights), has_biases, layers, dropout, train, bidirectional, batch_first)
