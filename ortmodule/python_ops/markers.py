"""Ops of our own that stand in a traced graph: recurrent layers, ctc_loss, attention, the ends of
regions.

patches.py patches torch with them during a capture; translate/ has the rules. Traced through,
torch's own lstm fixes the length and gives its last state a wrong rank, torch's ctc_loss has
an inner result whose size depends on data, and torch's attention takes a quarter of BERT's export.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import (
    has_free_unbacked_symbols,
    statically_known_true,
    sym_eq,
)
from torch.nn.functional import batch_norm, linear
from torch.nn.modules import batchnorm

from .. import devices
from ..errors import NeedsCut
from ..torch_internals.layers import nn_functions, variable_functions
from ..torch_internals.trees import tree_map
from ..translate import autocast
from ..translate.autocast import as_cast

_ANY_DEVICE = "CompositeExplicitAutograd"
_OPS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_CELLS = {
    "lstm_cell": "Tensor x, Tensor h, Tensor c",
    "gru_cell": "Tensor x, Tensor h",
}
_OF_CELLS = "Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None"
_TAIL = (
    "Tensor[] weights, bool has_biases, int num_layers, float dropout, bool train, "
    "bool bidirectional, bool batch_first)"
)

_CTC = (
    "Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank, "
    "int reduction, bool zero_infinity"
)
_CTC_LOSS = torch.ops.aten.ctc_loss.Tensor
_TORCHS = nn_functions.scaled_dot_product_attention
_ATENS = torch.ops.aten.scaled_dot_product_attention.default
_ATTENTION = (
    "Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, "
    "bool is_causal=False, float? scale=None"
)


@functools.cache
def _library() -> torch.library.Library:
    """ortmodule::lstm, gru, rnn_tanh, rnn_relu, their cells, ctc_loss, scaled_dot_product_attention
    (run for real: torch's), mark_region."""
    library = torch.library.Library("ortmodule", "FRAGMENT")
    library.define(f"lstm(Tensor x, Tensor[] hx, {_TAIL} -> (Tensor, Tensor, Tensor)")
    for name in _OPS[1:]:
        library.define(f"{name}(Tensor x, Tensor hx, {_TAIL} -> (Tensor, Tensor)")
    for name in _OPS:
        library.impl(name, getattr(variable_functions, name), _ANY_DEVICE)
        torch.library.register_fake(f"ortmodule::{name}", _fake, lib=library)
    for name, states in _CELLS.items():
        results = "Tensor" if name == "gru_cell" else "(Tensor, Tensor)"
        library.define(f"{name}({states}, {_OF_CELLS}) -> {results}")
        library.impl(name, _TORCHS_CELLS[name], _ANY_DEVICE)
        torch.library.register_fake(f"ortmodule::{name}", _FAKE_CELLS[name], lib=library)
        torch.library.register_autograd(
            f"ortmodule::{name}", _no_gradient, setup_context=_keep_for_cell, lib=library
        )
    library.define(f"ctc_loss({_CTC}) -> Tensor")
    library.impl("ctc_loss", torch.ctc_loss, _ANY_DEVICE)
    torch.library.register_fake("ortmodule::ctc_loss", _fake_ctc_loss, lib=library)
    library.define(f"scaled_dot_product_attention({_ATTENTION}) -> Tensor")
    library.impl("scaled_dot_product_attention", _torchs_attention, _ANY_DEVICE)
    attention = "ortmodule::scaled_dot_product_attention"
    torch.library.register_fake(attention, _fake_attention, lib=library)
    torch.library.register_autograd(
        attention, _no_gradient, setup_context=_keep_for_attention, lib=library
    )
    library.define("mark_region(bool begin) -> ()")
    library.impl("mark_region", lambda begin: None, _ANY_DEVICE)
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


def _torchs_attention(query, key, value, mask=None, dropout=0.0, causal=False, scale=None):
    """torch takes the scale by its name alone; a trace has it by its place."""
    return _TORCHS(query, key, value, mask, dropout, causal, scale=scale)


def _torchs_lstm_cell(x, h, c, *weights):
    return variable_functions.lstm_cell(x, (h, c), *weights)


_TORCHS_CELLS = {
    "lstm_cell": _torchs_lstm_cell,
    "gru_cell": variable_functions.gru_cell,
}
_FAKE_CELLS = {
    "lstm_cell": lambda x, h, c, *_weights: (h.new_empty(h.shape), c.new_empty(c.shape)),
    "gru_cell": lambda x, h, *_weights: h.new_empty(h.shape),
}


def _keep_for_cell(ctx, inputs, output):
    """Saves what eager's own nodes would, results aside: autograd_history.py looks."""
    x, *states_and_weights = (t for t in inputs if t is not None)
    ctx.save_for_backward(x, *states_and_weights)


def _fake_ctc_loss(log_probs, targets, inputs, lengths, blank, reduction, zero_infinity):
    each = log_probs.shape[1:-1] if reduction == 0 else ()
    return log_probs.new_empty(each)


def ctc_loss(log_probs, targets, inputs, lengths, blank=0, reduction=1, zero_infinity=False):
    """What torch.ctc_loss is replaced by during a capture."""
    _library()
    counts = [n if isinstance(n, torch.Tensor) else torch.tensor(n) for n in (inputs, lengths)]
    given = as_cast(_CTC_LOSS, log_probs, targets, *counts, blank, reduction, zero_infinity)
    return torch.ops.ortmodule.ctc_loss(*given)


def _fake_attention(query, key, value, attn_mask=None, dropout_p=0.0, *_args, **_kwargs):
    if not _is_flash(query, key, value, attn_mask, dropout_p):
        return query.new_empty((*query.shape[:-1], value.shape[-1]))
    return torch.empty_like(query)


def _laid_out(result: Any, query: Any, key: Any, value: Any, mask: Any, dropout: float) -> Any:
    """Traced, torch's attention comes apart into products even where its flash kernel would run."""
    flash = torch.backends.cuda.flash_sdp_enabled() and _is_flash(query, key, value, mask, dropout)
    if not flash or query.is_contiguous():
        return result
    return torch.empty_like(query, dtype=result.dtype).copy_(result)


def _is_flash(query: Any, key: Any, value: Any, mask: Any, dropout: float) -> bool:
    """Whether torch runs its flash kernel, whose result lies in memory as the query does, and not
    products of scaled copies."""
    return (
        dropout == 0
        and query.dim() == key.dim() == value.dim() == 4
        and _known_equal(query.shape[:2], key.shape[:2])
        and _known_equal(query.shape[:2], value.shape[:2])
        and _known_equal(query.shape[-1], value.shape[-1])
        and all(_known_equal(t.stride(-1), 1) for t in (query, key, value))
        and (mask is None or (mask.dim() != 3 and not mask.requires_grad))
    )


def _keep_for_attention(ctx, inputs, output):
    """Saves what eager's own node would: autograd_history.py looks."""
    query, key, value, mask, dropout, *_ = inputs
    if _is_flash(query, key, value, mask, dropout):
        ctx.save_for_backward(query, key, value, output)
    else:
        asked = [t.requires_grad for t in (query, key) if t is not None]
        ctx.save_for_backward(*[value] * any(asked))


def _no_gradient(ctx, *_grads):
    raise AssertionError("what stands in a traced graph has no backward to run")


def stands_for(function: Any) -> Any:
    """torch's attention for its stand-in, as which of them it is depends on what sizes show."""
    own = torch.ops.ortmodule
    if getattr(function, "_overloadpacket", function) is own.scaled_dot_product_attention:
        return _TORCHS
    return function


def as_torch(target: Any) -> Callable:
    """Torch's own function for an operator of ours."""
    name = target.overloadpacket.__name__
    if name == "scaled_dot_product_attention":
        return _torchs_attention
    if name in _TORCHS_CELLS:
        return _TORCHS_CELLS[name]
    return torch.ctc_loss if name == "ctc_loss" else getattr(variable_functions, name)


def attention(original: Callable) -> Callable:
    """What torch's scaled_dot_product_attention is replaced by during a capture: the stand-in for
    tensors [B, H, T, D] of one dtype whose sizes are known to fit, else torch's own."""
    _library()

    @functools.wraps(original)
    def call(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **kwargs):
        given = as_cast(_ATENS, query, key, value, attn_mask)
        simple = not kwargs.keys() - {"scale"} and not (is_causal and attn_mask is not None)
        if not 0 <= dropout_p <= 1:  # which kernels refuse it is torch's
            raise NeedsCut(f"forward calls attention with a dropout of {dropout_p}")
        simple = simple and torch.backends.cuda.flash_sdp_enabled()
        if query.dim() and value.dim():
            _equal(query.shape[-1], value.shape[-1])  # which kernel torch runs, so settled here
        if not simple or not _fits(*given):
            return _laid_out(original(*given, dropout_p, is_causal, **kwargs), *given, dropout_p)
        op = torch.ops.ortmodule.scaled_dot_product_attention
        return op(*given, dropout_p, is_causal, **kwargs)

    return call


def _fits(query: Any, key: Any, value: Any, mask: Any) -> bool:
    tensors = [query, key, value]
    if not all(isinstance(t, torch.Tensor) and t.dim() == 4 for t in tensors):
        return False
    dtype = query.dtype
    if not dtype.is_floating_point or any(t.dtype != dtype for t in tensors):
        return False
    if not all(devices.is_provided(t.device) for t in tensors):
        return False
    (*lead, length, width), (*ours, keys, depth), others = (t.shape for t in tensors)
    pairs = [*zip((*lead, width), (*ours, depth), strict=True)]
    pairs += zip((*lead, keys), others[:3], strict=True)
    if not all(_equal(a, b) for a, b in pairs):
        return False
    if mask is None:
        return True
    wide = zip(reversed(mask.shape), reversed((*lead, length, keys)), strict=False)
    return (
        2 <= mask.dim() <= 4
        and mask.dtype in (torch.bool, dtype)
        and all(_known_equal(a, 1) or _equal(a, b) for a, b in wide)
    )


def _known_equal(a: Any, b: Any) -> bool:
    return statically_known_true(sym_eq(a, b))


def _equal(a: Any, b: Any) -> bool:
    """Whether two sizes of this call are one, which the capture then relies on; what data decides
    must be known."""
    if has_free_unbacked_symbols((a, b)):
        return _known_equal(a, b)
    return bool(a == b)


def stand_ins() -> dict[str, Callable]:
    """What torch._VF's recurrent functions are replaced by during a capture, by name."""
    _library()
    layers = {name: functools.partial(_call, name) for name in _OPS}
    return {**layers, "lstm_cell": _lstm_cell, "gru_cell": _gru_cell}


def _is_one_op(x: torch.Tensor, states: Sequence[torch.Tensor], *weights: Any) -> bool:
    """Whether a cell of these is an operator of ours: an unrolled loop has thousands of them, and
    each operator of a trace takes a millisecond."""
    given = (x, *states, *(w for w in weights if w is not None))
    plain = not torch.is_autocast_enabled(x.device.type)
    alike = all(t.dtype == x.dtype and devices.is_provided(t.device) for t in given)
    fit = all(s.dim() == 2 and _known_equal(s.shape[0], x.shape[0]) for s in states)
    return plain and alike and x.dim() == 2 and fit


def _check_batch(x: torch.Tensor, *states: torch.Tensor) -> None:
    """As torch does: a batch of one is not broadcast."""
    for state in (s for s in states if s.dim() == x.dim() == 2):
        if _known_equal(state.shape[0], 1) != _known_equal(x.shape[0], 1):
            raise RuntimeError("Input batch size doesn't match that of a hidden state")


def _lstm_cell(x, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    """Torch's own comes apart for one batch size alone."""
    _check_batch(x, hx[0], hx[1])
    if _is_one_op(x, hx, w_ih, w_hh, b_ih, b_hh):
        return torch.ops.ortmodule.lstm_cell(x, *hx, w_ih, w_hh, b_ih, b_hh)
    gates = linear(hx[0], w_hh, b_hh) + linear(x, w_ih, b_ih)
    i, f, g, o = gates.chunk(4, 1)
    c = f.sigmoid() * hx[1] + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _gru_cell(x, hx, w_ih, w_hh, b_ih=None, b_hh=None):
    _check_batch(x, hx)
    if _is_one_op(x, [hx], w_ih, w_hh, b_ih, b_hh):
        return torch.ops.ortmodule.gru_cell(x, hx, w_ih, w_hh, b_ih, b_hh)
    reset, update, new = linear(x, w_ih, b_ih).chunk(3, 1)
    before_reset, before_update, before_new = linear(hx, w_hh, b_hh).chunk(3, 1)
    new = (new + before_new * (before_reset + reset).sigmoid()).tanh()
    return (hx - new) * (before_update + update).sigmoid() + new


def _call(name: str, x: Any, hx: Any, *rest: Any) -> Any:
    if not isinstance(rest[0], (list, tuple)):
        raise NeedsCut(f"forward calls {name} on a packed sequence")
    if _known_equal(x.shape[int(bool(rest[-1]))], 0):  # rest[-1]: the batch comes first
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    op = getattr(torch.ops.ortmodule, name)
    hx = list(hx) if isinstance(hx, (list, tuple)) else hx
    weights, *rest = rest
    states = hx if isinstance(hx, list) else [hx]
    projected = states[0].shape[-1] != states[-1].shape[-1]
    kinds = x.dtype, states[0].dtype, weights[0].dtype
    dtypes = _result_dtypes(name, projected, *kinds, tuple(autocast.ambient().items()))
    widest = functools.reduce(torch.promote_types, dtypes)
    x, hx, weights = tree_map(lambda tensor: tensor.to(widest), (x, hx, list(weights)))
    outs = op(x, hx, weights, *rest)
    return tuple(out.to(dtype) for out, dtype in zip(outs, dtypes, strict=True))


@functools.lru_cache(maxsize=256)
def _result_dtypes(
    name: str, projected: bool, x: torch.dtype, hx: torch.dtype, weight: torch.dtype, _state: tuple
) -> list[torch.dtype]:
    """The dtypes that torch's own layer gives here: asked of a layer of one cell, of two with a
    projection to one."""
    cells = 2 if projected else 1
    gates = {"lstm": 4, "gru": 3}.get(name, 1) * cells
    sizes = [(gates, 1), (gates, 1), (gates,), (gates,)] + [(1, cells)] * projected
    with autocast.plain():
        states = [torch.zeros(1, 1, size, dtype=hx) for size in (1, cells)]
        weights = [torch.zeros(size, dtype=weight) for size in sizes]
        run = getattr(variable_functions, name)
        given = states if name == "lstm" else states[0]
        outs = run(torch.zeros(1, 1, 1, dtype=x), given, weights, True, 1, 0.0, False, False, False)
    return [out.dtype for out in outs]


def counting_batch_norm(original: Callable) -> Callable:
    """The forward of a batch norm, where momentum is None: torch's own makes a number of Python's
    of the number of calls, to divide by it."""

    @functools.wraps(original)
    def forward(self, x):
        counts = self.training and self.track_running_stats
        if self.momentum is not None or not counts or self.num_batches_tracked is None:
            return original(self, x)
        self._check_input_dim(x)
        self.num_batches_tracked.add_(1)
        mean, var = torch.zeros_like(self.running_mean), torch.zeros_like(self.running_var)
        y = batch_norm(x, mean, var, self.weight, self.bias, True, 1.0, self.eps)
        share = 1.0 / self.num_batches_tracked.double()
        for kept, new in ((self.running_mean, mean), (self.running_var, var)):
            kept.copy_(share * new.double() + (1 - share) * kept.double())
        return y

    # What it reads of the module is what a layer of torch's reads: it is guarded.
    forward.__code__ = forward.__code__.replace(co_filename=batchnorm.__file__)
    return forward


def with_counted_dims(original: Callable) -> Callable:
    """A norm as torch.linalg has, whose traced form keeps a size of 1 at a negative dim."""

    @functools.wraps(original)
    def call(x, *args, **kwargs):
        if isinstance(x, torch.Tensor) and len(args) > 1:
            args = (args[0], _counted(args[1], x.dim()), *args[2:])
        elif isinstance(x, torch.Tensor) and "dim" in kwargs:
            kwargs["dim"] = _counted(kwargs["dim"], x.dim())
        return original(x, *args, **kwargs)

    return call


def _counted(dim: Any, rank: int) -> Any:
    """A dim, or several, from the first; one out of range is torch's to refuse."""
    if isinstance(dim, (list, tuple)):
        return [_counted(d, rank) for d in dim]
    return dim + rank if isinstance(dim, int) and -rank <= dim < 0 else dim
