"""Modules whose tensors live on the double, as PrivateUse1. Run by test_cuda_training.py."""

import cuda_double
import far
import pytest
import torch
from far_torch import DEVICE
from trained import build, losses

from ortmodule import Options, ORTModule


@pytest.mark.models
@pytest.mark.parametrize("name", ["mlp", "bert"])
def test_models_train_where_their_tensors_live(name):
    cuda_double.use(cuda_double.PRIVATE_USE)
    eager, batch = build(name, dropout=0.0)
    expected = losses(name, eager, batch)
    batch = {key: value.to(DEVICE) for key, value in batch.items()}
    module = build(name, dropout=0.0)[0].to(DEVICE)
    model = ORTModule(module, Options("error", ("cuda", "aten", "cpu")))
    start = {key: value.clone() for key, value in model.state_dict().items()}
    for seed in (0, 7):
        far.schedule(seed)
        model.load_state_dict(start)
        assert losses(name, model, batch) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    report = model.explain()
    assert not report.fallbacks and report.providers["cuda"] > 0
    assert all(p.grad.device == DEVICE for p in model.parameters() if p.grad is not None)


class Shifted(torch.nn.Module):
    """Rows that are read by lanes, and moved as they are."""

    def forward(self, x):
        return torch.softmax(x, -1), x.transpose(0, 1).contiguous()


@pytest.mark.parametrize("begin", [0, 1, 2, 4])
def test_tensors_may_begin_anywhere_in_their_storage(begin):
    """Where a tensor is not aligned to 16 bytes, its elements are loaded one by one."""
    cuda_double.use(cuda_double.PRIVATE_USE)
    whole = torch.randn(3 * 5 * 256 + 8)
    x = whole[begin : begin + 3 * 5 * 256].view(3, 5, 256)
    moved = whole.to(DEVICE)[begin : begin + 3 * 5 * 256].view(3, 5, 256)
    model = ORTModule(Shifted(), Options("error", ("cuda", "aten", "cpu")))
    before = cuda_double.launches("packs")
    for y, want in zip(model(moved), Shifted()(x), strict=True):
        torch.testing.assert_close(y.to("cpu"), want, rtol=1e-5, atol=1e-6)
    assert cuda_double.launches("packs") - before == (begin in (0, 4))
