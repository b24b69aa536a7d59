"""Hooks on parameters and inputs: called in eager's order, so that one that raises leaves the
gradients that it leaves in eager."""

import pytest
import torch
from torch import nn

from ortmodule import ORTModule


class Skipping(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.ones(8))

    def forward(self, x):
        h = self.norm(self.first(x) + x)
        return self.second(h.tanh()) * self.scale + self.first(h)


def deep():
    return nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(9)])


NETS = {
    "shared": Skipping,
    "deep": deep,
    "attention": lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
}


def hooked(module, kind, hook):
    """hook(name) on every parameter."""
    for name, parameter in module.named_parameters():
        register = {
            "gradient": parameter.register_hook,
            "accumulated": parameter.register_post_accumulate_grad_hook,
        }[kind]
        register(lambda _, name=name: hook(name))


@pytest.mark.parametrize("kind", ["gradient", "accumulated"])
@pytest.mark.parametrize("net", NETS)
def test_hooks_on_parameters_come_in_eagers_order(net, kind):
    found = []
    for wrap in (lambda m: m, ORTModule):
        torch.manual_seed(0)
        module, seen = NETS[net](), []
        hooked(module, kind, seen.append)
        x = torch.randn(3, 8, requires_grad=True)
        x.register_hook(lambda _, seen=seen: seen.append("x"))
        model = wrap(module)
        for _ in range(2):
            model(x).sum().backward()
        found.append(seen)
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["gradient", "accumulated"])
@pytest.mark.parametrize("name", ["0.0.weight", "4.0.bias", "8.0.weight"])
def test_a_hook_that_raises_leaves_the_gradients_that_eager_leaves(name, kind):
    found = []
    for wrap in (lambda m: m, ORTModule):
        torch.manual_seed(0)
        module = deep()

        def hook(other):
            if other == name:
                raise ValueError("stop")

        hooked(module, kind, hook)
        x = torch.ones(3, 8, requires_grad=True)
        with pytest.raises(ValueError, match="stop"):
            wrap(module)(x).sum().backward()
        found.append([p.grad for p in (*module.parameters(), x)])
    for theirs, mine in zip(*found, strict=True):
        assert (theirs is None) == (mine is None)
        if theirs is not None:
            torch.testing.assert_close(mine, theirs)


class Branching(nn.Module):
    """Outputs on the way of others, and branches made before and after them."""

    def __init__(self):
        super().__init__()
        for name in ("early", "first", "second", "late", "third"):
            setattr(self, name, nn.Linear(8, 8))

    def forward(self, x):
        early = self.early(x).tanh()
        h = self.first(x).sin()
        late = self.late(x).exp()
        k = self.second(h).sin() + early
        return h, self.third(k) * late, k


NAMES = [name for name, _ in Branching().named_parameters()]


def stop(*_):
    raise ValueError("stop")


def used_up_by(output):
    def prepare(model, outputs):
        outputs[output].sum().backward()

    return prepare


def raising_on(output):
    def prepare(model, outputs):
        outputs[output].register_hook(stop)

    return prepare


def raising_before(output):
    def prepare(model, outputs):
        outputs[output].grad_fn.register_prehook(stop)

    return prepare


def raising_at(parameter):
    def prepare(model, outputs):
        dict(model.named_parameters())[parameter].register_hook(stop)

    return prepare


def written_to(output):
    def prepare(model, outputs):
        with torch.no_grad():
            outputs[output].add_(1)

    return prepare


FAILURES = {
    **{f"used up by {i}": used_up_by(i) for i in range(3)},
    **{f"hook on {i}": raising_on(i) for i in range(3)},
    **{f"hook before {i}": raising_before(i) for i in range(3)},
    **{f"hook at {name}": raising_at(name) for name in NAMES},
    **{f"{i} written to": written_to(i) for i in range(3)},
}
LOSSES = {"all": (0, 1, 2), "the second": (1,), "the ends": (0, 1)}


ONLY = [None, ("first.weight", "third.bias", "late.weight"), ("third.bias",)]


@pytest.mark.parametrize("only", ONLY)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("failure", FAILURES)
def test_a_backward_that_fails_leaves_the_gradients_that_eager_leaves(failure, loss, only):
    found = []
    for wrap in (lambda m: m, ORTModule):
        torch.manual_seed(0)
        model = wrap(Branching())
        parameters = dict(model.named_parameters())
        outputs = model(torch.ones(3, 8))
        FAILURES[failure](model, outputs)
        inputs = only and [parameters[name] for name in only]
        error = None
        try:
            sum(outputs[i].sum() for i in LOSSES[loss]).backward(inputs=inputs)
        except (RuntimeError, ValueError) as raised:
            error = type(raised), str(raised)[:40]
        found.append((error, [p.grad for p in parameters.values()]))
    (theirs_error, theirs), (my_error, mine) = found
    assert my_error == theirs_error
    assert [g is None for g in mine] == [g is None for g in theirs]
    torch.testing.assert_close(*([g for g in kept if g is not None] for kept in (mine, theirs)))
