"""The provider that test_additions.py adds: what it takes, and a step of training with it."""

import numpy as np
import torch

from ortmodule import Options, ORTModule, _native

C = _native.core()


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.deg2rad(x).square().sum()


def test_it_takes_its_op_and_no_other():
    text = 'graph (%x: float32[4] user)\n  %1 = ort::Radians(%x)\n  %2 = Exp(%1)\nreturn ("y" = %2)'
    assert C.refusals(C.parse(text), "tenth") == ["", "it runs ort::Radians alone"]
    x = np.linspace(-180, 180, 4, dtype=np.float32)
    y = C.evaluate(C.parse(text), {"x": x}, ["tenth", "cpu"])[0]
    np.testing.assert_allclose(y, np.exp(np.deg2rad(x)), rtol=1e-5)


def test_a_module_trains_with_it():
    x = torch.linspace(-90, 90, 7, requires_grad=True)
    model = ORTModule(Model(), Options(providers=("tenth", "cpu")))
    model(x).backward()
    got, x.grad = x.grad, None
    Model()(x).backward()
    torch.testing.assert_close(got, x.grad)
    assert model.explain().providers["tenth"] >= 1
