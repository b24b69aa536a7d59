"""Recurrent layers over x [T, B, I]; ONNX's gates: i, o, f, c of an LSTM, z, r, h of a GRU."""

import numpy as np
import torch
from torch.nn import functional

from ..table import Op, bad, i, sample, t

# Name -> the function of x, alpha and beta; how many of the two it has; what they are by default.
ACTIVATIONS = {
    "affine": (lambda x, a, b: a * x + b, (1.0, 0.0)),
    "elu": (lambda x, a, b: functional.elu(x, a), (1.0,)),
    "hardsigmoid": (lambda x, a, b: (a * x + b).clamp(0, 1), (0.2, 0.5)),
    "leakyrelu": (lambda x, a, b: functional.leaky_relu(x, a), (0.01,)),
    "relu": (lambda x, a, b: x.relu(), ()),
    "scaledtanh": (lambda x, a, b: a * torch.tanh(b * x), (1.0, 1.0)),
    "sigmoid": (lambda x, a, b: x.sigmoid(), ()),
    "softplus": (lambda x, a, b: functional.softplus(x), ()),
    "softsign": (lambda x, a, b: functional.softsign(x), ()),
    "tanh": (lambda x, a, b: x.tanh(), ()),
    "thresholdedrelu": (lambda x, a, b: torch.where(x >= a, x, 0.0), (1.0,)),
}


def activations(names, alphas, betas):
    """The functions in order; each takes the next alpha and beta where it has such a number."""
    alphas, betas = iter(alphas), iter(betas)
    made = []
    for name in names:
        function, numbers = ACTIVATIONS[name.lower()]
        alpha = next(alphas, numbers[0]) if numbers else 0.0
        beta = next(betas, numbers[1]) if len(numbers) > 1 else 0.0
        made.append(lambda x, f=function, a=alpha, b=beta: f(x, a, b))
    return made


def lstm_step(x, states, w, r, b, p, functions, options):
    f, g, h = functions
    state_h, state_c = states
    sums = x @ w.T + state_h @ r.T + (b[: len(w)] + b[len(w) :] if b is not None else 0)
    i, o, forget, new = sums.chunk(4)
    pi, po, pf = p.chunk(3) if p is not None else (0, 0, 0)
    bound = options["bound"]
    i = f(bound(i + pi * state_c))
    forget = 1 - i if options.get("input_forget") else f(bound(forget + pf * state_c))
    state_c = forget * state_c + i * g(bound(new))
    return f(bound(o + po * state_c)) * h(state_c), state_c


def gru_step(x, states, w, r, b, p, functions, options):
    f, g = functions
    (state,) = states
    wb, rb = b.chunk(2) if b is not None else (torch.zeros(len(w)), torch.zeros(len(w)))
    (wz, wr, wh), (rz, rr, rh) = (x @ w.T + wb).chunk(3), r.chunk(3)
    bz, br, bh = rb.chunk(3)
    bound = options["bound"]
    z, reset = f(bound(wz + state @ rz.T + bz)), f(bound(wr + state @ rr.T + br))
    if options.get("linear_before_reset"):
        new = g(bound(wh + reset * (state @ rh.T + bh)))
    else:
        new = g(bound(wh + (reset * state) @ rh.T + bh))
    return ((1 - z) * new + z * state,)


def rnn_step(x, states, w, r, b, p, functions, options):
    bias = b[: len(w)] + b[len(w) :] if b is not None else 0
    return (functions[0](options["bound"](x @ w.T + states[0] @ r.T + bias)),)


