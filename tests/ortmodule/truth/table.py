"""The table of truth: what forward reads, asks, writes and returns, each case a factory.

A factory makes the case anew, with all of its state: `test_truth.py` runs it once in eager and once
through ORTModule, three calls each, and compares everything that can be seen of them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

CASES: dict[str, "Entry"] = {}


@dataclasses.dataclass(frozen=True)
class Entry:
    """A case, whether it is captured (calls run through the engine), and if so, whether some of its
    calls are reported as eager's all the same."""

    factory: Callable[[], "Case"]
    captured: bool
    partly: bool


@dataclasses.dataclass
class Case:
    """`call(model, x, i)` is the i-th call; `before(module, i)` changes something ahead of it;
    `state()` is whatever else is to be compared, after each call."""

    module: nn.Module
    call: Callable[[Any, torch.Tensor, int], Any] = lambda model, x, i: model(x)
    before: Callable[[nn.Module, int], None] = lambda module, i: None
    state: Callable[[], Any] = lambda: None


class Base(nn.Module):
    """Two layers, a buffer and a number; `body` is its forward."""

    def __init__(self, body: Callable, **attributes: Any):
        super().__init__()
        self.l, self.k = nn.Linear(3, 3), nn.Linear(3, 3)
        self.register_buffer("n", torch.zeros(()))
        self.body = body
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, *args, **kwargs):
        return self.body(self, *args, **kwargs)


def case(captured: bool, partly: bool = False):
    """Adds a factory to the table under its name."""

    def add(factory: Callable[[], Case]) -> Callable[[], Case]:
        name = f"{factory.__module__.rpartition('.')[2]}.{factory.__name__}"
        assert name not in CASES, name
        CASES[name] = Entry(factory, captured, partly)
        return factory

    return add
