"""Runs every family of kernels while a timer's signal arrives 3,000 times a second, in training, in
a session and in optimizers, and compares with what eager gives in quiet. test_signals.py runs this
in a process of its own: a kernel that a signal can harm ends it."""

import pathlib
import signal
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn

from ortmodule import InferenceSession, Options, ORTModule, optim
from ortmodule.lowbit import quantized

SECONDS = 1.0  # of all families together
RATE = 3000
rung = 0


def ring(*_):
    global rung
    rung += 1


class Calls(nn.Module):
    """A function of x and two parameters."""

    def __init__(self, function, *shapes):
        super().__init__()
        self.function = function
        self.parts = nn.ParameterList(torch.randn(s) * 0.05 for s in shapes)

    def forward(self, x):
        return self.function(x, *self.parts)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer = kind(64, 96, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0]


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.each = nn.ModuleList([nn.BatchNorm1d(48), nn.LayerNorm(200), nn.RMSNorm(200)])

    def forward(self, x):
        return sum(norm(x.exp()) for norm in self.each) + x.softmax(-1)


def attention(x, w, v):
    q, k, v = (F.linear(x, p).unflatten(-1, (4, 16)).transpose(1, 2) for p in (w, v, w + v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def few_bits():
    codes, scales = quantized.quantize(torch.randn(256, 256), "int8")
    return Calls(
        lambda x, w: quantized.linear(x * w, codes, scales, "int8", 256, 256, False), (256,)
    )


# Modules and their inputs. Products of 512 columns and more were those that ended a process.
FAMILIES = {
    "linear": lambda: (nn.Linear(512, 512), (64, 512)),
    "wide": lambda: (nn.Linear(512, 2048), (256, 512)),
    "narrow": lambda: (nn.Linear(768, 768), (8, 768)),
    "one row": lambda: (nn.Linear(768, 768), (1, 768)),
    "one column": lambda: (nn.Linear(768, 1), (64, 768)),
    "a b": lambda: (Calls(lambda x, w: x @ w, (512, 384)), (96, 512)),
    "aT b": lambda: (Calls(lambda x, w: x.T @ w, (512, 384)), (512, 96)),
    "a bT": lambda: (Calls(lambda x, w: x @ w.T, (384, 512)), (96, 512)),
    "aT bT": lambda: (Calls(lambda x, w: x.T @ w.T, (384, 512)), (512, 96)),
    "batched": lambda: (Calls(lambda x, w: x @ w, (8, 64, 512)), (8, 96, 64)),
    "float64": lambda: (nn.Linear(256, 256).double(), (64, 256)),
    "epilogues": lambda: (
        nn.Sequential(
            nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256), nn.Tanh(), nn.Linear(256, 8)
        ),
        (64, 256),
    ),
    "attention": lambda: (Calls(attention, (64, 64), (64, 64)), (4, 96, 64)),
    "lstm": lambda: (Recurrent(nn.LSTM), (8, 12, 64)),
    "convolutions": lambda: (
        nn.Sequential(
            nn.Conv2d(8, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, groups=32),
            nn.Conv2d(32, 24, 1),
            nn.ConvTranspose2d(24, 8, 2, stride=2),
        ),
        (4, 8, 20, 20),
    ),
    "one axis": lambda: (nn.Conv1d(24, 48, 5, dilation=2), (4, 24, 80)),
    "pools": lambda: (
        Calls(lambda x, w: F.avg_pool2d(F.max_pool2d(x * w, 2), 3, 1, 1), (24, 24)),
        (4, 8, 24, 24),
    ),
    "norms": lambda: (Norms(), (16, 48, 200)),
    "tile programs": lambda: (
        Calls(lambda x, w: (x.sin() * w).exp().sum(1) + torch.erf(x * w).mean(), (400,)),
        (200, 400),
    ),
}
NOT_OF_ONNX = {
    "gru": lambda: (Recurrent(nn.GRU), (8, 6, 64)),
    "few bits": lambda: (few_bits(), (64, 256)),
}


class All(nn.Module):
    """All modules of a table, each with an input of its own."""

    def __init__(self, families):
        super().__init__()
        made = [make() for make in families.values()]
        self.members = nn.ModuleList(module for module, _ in made)
        self.inputs = [
            torch.randn(shape, dtype=next(module.parameters()).dtype) for module, shape in made
        ]

    def forward(self, *inputs):
        return [member(x) for member, x in zip(self.members, inputs, strict=True)]


def step(model, inputs):
    model.zero_grad()
    results = model(*inputs)
    sum(y.square().sum() for y in results).backward()
    return [*(y.detach() for y in results), *(p.grad.clone() for p in model.parameters())]


def check(got, expected):
    for a, b in zip(got, expected, strict=True):
        scale = max(b.abs().max().item(), 1.0)
        assert (a - b).abs().max().item() <= 2e-4 * scale


def again(run, seconds=SECONDS):
    """`run` for a while, in the noise; its last result."""
    signal.setitimer(signal.ITIMER_REAL, 1 / RATE, 1 / RATE)
    end = time.monotonic() + seconds
    while True:
        result = run()
        if time.monotonic() > end:
            break
    signal.setitimer(signal.ITIMER_REAL, 0)
    return result


def train(families):
    torch.manual_seed(0)
    module = All(families)
    expected = step(module, module.inputs)
    model = ORTModule(module, Options(fallback="error"))
    step(model, module.inputs)
    check(again(lambda: step(model, module.inputs)), expected)
    return model.eval()


def infer(model, path):
    inputs = model.module.inputs
    expected = model(*inputs)
    model.export_onnx(path, tuple(inputs))
    session = InferenceSession(path)
    feed = {i.name: x.numpy() for i, x in zip(session.get_inputs(), inputs, strict=True)}
    check([torch.from_numpy(y) for y in again(lambda: session.run(None, feed))], expected)


def optimizers():
    for kind in ("SGD", "Adam", "AdamW", "LAMB", "Lion"):
        parameters = [nn.Parameter(torch.ones(300, 400)) for _ in range(4)]
        optimizer = getattr(optim, kind)(parameters, lr=1e-4)
        for p in parameters:
            p.grad = torch.full_like(p, 0.5)
        again(optimizer.step, 0.1)
        assert all(torch.equal(p, parameters[0]) for p in parameters), kind


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, ring)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        with torch.enable_grad():
            model = train(FAMILIES)
            train(NOT_OF_ONNX)
        infer(model, pathlib.Path(folder) / "model.onnx")
        optimizers()
    print("rung", rung)
