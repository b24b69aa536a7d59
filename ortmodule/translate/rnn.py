"""Recurrent layers: torch's stacked, bidirectional LSTM as one ONNX LSTM a layer."""

from .random import dropout
from .registry import aten


@aten("lstm.input")
def lstm(t, x, state, weights, has_biases, layers, p, train, bidirectional, batch_first):
    """x [T, B, I] (or [B, T, I]); h, c [layers * D, B, H] -> y, h, c."""
    directions = 2 if bidirectional else 1
    each = 4 if has_biases else 2
    projected = len(weights) != layers * directions * each
    if x.rank != 3 or projected:
        return NotImplemented  # no batch axis, or proj_size
    if batch_first:
        x = t.swap(x, 0, 1)
    lasts: tuple[list, list] = ([], [])
    for layer in range(layers):
        at = layer * directions
        given = [weights[(at + d) * each : (at + d + 1) * each] for d in range(directions)]
        states = [t.slice(s, 0, at, at + directions) for s in state]
        x, h, c = _layer(t, x, states, given, has_biases)
        lasts[0].append(h)
        lasts[1].append(c)
        if p > 0 and train and layer + 1 < layers:
            x = dropout(t, x, p, True)
    x = t.swap(x, 0, 1) if batch_first else x
    return [x, t.concat(lasts[0], 0), t.concat(lasts[1], 0)]


def _layer(t, x, states, given, has_biases):
    w = t.concat([t.unsqueeze(_gates(t, g[0]), [0]) for g in given], 0)
    r = t.concat([t.unsqueeze(_gates(t, g[1]), [0]) for g in given], 0)
    bias = None
    if has_biases:
        rows = [t.concat([_gates(t, g[2]), _gates(t, g[3])], 0) for g in given]
        bias = t.concat([t.unsqueeze(b, [0]) for b in rows], 0)
    attrs = {
        "hidden_size": int(given[0][1].dims[1]),
        "direction": "bidirectional" if len(given) == 2 else "forward",
    }
    y, h, c = t.op("LSTM", x, w, r, bias, None, *states, n=3, **attrs)
    time, directions, batch, hidden = y.dims  # [T, D, B, H] -> [T, B, D * H]
    y = t.transpose(y, [0, 2, 1, 3])
    return t.reshape(y, [time, batch, directions * hidden]), h, c


def _gates(t, w):
    """torch stacks i, f, g, o; ONNX i, o, f, c (c is torch's g)."""
    i, f, g, o = t.op("Split", w, t.sizes([w.dims[0] // 4] * 4), n=4, axis=0)
    return t.concat([i, o, f, g], 0)
