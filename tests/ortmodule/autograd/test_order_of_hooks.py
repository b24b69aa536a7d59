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