def layer(step, usual, states):
    """A layer of ONNX's inputs; every sequence by itself, so that lengths are plain."""

    def run(
        x, w, r, b=None, lengths=None, h=None, c=None, p=None,
        direction="forward", clip=0.0, layout=0, **options,
    ):  # fmt: skip
        directions, _, hidden = r.shape
        if layout:
            x = x.transpose(0, 1)
        steps, batch = x.shape[:2]
        names = options.pop("activations", None) or usual * directions
        functions = activations(
            names, options.pop("activation_alpha", ()), options.pop("activation_beta", ())
        )
        options["bound"] = (lambda v: v.clamp(-clip, clip)) if clip else (lambda v: v)
        lengths = [steps] * batch if lengths is None else lengths
        given = [h, c][:states]
        if layout:
            given = [None if s is None else s.transpose(0, 1) for s in given]
        zero = torch.zeros(directions, batch, hidden, dtype=x.dtype)
        given = [zero if s is None else s for s in given]
        ys, lasts = [], []
        for d in range(directions):
            backwards = direction == "reverse" or d == 1
            weights = [v if v is None else v[d] for v in (w, r, b, p)]
            mine = functions[d * len(usual) : (d + 1) * len(usual)]
            for row in range(batch):
                state, count = tuple(s[d, row] for s in given), int(lengths[row])
                made = [torch.zeros_like(state[0])] * steps
                for at in reversed(range(count)) if backwards else range(count):
                    state = step(x[at, row], state, *weights, mine, options)
                    made[at] = state[0]
                ys.append(torch.stack(made) if steps else x.new_zeros(0, hidden))
                lasts.append([s if count else torch.zeros_like(s) for s in state])
        y = torch.stack(ys).reshape(directions, batch, steps, hidden)
        y = y.permute(1, 2, 0, 3) if layout else y.permute(2, 0, 1, 3)
        last = [torch.stack(s).reshape(directions, batch, hidden) for s in zip(*lasts, strict=True)]
        return y, *(s.transpose(0, 1) if layout else s for s in last)

    return run


lstm = layer(lstm_step, ["Sigmoid", "Tanh", "Tanh"], 2)
gru = layer(gru_step, ["Sigmoid", "Tanh"], 1)
rnn = layer(rnn_step, ["Tanh"], 1)

T, B, WIDTH, H = 5, 2, 3, 4
SHORTER = np.array([3, 5], "int32")
EMPTY = np.array([0, 4], "int32")


def weights(gates, directions=1, scale=1.0):
    return (
        t(T, B, WIDTH),
        t(directions, gates * H, WIDTH) * scale,
        t(directions, gates * H, H) * scale,
        t(directions, 2 * gates * H) * scale,
    )


def rounded(h):
    """Whole numbers and their scale, by the rule of DynamicQuantizeLinear."""
    low, high = h.min().clamp(max=0), h.max().clamp(min=0)
    scale = (high - low) / 255 if high > low else torch.tensor(1.0)
    zero = (-low / scale).clamp(0, 255).round()
    return (h / scale).round().clamp(-zero, 255 - zero), scale


def dynamic_lstm(
    sums, r, scales, lengths=None, h=None, c=None, p=None, direction="forward", clip=0.0, **options
):
    """All sequences by steps, as a step rounds their states together."""
    directions, width, hidden = r.shape
    steps, batch = sums.shape[:2]
    lengths = [steps] * batch if lengths is None else [int(n) for n in lengths]
    names = options.pop("activations", None) or ["Sigmoid", "Tanh", "Tanh"] * directions
    functions = activations(names, (), ())
    options["bound"] = (lambda v: v.clamp(-clip, clip)) if clip else (lambda v: v)
    y = torch.zeros(steps, directions, batch, hidden)
    lasts = torch.zeros(2, directions, batch, hidden)
    for d in range(directions):
        now = [torch.zeros(batch, hidden) if s is None else s[d].clone() for s in (h, c)]
        for n in range(steps):
            running = torch.tensor([n <= count for count in lengths])
            whole, scale = rounded(torch.where(running[:, None], now[0], 0))
            met = whole @ r[d].T * (scale * scales[d])
            for row in (b for b in range(batch) if n < lengths[b]):
                t = lengths[row] - 1 - n if direction == "reverse" or d == 1 else n
                total = sums[t, row, d * width : (d + 1) * width] + met[row]
                state = lstm_step(
                    total, [s[row] for s in now], torch.eye(width), torch.zeros(width, hidden),
                    None, None if p is None else p[d], functions[3 * d : 3 * d + 3], options,
                )  # fmt: skip
                y[t, d, row] = state[0]
                for kind in range(2):
                    now[kind][row] = lasts[kind, d, row] = state[kind]
    return y, *lasts


