"""A module in eager and its twin under ORTModule: the same calls and gradients, compared.

Used by test_honest.py, test_edits.py, test_streaming.py, test_autograd.py and test_wrapper.py.
"""

import copy

import torch
from torch import nn

from ortmodule import Options, ORTModule

PROVIDERS = ("cpu", "aten")


def options(**fields) -> Options:
    return Options(**{"providers": PROVIDERS, **fields})


def asks(_module, _inputs, output):
    """A forward hook that looks at data, which no capture holds whole."""
    return output * 2 if output.sum() > 1e9 else None


def mlp(width=4) -> nn.Module:
    return nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, 2))


class Net(nn.Module):
    """A module whose forward is `function(self, *args)`."""

    def __init__(self, function):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


class Pair:
    """`eager` and `ours` start equal; `each` does something to both; `step` compares a step."""

    def __init__(self, module: nn.Module, **fields):
        self.eager = module
        self.twin = copy.deepcopy(module)
        self.ours = ORTModule(self.twin, options(**fields))

    def each(self, change) -> None:
        change(self.eager)
        change(self.twin)

    @property
    def report(self):
        return self.ours.explain()

    def step(self, *args, backward=True, **kwargs):
        """One forward and backward of both; outputs, gradients and buffers must agree."""
        results = []
        for module in (self.eager, self.ours):
            module.zero_grad()
            torch.manual_seed(1)
            given = [a.detach().clone() if isinstance(a, torch.Tensor) else a for a in args]
            result = module(*given, **kwargs)
            results.append(result)
            if backward and result.requires_grad:
                result.square().sum().backward()
        close(results[1], results[0], "the output")
        assert results[1].requires_grad == results[0].requires_grad
        self.compare()
        return results[1]

    def compare(self) -> None:
        ours, eager = dict(self.ours.named_parameters()), dict(self.eager.named_parameters())
        assert list(ours) == list(eager)
        for name, theirs in eager.items():
            assert (ours[name].grad is None) == (theirs.grad is None), f"the gradient of {name}"
            if theirs.grad is not None:
                close(ours[name].grad, theirs.grad, f"the gradient of {name}")
        for name, theirs in self.eager.named_buffers():
            close(dict(self.ours.named_buffers())[name], theirs, name)

    def through_engine(self, captures=None) -> None:
        assert not self.report.fallbacks, self.report
        assert self.report.captures > 0
        if captures is not None:
            assert self.report.captures == captures

    def fell_back(self, reason: str) -> None:
        reasons = self.report.reasons()
        assert any(reason in r for r in reasons), reasons


def close(ours, theirs, what) -> None:
    torch.testing.assert_close(
        ours, theirs, rtol=1e-4, atol=1e-5, equal_nan=True, msg=lambda m: f"{what}: {m}"
    )


def same_outcomes(module, step, cases) -> None:
    """`step(function, case)` gives the same tensors, or raises the same, for eager and ours."""
    found = []
    for function in (ORTModule(module), module):
        rows = []
        for case in cases:
            try:
                rows.append(step(function, case))
            except RuntimeError as error:
                rows.append(str(error))
        found.append(rows)
    for ours, theirs in zip(*found, strict=True):
        if isinstance(theirs, str):
            assert ours == theirs
        else:
            torch.testing.assert_close(ours, theirs)
