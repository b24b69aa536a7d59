"""Recurrent layers: torch's stacked, bidirectional ones as one ONNX node a layer."""

from ..registry import aten
from .random import dropout

# torch's order of gates -> ONNX's: i f g o -> i o f c; r z n -> z r h.
_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


def _recurrent(onnx: str, **attrs):
    def rule(t, x, state, weights, has_biases, layers, p, train, bidirectional, batch_first):
        """x [T, B, I] (or [B, T, I]); states [layers * D, B, H] -> y and the last states."""
        directions, each = (2 if bidirectional else 1), (4 if has_biases else 2)
        if len(weights) != layers * directions * each:
            return NotImplemented  # an LSTM with proj_size
        x = t.swap(x, 0, 1) if batch_first else x
        if t.depends_on_data(x.dims[0]):
            t.check_not(x.dims[0], 0, "Expected sequence length to be larger than 0 in RNN")
        state = state if isinstance(state, list) else [state]
        lasts: list[list] = [[] for _ in state]
        for layer in range(layers):
            at = layer * directions
            given = [weights[(at + d) * each : (at + d + 1) * each] for d in range(directions)]
            states = [t.slice(s, 0, at, at + directions) for s in state]
            x, *last = _layer(t, onnx, x, states, given, attrs)
            for all_of, one in zip(lasts, last, strict=False):
                all_of.append(one)
            if p > 0 and train and layer + 1 < layers:
                x = dropout(t, x, p, True)
        x = t.swap(x, 0, 1) if batch_first else x
        return [x, *(t.concat(all_of, 0) for all_of in lasts)]

    return rule


aten("ortmodule.lstm.default")(_recurrent("LSTM"))
aten("ortmodule.gru.default")(_recurrent("GRU", linear_before_reset=1))
aten("ortmodule.rnn_tanh.default")(_recurrent("RNN", activations="Tanh"))
aten("ortmodule.rnn_relu.default")(_recurrent("RNN", activations="Relu"))


def _layer(t, onnx, x, states, given, attrs):
    """given: per direction weight_ih, weight_hh and perhaps bias_ih, bias_hh."""

    def stacked(index):
        rows = [_gates(t, onnx, one[index]) for one in given]
        return t.concat([t.unsqueeze(row, [0]) for row in rows], 0)

    bias = None
    if len(given[0]) == 4:
        bias = t.concat([stacked(2), stacked(3)], 1)
    attrs = {
        **attrs,
        "hidden_size": t.static(given[0][1].dims[1], "the hidden size"),
        "direction": "bidirectional" if len(given) == 2 else "forward",
    }
    if "activations" in attrs:
        attrs["activations"] = [attrs["activations"]] * len(given)
    inputs = (x, stacked(0), stacked(1), bias, None, *states)
    y, *last = t.op(onnx, *inputs, n=1 + len(states), **attrs)
    time, directions, batch, hidden = y.dims  # [T, D, B, H] -> [T, B, D * H]
    y = t.transpose(y, [0, 2, 1, 3])
    return t.reshape(y, [time, batch, directions * hidden]), *last


def _gates(t, onnx, w):
    order = _ORDER[onnx]
    if len(order) == 1:
        return w
    size = t.static(w.dims[0], "the size of all gates") // len(order)
    gates = t.op("Split", w, t.sizes([size] * len(order)), n=len(order), axis=0)
    return t.concat([gates[i] for i in order], 0)


@aten("ortmodule.lstm_cell.default")
def lstm_cell(t, x, h, c, w_ih, w_hh, b_ih=None, b_hh=None):
    """x [B, I], h and c [B, H] -> the next h and c."""
    gates = t.op("Add", t.ort("Linear", h, w_hh, b_hh), t.ort("Linear", x, w_ih, b_ih))
    i, f, g, o = _parts(t, gates, 4)
    kept = t.op("Mul", t.op("Sigmoid", f), c)
    c = t.op("Add", kept, t.op("Mul", t.op("Sigmoid", i), t.op("Tanh", g)))
    return [t.op("Mul", t.op("Sigmoid", o), t.op("Tanh", c)), c]


@aten("ortmodule.gru_cell.default")
def gru_cell(t, x, h, w_ih, w_hh, b_ih=None, b_hh=None):
    """x [B, I], h [B, H] -> the next h."""
    reset, update, new = _parts(t, t.ort("Linear", x, w_ih, b_ih), 3)
    before_reset, before_update, before_new = _parts(t, t.ort("Linear", h, w_hh, b_hh), 3)
    reset = t.op("Sigmoid", t.op("Add", before_reset, reset))
    new = t.op("Tanh", t.op("Add", new, t.op("Mul", before_new, reset)))
    update = t.op("Sigmoid", t.op("Add", before_update, update))
    return t.op("Add", t.op("Mul", t.op("Sub", h, new), update), new)


def _parts(t, gates, count):
    size = t.static(gates.dims[1], "the size of all gates") // count
    return t.op("Split", gates, t.sizes([size] * count), n=count, axis=1)