def dynamic_operands(directions=1, lengths=None, peepholes=False):
    width = directions * 4 * H
    given = [
        t(T, B, width), i(directions, 4 * H, H, low=-127, high=128),
        t(directions, 4 * H, low=0.001, high=0.01), lengths, *states(2, directions)[1:],
        *([t(directions, 3 * H)] if peepholes else []),
    ]  # fmt: skip
    return [v if v is None or v is lengths else v.astype("float32") for v in given]


def states(count, directions=1):
    return None, *(t(directions, B, H) for _ in range(count))


def first_batch(x, w, r, b, lengths=None, *first):
    """The same operands in layout 1."""
    return x.swapaxes(0, 1), w, r, b, lengths, *(s.swapaxes(0, 1) for s in first)


def forms(gates, count):
    """Samples of what all three layers have in common."""
    both = {"direction": "bidirectional"}
    return [
        sample(*weights(gates)[:3]),
        sample(*weights(gates), *states(count)),
        sample(*weights(gates), *states(count), direction="reverse"),
        sample(*weights(gates, 2), *states(count, 2), **both),
        sample(*weights(gates), SHORTER, *states(count)[1:]),
        sample(*weights(gates), SHORTER, *states(count)[1:], direction="reverse"),
        sample(*weights(gates, 2), EMPTY, *states(count, 2)[1:], **both),
        sample(*first_batch(*weights(gates), *states(count)), layout=1),
        sample(*first_batch(*weights(gates, 2), SHORTER, *states(count, 2)[1:]), layout=1, **both),
        sample(*weights(gates), *states(count), clip=0.5),
    ]


def wrong(gates):
    """What all three refuse."""
    x, w, r, b = weights(gates)
    rows = gates * H
    return [
        bad("layout is 2, expected 0 or 1", x, w, r, layout=2),
        bad("which direction forward does not fit", *weights(gates, 2)[:3]),
        bad("direction is 'up'", x, w, r, direction="up"),
        bad(f"b has shape [1, 3], expected [1, {2 * rows}]", x, w, r, t(1, 3)),
        bad(f"w has shape [1, {rows}, 2], expected", x, t(1, rows, 2), r),
        bad("sequence length 6 is not in 0 to 5", x, w, r, b, np.array([6, 1], "int32")),
        bad("sequence length -1 is not in 0 to 5", x, w, r, b, np.array([2, -1], "int32")),
        bad("activations has 7 names, expected", x, w, r, activations=["Tanh"] * 7),
        bad("activation 'Cube' is not known, expected one of affine, elu", x, w, r,
            activations=["Cube"] * {1: 1, 3: 2, 4: 3}[gates]),
        bad("clip is -1, expected 0 or more", x, w, r, clip=-1.0),
        bad("x has shape [5, 2], r has shape", t(T, B), w, r),
    ]  # fmt: skip


def gradient_of(forward, count):
    """The gradient op's reference: its forward again, by torch."""

    def run(*given, **attrs):
        dy, (x, w, r), after = given[: 1 + count], given[1 + count : 4 + count], given[4 + count :]
        b = torch.zeros(r.shape[0], 2 * r.shape[1], dtype=x.dtype)
        leaves = [v.detach().requires_grad_() for v in (x, w, r, b, *after[:count])]
        outputs = forward(*leaves[:4], None, *leaves[4:], **attrs)
        return torch.autograd.grad(outputs, leaves, dy)

    return run


