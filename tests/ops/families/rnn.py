"""Recurrent layers over [T, B, I]; ONNX's gate order i, o, f, c."""

import numpy as np
import torch

from ..table import Op, bad, sample, t


def one_way(x, w, r, b, h, c, p, lengths, reverse, clip, input_forget):
    """One direction; every sequence by itself, so that lengths are plain."""
    hidden = r.shape[-1]
    bias = b[: 4 * hidden] + b[4 * hidden :] if b is not None else 0
    pi, po, pf = p.chunk(3) if p is not None else (0, 0, 0)
    bound = (lambda v: v.clamp(-clip, clip)) if clip else (lambda v: v)
    ys, hs, cs = [], [], []
    for row in range(x.shape[1]):
        state_h, state_c, made = h[row], c[row], [torch.zeros_like(h[row])] * x.shape[0]
        steps = range(int(lengths[row]))
        for step in reversed(steps) if reverse else steps:
            i, o, f, g = (x[step, row] @ w.T + state_h @ r.T + bias).chunk(4)
            i = torch.sigmoid(bound(i + pi * state_c))
            f = 1 - i if input_forget else torch.sigmoid(bound(f + pf * state_c))
            state_c = f * state_c + i * torch.tanh(bound(g))
            state_h = torch.sigmoid(bound(o + po * state_c)) * torch.tanh(state_c)
            made[step] = state_h
        ys.append(torch.stack(made))
        hs.append(state_h)
        cs.append(state_c)
    return torch.stack(ys, 1), torch.stack(hs), torch.stack(cs)


def lstm(
    x, w, r, b=None, lengths=None, h=None, c=None, p=None,
    direction="forward", clip=0.0, input_forget=0, **unused,
):  # fmt: skip
    directions, _, hidden = r.shape
    lengths = [x.shape[0]] * x.shape[1] if lengths is None else lengths
    zero = torch.zeros(directions, x.shape[1], hidden, dtype=x.dtype)
    h, c = zero if h is None else h, zero if c is None else c
    parts = [
        one_way(
            x, w[d], r[d], None if b is None else b[d], h[d], c[d], None if p is None else p[d],
            lengths, direction == "reverse" or d == 1, clip, input_forget,
        )
        for d in range(directions)
    ]  # fmt: skip
    ys, hs, cs = zip(*parts, strict=True)
    return torch.stack(ys, 1), torch.stack(hs), torch.stack(cs)


T, B, WIDTH, H = 5, 2, 3, 4


def weights(directions=1):
    return (
        t(T, B, WIDTH),
        t(directions, 4 * H, WIDTH),
        t(directions, 4 * H, H),
        t(directions, 8 * H),
    )


def states(directions=1):
    return None, t(directions, B, H), t(directions, B, H)


def lstm_grad(dy, dy_h, dy_c, x, w, r, h, c, y, gates, direction="forward"):
    b = torch.zeros(r.shape[0], 8 * H, dtype=x.dtype)
    leaves = [v.detach().requires_grad_() for v in (x, w, r, b, h, c)]
    outputs = lstm(*leaves[:4], None, *leaves[4:], direction=direction)
    return torch.autograd.grad(outputs, leaves, (dy, dy_h, dy_c))


def saved(direction, directions):
    """y and the gates that the forward would have kept, from the same formulas."""
    x, w, r, _ = weights(directions)
    h, c = t(directions, B, H), t(directions, B, H)
    y = np.zeros((T, directions, B, H))
    gates = np.zeros((T, directions, B, 5 * H))
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    for d in range(directions):
        state_h, state_c = h[d], c[d]
        backwards = direction == "reverse" or d == 1
        for step in reversed(range(T)) if backwards else range(T):
            i, o, f, g = np.split(x[step] @ w[d].T + state_h @ r[d].T, 4, -1)
            i, o, f, g = sigmoid(i), sigmoid(o), sigmoid(f), np.tanh(g)
            state_c = f * state_c + i * g
            state_h = o * np.tanh(state_c)
            y[step, d] = state_h
            gates[step, d] = np.concatenate([i, o, f, g, state_c], -1)
    last = t(directions, B, H), t(directions, B, H)
    return sample(t(*y.shape), *last, x, w, r, h, c, y, gates, direction=direction)


OPS = [
    Op(
        "LSTM",
        lstm,
        [
            sample(*weights()[:3]),
            sample(*weights(), *states()),
            sample(*weights(), *states(), direction="reverse"),
            sample(*weights(2), *states(2), direction="bidirectional"),
            sample(*weights(), np.array([3, 5], "int32"), gradient=False),
            sample(
                *weights(2), np.array([4, 1], "int32"), direction="bidirectional", gradient=False
            ),
            sample(*weights(), *states(), t(1, 3 * H), gradient=False),
            sample(*weights(), clip=0.5, input_forget=1, gradient=False),
            sample(*weights(), activations=["Sigmoid", "Tanh", "Tanh"], hidden_size=H),
        ],
        [
            bad("layout 1 is not supported", *weights()[:3], layout=1),
            bad("which direction forward does not fit", *weights(2)[:3]),
            bad("direction is 'up'", *weights()[:3], direction="up"),
            bad("b has shape [1, 3], expected [1, 32]", *weights()[:3], t(1, 3)),
            bad("w has shape [1, 16, 2], expected", t(T, B, WIDTH), t(1, 16, 2), t(1, 16, H)),
            bad("sequence length 6 is not in 0 to 5", *weights(), np.array([6, 1], "int32")),
            bad("activations other than Sigmoid", *weights()[:3], activations=["Relu"] * 3),
        ],
        refused=[
            bad("no gradient with clip", *weights()[:3], clip=0.5),
            bad("no gradient with clip or input_forget", *weights()[:3], input_forget=1),
            bad("no gradient with sequence lengths", *weights(), np.array([3, 5], "int32")),
            bad("no gradient with activation Relu", *weights()[:3], activations=["Relu"] * 3),
        ],
    ),
    Op(
        "ort::LSTMGrad",
        lstm_grad,
        [saved("forward", 1), saved("reverse", 1), saved("bidirectional", 2)],
        no_gradient="only in a backward",
    ),
]
