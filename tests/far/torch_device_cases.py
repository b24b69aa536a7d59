"""Modules whose tensors live on a device of torch's other than the host: PrivateUse1.

Run by test_torch_device.py in a process of its own: torch knows one such device from then on.
"""

import gc

import far
import far_torch
import pytest
import torch
from far_torch import DEVICE
from torch import nn
from trained import build, losses

from ortmodule import Options, ORTModule

# Ops that the device has no kernel of its own for, and products with an activation.
LACKED = ("gelu", "Embedding", "Attention", "+tanh")


@pytest.fixture(autouse=True)
def whole_device():
    far.schedule(0)
    far.share(100)
    yield
    far.share(60)


def on_device(module):
    return ORTModule(module.to(DEVICE), Options("error", ("far", "aten", "cpu")))


@pytest.mark.models
@pytest.mark.parametrize("name", ["mlp", "bert", "resnet14"])
def test_models_train_where_their_tensors_live(name):
    eager, batch = build(name, dropout=0.0)
    expected = losses(name, eager, batch)
    batch = {key: value.to(DEVICE) for key, value in batch.items()}
    model = on_device(build(name, dropout=0.0)[0])
    start = {key: value.clone() for key, value in model.state_dict().items()}
    for seed in (0, 7):
        far.schedule(seed)
        model.load_state_dict(start)
        assert losses(name, model, batch) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    report = model.explain()
    beside = {s.name for s in report.steps if s.provider not in ("far", "plan")}
    assert not report.fallbacks and report.providers["far"] > 30
    assert not [name for name in beside if not any(op in name for op in LACKED)], beside
    assert all(p.grad.device == DEVICE for p in model.parameters() if p.grad is not None)


class WithAnOperatorOfTorch(nn.Module):
    """Linear, an operator that the engine has no op for, dropout."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x, scale):
        h = torch.special.i0e(self.linear(x)) * scale
        return nn.functional.dropout(h, 0.5, self.training)


class Operator(nn.Module):
    """One that the engine has no op for."""

    def forward(self, x):
        return torch.special.i0e(x)


def test_operators_of_torch_and_numbers_of_the_host():
    torch.manual_seed(0)
    eager = WithAnOperatorOfTorch().eval()
    x, scale = torch.randn(4, 8), torch.tensor(3.0)
    expected = eager(x, scale)
    expected.sum().backward()
    gradient = eager.linear.weight.grad.clone()
    eager.zero_grad()
    model = on_device(eager)
    y = model(x.to(DEVICE), scale)
    y.sum().backward()
    assert y.device == DEVICE and model.explain().providers["aten"] == 2
    torch.testing.assert_close(y.cpu(), expected)
    torch.testing.assert_close(eager.linear.weight.grad.cpu(), gradient)


def test_the_devices_generator_gives_the_key():
    model = on_device(WithAnOperatorOfTorch().train())
    x, scale = torch.randn(4, 8).to(DEVICE), torch.tensor(1.0)
    far_torch.manual_seed_all(3)
    host = torch.get_rng_state()
    first, second = model(x, scale).cpu(), model(x, scale).cpu()
    far_torch.manual_seed_all(3)
    again = model(x, scale).cpu()
    assert torch.equal(first, again) and not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), host)


def test_torchs_current_stream_is_the_engines_first():
    torch.manual_seed(0)
    eager = WithAnOperatorOfTorch().eval()
    x, scale = torch.randn(4, 8), torch.tensor(3.0)
    expected = eager(x, scale).detach()
    model, x = on_device(eager), x.to(DEVICE)
    side = torch.Stream(DEVICE)
    with side:
        assert torch.accelerator.current_stream() == side
        y = model(x, scale)
        torch.testing.assert_close(y.detach().cpu(), expected)  # waits for this stream alone
        y = model(x, scale)
    y.sum().backward()
    assert eager.linear.weight.grad.cpu().isfinite().all()


def test_a_plan_waits_for_its_queued_work_before_it_goes():
    module = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.Linear(64, 64))
    x = torch.randn(8, 64)
    expected = module(x).detach()
    model, x = on_device(module), x.to(DEVICE)
    with torch.no_grad():
        model(x)
        y = model(x)
    assert far.late_kernels() > 0
    del model
    gc.collect()
    assert far.late_kernels() == 0
    torch.testing.assert_close(y.cpu(), expected)


@pytest.fixture
def small():
    yield far.limit
    far.limit(0)


def test_out_of_memory_of_outputs_and_of_torchs_operators(small):
    model = on_device(nn.Linear(8, 4096))
    x = torch.randn(64, 8).to(DEVICE)
    with torch.no_grad():
        model(x)
        small(far.live() + 200_000)
        with pytest.raises(torch.OutOfMemoryError, match="far has no .*; the plan needs "):
            model(x)
        small(0)
        operator, z = on_device(Operator()), torch.randn(512, 512).to(DEVICE)
        operator(z)
        small(far.live() + z.nbytes + 3000)
        with pytest.raises(torch.OutOfMemoryError, match=r"\[aten.*special_i0e.*far has no "):
            operator(z)
    assert not model.explain().fallbacks
    assert operator.explain().providers == {"aten": 1}


class Brought(nn.Linear):
    """Its result lies on the host."""

    def forward(self, x):
        return super().forward(x).relu().cpu()


def test_a_result_that_is_brought_to_the_host_is_there():
    module, x = Brought(3, 3), torch.randn(2, 3)
    expected = module(x).detach()
    model = ORTModule(module.to(DEVICE), Options("report", ("far", "aten", "cpu")))
    with pytest.warns(UserWarning, match="returns a tensor on cpu, expected far:0 as"):
        y = model(x.to(DEVICE))
    assert y.device.type == "cpu"
    torch.testing.assert_close(y.detach(), expected)
    y.sum().backward()
    assert module.weight.grad.device == DEVICE


def test_a_device_without_a_named_provider_is_eagers():
    model = ORTModule(nn.Linear(3, 3).to(DEVICE), Options(providers=("cpu", "aten")))
    with pytest.warns(UserWarning, match="none of the providers gives memory of private_use:0"):
        y = model(torch.ones(2, 3).to(DEVICE))
    assert y.device == DEVICE and model.explain().fallbacks