def saved_lstm(direction, directions):
    """y and the gates that the forward would have kept, from the same formulas."""
    x, w, r, _ = weights(4, directions)
    h, c = t(directions, B, H), t(directions, B, H)
    y = np.zeros((T, directions, B, H))
    gates = np.zeros((T, directions, B, 5 * H))
    for d, step, before, after in in_order(direction, directions, [h, c]):
        i, o, f, g = np.split(x[step] @ w[d].T + before[0] @ r[d].T, 4, -1)
        i, o, f, g = sigmoid(i), sigmoid(o), sigmoid(f), np.tanh(g)
        state_c = f * before[1] + i * g
        y[step, d] = o * np.tanh(state_c)
        gates[step, d] = np.concatenate([i, o, f, g, state_c], -1)
        after(y[step, d], state_c)
    last = t(directions, B, H), t(directions, B, H)
    return sample(t(*y.shape), *last, x, w, r, h, c, y, gates, direction=direction)


def saved_gru(direction, directions, after_product):
    x, w, r, _ = weights(3, directions, 0.5)
    h = t(directions, B, H)
    y = np.zeros((T, directions, B, H))
    gates = np.zeros((T, directions, B, 4 * H))
    for d, step, (state,), after in in_order(direction, directions, [h]):
        wz, wr, wh = np.split(x[step] @ w[d].T, 3, -1)
        rz, rr, rh = np.split(r[d], 3)
        z, reset = sigmoid(wz + state @ rz.T), sigmoid(wr + state @ rr.T)
        met = state @ rh.T if after_product else reset * state
        n = np.tanh(wh + (reset * met if after_product else met @ rh.T))
        y[step, d] = (1 - z) * n + z * state
        gates[step, d] = np.concatenate([z, reset, n, met], -1)
        after(y[step, d])
    attrs = {"direction": direction, "linear_before_reset": after_product}
    return sample(t(*y.shape), t(directions, B, H), x, w, r, h, y, gates, **attrs)


def saved_rnn(direction, directions):
    x, w, r, _ = weights(1, directions, 0.5)
    h = t(directions, B, H)
    y = np.zeros((T, directions, B, H))
    for d, step, (state,), after in in_order(direction, directions, [h]):
        y[step, d] = np.tanh(x[step] @ w[d].T + state @ r[d].T)
        after(y[step, d])
    return sample(t(*y.shape), t(directions, B, H), x, w, r, h, y, direction=direction)


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def in_order(direction, directions, first):
    """Each direction's steps with the states before them, and what takes those after."""
    for d in range(directions):
        now = [s[d] for s in first]
        backwards = direction == "reverse" or d == 1
        for step in reversed(range(T)) if backwards else range(T):
            yield d, step, list(now), lambda *after, now=now: now.__setitem__(slice(None), after)


