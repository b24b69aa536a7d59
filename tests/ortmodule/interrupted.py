"""What a program does with signals around a training step: Ctrl-C, a handler that saves the
weights, children that end, children that train. test_signals.py runs each in a process."""

import io
import os
import random
import signal
import subprocess
import sys
import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader

from ortmodule import Options, ORTModule

X = torch.linspace(-1, 1, 64 * 512).reshape(64, 512)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 64))


def step(model):
    model.zero_grad()
    loss = model(X).square().mean()
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters())]


def check(model):
    torch.testing.assert_close(step(model), step(net()), rtol=1e-4, atol=1e-6)


def steps(model, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        step(model)


def keyboard_interrupt():
    """At any time, in the first steps and in later ones: the next step is eager's."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)  # as SIGINT's, in this thread
    waits, stopped = random.Random(0), 0
    model = ORTModule(net(), Options(fallback="error"))
    for turn in range(25):
        try:
            signal.setitimer(signal.ITIMER_REAL, waits.uniform(0, 0.5 if turn < 5 else 0.005))
            steps(model, 1)
        except KeyboardInterrupt:
            stopped += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        check(model)
    assert stopped == 25, stopped


def saves():
    """The handler of SIGTERM saves the weights in the midst of steps."""
    model = ORTModule(net(), Options(fallback="error"))
    step(model)
    saved = []

    def save(*_):
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        saved.append(file.getvalue())

    signal.signal(signal.SIGTERM, save)
    sender = threading.Thread(
        target=lambda: [(time.sleep(0.05), os.kill(os.getpid(), 15)) for _ in range(20)]
    )
    sender.start()
    while sender.is_alive():
        step(model)
    check(model)
    for file in saved:
        weights = torch.load(io.BytesIO(file))
        torch.testing.assert_close(weights, model.state_dict(), rtol=0, atol=0)
    assert len(saved) > 10


def children_end():
    """A DataLoader with workers has set a handler of SIGCHLD."""
    model = ORTModule(net(), Options(fallback="error"))
    for rows in DataLoader(X, batch_size=32, num_workers=2):
        assert len(rows) == 32
    step(model)
    ended = threading.Thread(target=lambda: [subprocess.run(["true"]) for _ in range(60)])
    ended.start()
    while ended.is_alive():
        step(model)
    check(model)


def children_train():
    """A child trains, plain and wrapped, after its parent made a wrapper and trained with it."""
    for trains_first in (False, True):
        model = ORTModule(net(), Options(fallback="error"))
        if trains_first:
            step(model)
        child = os.fork()
        if child == 0:
            torch.set_num_threads(1)
            try:
                check(net())
                check(ORTModule(net(), Options(fallback="error")))
                check(model)
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0, trains_first


if __name__ == "__main__":
    globals()[sys.argv[1]]()
