"""Models train on the provider cuda over the double, whose streams run late, with cpu's losses."""

import gc
import pathlib

import cuda_double
import far
import pytest
import torch
from alone import passed_alone
from trained import Trained


@pytest.fixture(autouse=True)
def double():
    cuda_double.use()
    far.schedule(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the models are tiny
    yield
    torch.set_num_threads(threads)


# Of the steps those that cuda runs; the rest has no kernel there yet.
@pytest.mark.models
@pytest.mark.parametrize("name, share", [("mlp", 1.0), ("bert", 0.9), ("gpt2", 0.9)])
def test_losses_under_every_schedule(name, share):
    """With dropout: masks are cpu's."""
    expected = torch.tensor(Trained(name, "cpu", "aten").losses())
    trained = Trained(name, "cuda", "cpu", "aten", segment_bytes=0)
    for seed in range(10):
        far.schedule(seed)
        losses = torch.tensor(trained.losses())
        assert torch.allclose(losses, expected, rtol=1e-5, atol=1e-5), (seed, losses, expected)
    report = trained.model.explain()
    steps = [s for s in report.steps if s.provider != "plan"]
    assert sum(s.provider == "cuda" for s in steps) >= share * len(steps), report.providers
    copies = {s.name for s in report.steps if s.provider == "plan"}
    assert {"copy cpu -> cuda:0", "copy cuda:0 -> cpu"} <= copies
    assert not report.fallbacks and not report.reruns
    del trained
    gc.collect()
    assert far.live() == 0


def test_modules_train_where_their_tensors_live():
    """In a process of its own: torch knows one device of another name from then on."""
    assert passed_alone(pathlib.Path(__file__).with_name("torch_device_cases.py")) == 6