OPS = [
    Op(
        "LSTM",
        lstm,
        [
            *forms(4, 2),
            sample(*weights(4), *states(2), t(1, 3 * H)),
            sample(*weights(4, 2), SHORTER, *states(2, 2)[1:], t(2, 3 * H),
                   direction="bidirectional", input_forget=1),
            sample(*weights(4), *states(2), clip=0.5, input_forget=1),
            sample(*weights(4), activations=["Sigmoid", "Tanh", "Tanh"], hidden_size=H),
            sample(*weights(4), *states(2), t(1, 3 * H),
                   activations=["hardSigmoid", "softsign", "Affine"], activation_alpha=[0.3, 0.7],
                   activation_beta=[0.4, 0.1]),
            sample(*weights(4, 2, 0.5), direction="bidirectional", layout=0, clip=2.0,
                   activations=["scaledtanh", "SOFTPLUS", "Tanh", "Sigmoid", "elu", "leakyrelu"],
                   activation_alpha=[0.8, 0.6, 0.2], activation_beta=[1.2]),
        ],
        [*wrong(4), bad("p has shape [1, 4], expected [1, 12]", *weights(4), *states(2), t(1, H))],
    ),
    Op(
        "GRU",
        gru,
        [
            *forms(3, 1),
            sample(*weights(3), *states(1), linear_before_reset=1),
            sample(*weights(3), linear_before_reset=1, direction="reverse", hidden_size=H),
            sample(*weights(3, 2), EMPTY, *states(1, 2)[1:], linear_before_reset=1,
                   direction="bidirectional"),
            sample(*first_batch(*weights(3, 2), *states(1, 2)), layout=1, linear_before_reset=1,
                   direction="bidirectional"),
            sample(*weights(3)[:3], None, SHORTER, linear_before_reset=1, clip=0.7),
            sample(*weights(3), *states(1), activations=["HARDSIGMOID", "softsign"]),
            sample(*weights(3, 2, 0.5), *states(1, 2), direction="bidirectional",
                   linear_before_reset=1,
                   activations=["sigmoid", "SCALEDTANH", "Affine", "softplus"],
                   activation_alpha=[0.9, 0.3], activation_beta=[1.1, 0.2]),
        ],
        wrong(3),
    ),
    Op(
        "RNN",
        rnn,
        [
            *forms(1, 1),
            sample(*weights(1), *states(1), activations=["Relu"]),
            sample(*weights(1, 2), SHORTER, activations=["relu", "Sigmoid"],
                   direction="bidirectional"),
            sample(*weights(1), *states(1), activations=["Tanh", "Tanh"]),
            sample(*weights(1), *states(1), activations=["elu"], activation_alpha=[0.7]),
            sample(*weights(1), *states(1), activations=["thresholdedrelu"],
                   activation_alpha=[0.3]),
            sample(*weights(1, 2), SHORTER, clip=0.8, direction="bidirectional",
                   activations=["hardsigmoid", "leakyrelu"], activation_alpha=[0.3, 0.2],
                   activation_beta=[0.45]),
        ],
        wrong(1),
    ),
    Op(
        "ort::DynamicQuantizeLSTM",
        dynamic_lstm,
        [
            sample(*dynamic_operands()[:3]),
            sample(*dynamic_operands(), direction="reverse"),
            sample(*dynamic_operands(2), direction="bidirectional"),
            sample(*dynamic_operands(lengths=SHORTER)),
            sample(*dynamic_operands(lengths=SHORTER), direction="reverse"),
            sample(*dynamic_operands(2, EMPTY, True), direction="bidirectional", input_forget=1),
            sample(*dynamic_operands(peepholes=True), clip=0.5,
                   activations=["hardSigmoid", "softsign", "Tanh"]),
        ],
        [
            bad("sums has shape [5, 2, 16], expected [5, 2, 32]",
                dynamic_operands()[0], *dynamic_operands(2)[1:3], direction="bidirectional"),
            bad("sequence length 6 is not in 0 to 5",
                *dynamic_operands(lengths=np.array([6, 1], "int32"))),
            bad("which direction forward does not fit", *dynamic_operands(2)[:3]),
        ],
    ),
    Op(
        "ort::LSTMGrad",
        gradient_of(lstm, 2),
        [saved_lstm("forward", 1), saved_lstm("reverse", 1), saved_lstm("bidirectional", 2)],
        no_gradient="only in a backward",
    ),
    Op(
        "ort::GRUGrad",
        gradient_of(gru, 1),
        [
            saved_gru("forward", 1, 0),
            saved_gru("bidirectional", 2, 0),
            saved_gru("reverse", 1, 1),
            saved_gru("bidirectional", 2, 1),
        ],
        no_gradient="only in a backward",
    ),
    Op(
        "ort::RNNGrad",
        gradient_of(rnn, 1),
        [saved_rnn("forward", 1), saved_rnn("reverse", 1), saved_rnn("bidirectional", 2)],
        no_gradient="only in a backward",
    ),
]  # fmt: skip
