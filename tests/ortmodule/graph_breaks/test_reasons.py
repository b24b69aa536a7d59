"""What explain() says of a module that no capture, or no part, can hold."""

import collections
import decimal
import logging
import sys
import types

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from ortmodule import ORTModule

pytestmark = pytest.mark.filterwarnings("ignore:ORTModule")
X = torch.linspace(-1, 1, 15).view(5, 3)


class Asking(nn.Module):
    def __init__(self, forward, cut, **attributes):
        super().__init__()
        self.l, self.k, self.norm = nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.body, self.cut = forward, cut
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x):
        y = self.k(x)
        if self.cut and y.sum() > 1e9:
            y = y * 2
        return self.body(self, x) + y


class Doubled:
    temperature = property(lambda s: s.kept * 2, lambda s, v: setattr(s, "kept", v))


class Halving(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value / 2)


class Inherited:
    scale = 1.0


class Inherits(Inherited):
    pass


def set_a_property(s, x):
    s.o.temperature = 3.0
    return s.l(x) * s.o.temperature


def set_an_item(s, x):
    s.d["v"] = 4.0
    return s.l(x) * s.d["v"]


def moved(s, x):
    s.d.move_to_end(next(iter(s.d)))
    return s.l(x)


def imported(s, x):
    import reasons_settings

    return s.l(x) * reasons_settings.v


def doubled():
    made = Doubled()
    made.kept = 1.0
    return made


WHOLE = {
    "forward reads a number of a tensor that it holds": (
        lambda s, x: s.l(x) * s.t.item(), {"t": torch.ones(1)},
    ),
    "a checkpointed region writes to what the module keeps": (
        lambda s, x: checkpoint(lambda t: s.norm(s.l(t)), x, use_reentrant=False), {},
    ),
    "forward computes with decimals, whose context no guard holds": (
        lambda s, x: s.l(x) * float(decimal.Decimal(1) / decimal.Decimal(3)), {},
    ),
    "forward asks a generator's seed (initial_seed)": (
        lambda s, x: s.l(x) * (s.g.initial_seed() % 7), {"g": torch.Generator()},
    ),
    "forward calls logging.getLogger": (
        lambda s, x: s.l(x) * logging.getLogger("reasons").isEnabledFor(30), {},
    ),
}  # fmt: skip
PARTS = {
    "forward reaches Doubled.temperature, which parts do not call": (
        set_a_property, {"o": doubled()},
    ),
    "forward reaches Halving.__setitem__, which parts do not call": (set_an_item, {"d": Halving()}),
    "forward changes the order of a dict (move_to_end), which parts do not write back": (
        moved, {"d": collections.OrderedDict(a=1.0, b=2.0)},
    ),
}  # fmt: skip


def told(model):
    report = model.explain()
    return [str(f) for f in (*report.fallbacks, *report.not_whole, *report.warm_ups)]


@pytest.mark.parametrize("reason", [*WHOLE, *PARTS])
def test_it_is_told(reason):
    forward, attributes = (WHOLE | PARTS)[reason]
    model = ORTModule(Asking(forward, reason in PARTS, **attributes))
    for _ in range(2):
        model(X)
    assert any(reason in line for line in told(model)), told(model)


def test_a_parameter_that_is_held_twice():
    model = ORTModule(Asking(lambda s, x: s.l(x) * (2 if s.h[0] is s.l.weight else 3), False))
    model.module.h = [model.module.l.weight]
    model(X)
    reason = "forward asks by `is` or `in` for an object, and h[0] is a registered tensor"
    assert any(reason in line and "test_reasons.py" in line for line in told(model)), told(model)


def test_another_module_is_imported():
    first, second = (types.ModuleType("reasons_settings") for _ in range(2))
    first.v, second.v = 1.0, 7.0
    model = ORTModule(Asking(imported, True))
    try:
        for sys.modules["reasons_settings"] in (first, second):
            model(X)
    finally:
        sys.modules.pop("reasons_settings", None)
    (found,) = [line for line in told(model) if "parts import it once" in line]
    assert "sys.modules.reasons_settings was a module, is another" in found


def test_what_changes_at_every_call_is_named():
    model = ORTModule(Asking(lambda s, x: s.l(x) * Inherits.scale, True))
    for i in range(8):
        Inherited.scale = float(i)
        model(X)
    assert any("Inherited.scale was" in r and "from call to call" in r for r in told(model))


def test_a_second_order_beside_hooks_and_hidden_outputs_is_refused():
    class Hooked(nn.Linear):
        def forward(self, x):
            y = super().forward(x).tanh()
            y.register_hook(lambda g: g.clamp(-0.1, 0.1))
            return y, y.sin()

    model, x = ORTModule(Hooked(3, 3)), X.clone().requires_grad_()
    with pytest.raises(RuntimeError, match="sets hooks on gradients, which would see .*eager"):
        torch.autograd.grad(model(x)[1].sum(), x, create_graph=True)
    with model.eager():
        (slope,) = torch.autograd.grad(model(x)[1].sum(), x, create_graph=True)
    slope.square().sum().backward()


def test_a_capture_leaves_tensors_as_they_were():
    """A slot that a class once filled may stay filled: a 0-d tensor was a sequence ever after."""
    before = dict(vars(torch.Tensor))
    ORTModule(Asking(lambda s, x: s.l(x), False))(X)
    assert vars(torch.Tensor) == before
    assert torch.tensor([torch.tensor(1.5)]).tolist() == [1.5]
    assert range(torch.tensor(3)) == range(3) and float(torch.tensor(2)) == 2.0
