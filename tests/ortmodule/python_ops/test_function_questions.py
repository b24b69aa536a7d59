"""What a Function's code asks of the tensors that it was given, besides their values, and what its
backward writes: as in eager."""

import pytest
import torch
from torch import nn
from torch.autograd import Function

from ortmodule import ORTModule

QUESTIONS = {
    "isinstance": lambda m, t: isinstance(t, nn.Parameter),
    "attribute": lambda m, t: getattr(t, "gain", 1) == 7,
    "looked up": lambda m, t: hasattr(t, "gain") and t.gain == 7,
    "is": lambda m, t: t is m.given(),
    "leaf": lambda m, t: t.is_leaf,
    "type": lambda m, t: type(t) is nn.Parameter,
}


class InForward(Function):
    @staticmethod
    def forward(ctx, x, tensor, module):
        ctx.save_for_backward(tensor)
        return x * tensor * (10 if module.asks(module, tensor) else 1)

    @staticmethod
    def backward(ctx, g):
        (tensor,) = ctx.saved_tensors
        return g * tensor, None, None


class InBackward(Function):
    @staticmethod
    def forward(ctx, x, tensor, module):
        ctx.tensor, ctx.module = tensor, module
        return x * tensor

    @staticmethod
    def backward(ctx, g):
        return g * (10 if ctx.module.asks(ctx.module, ctx.tensor) else 1), None, None


class InSaved(InForward):
    @staticmethod
    def forward(ctx, x, tensor, module):
        ctx.save_for_backward(tensor)
        ctx.module = module
        return x * tensor

    @staticmethod
    def backward(ctx, g):
        (tensor,) = ctx.saved_tensors
        return g * (10 if ctx.module.asks(ctx.module, tensor) else 1), None, None


class Asks(nn.Module):
    def __init__(self, function, asks, given, cut):
        super().__init__()
        self.linear, self.weight = nn.Linear(4, 4), nn.Parameter(torch.full((4,), 2.0))
        self.register_buffer("table", torch.full((4,), 3.0))
        self.held = torch.full((4,), 4.0)
        self.x = None
        for tensor in (self.weight, self.table, self.held):
            tensor.gain = 7
        self.function, self.asks, self.cut = function, asks, cut
        self.given = {
            "weight": lambda: self.weight, "table": lambda: self.table, "held": lambda: self.held,
        }[given]  # fmt: skip

    def forward(self, x):
        y = self.linear(x)
        if self.cut and y.sum() > 1e9:
            y = y * 2
        return self.function.apply(y, self.given(), self)


def steps(model, module):
    found = []
    for size in (3, 3, 2):
        module.zero_grad()
        x = torch.linspace(-1, 1, 4 * size).reshape(size, 4).requires_grad_()
        y = model(x)
        y.sum().backward()
        found.append([y.detach(), x.grad, *(p.grad for p in module.parameters())])
    return found


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("given", ["weight", "table", "held"])
@pytest.mark.parametrize("function", [InForward, InBackward, InSaved])
@pytest.mark.parametrize("question", QUESTIONS)
def test_what_a_function_asks_of_a_tensor(question, function, given):
    for cut in (False, True):
        torch.manual_seed(0)
        module = Asks(function, QUESTIONS[question], given, cut)
        expected = steps(module, module)
        model = ORTModule(module)
        torch.testing.assert_close(steps(model, module), expected)
        assert cut or any("asks" in r for r in model.explain().reasons()), model.explain()


class Written(Function):
    """Its backward calls `written`."""

    @staticmethod
    def forward(ctx, x, target, written):
        ctx.target, ctx.written = target, written
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        ctx.written(ctx.target, g)
        return g * 2, None, None


def accumulates(target, g):
    weight = target if isinstance(target, torch.Tensor) else target.weight
    weight.grad = g.sum(0) if weight.grad is None else weight.grad + g.sum(0)


WRITES = {
    "to a list": (lambda m: m.tape, lambda tape, g: tape.append(len(tape))),
    "to a dict": (lambda m: m.counts, lambda counts, g: counts.update({len(counts): 1})),
    "to a nested list": (lambda m: (1, m.tape), lambda pair, g: pair[1].append(1)),
    "a parameter's gradient": (lambda m: m.weight, accumulates),
    "the module's gradient": (lambda m: m, accumulates),
}


class Writes(nn.Module):
    def __init__(self, target, written, cut):
        super().__init__()
        self.linear, self.weight = nn.Linear(4, 4), nn.Parameter(torch.zeros(4))
        self.tape, self.counts = [], {}
        self.target, self.written, self.cut = target, written, cut

    def forward(self, x):
        y = self.linear(x)
        if self.cut and y.sum() > 1e9:
            y = y * 2
        return Written.apply(y, self.target(self), self.written) * 3


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_what_a_backward_writes(write, cut):
    found = []
    for wrap in (lambda m: m, ORTModule):
        torch.manual_seed(0)
        module = Writes(*WRITES[write], cut)
        model, seen = wrap(module), []
        for _ in range(4):
            model(torch.ones(2, 4)).sum().backward()
            gradient = module.weight.grad
            assert gradient is None or type(gradient) is torch.Tensor
            seen.append((list(module.tape), dict(module.counts), gradient, module.linear.bias.grad))
        found.append(seen)
    torch.testing.assert_close(*found)
