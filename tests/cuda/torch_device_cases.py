"""Modules whose tensors live on the double, as PrivateUse1. Run by test_cuda_training.py."""

import cuda_double
import far
import pytest
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
    for seed in (0, 7):
        far.schedule(seed)
        module = build(name, dropout=0.0)[0].to(DEVICE)
        model = ORTModule(module, Options("error", ("cuda", "aten", "cpu")))
        assert losses(name, model, batch) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    report = model.explain()
    assert not report.fallbacks and report.providers["cuda"] > 0
    assert all(p.grad.device == DEVICE for p in model.parameters() if p.grad is not None)
