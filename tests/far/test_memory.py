"""Memory of a device: what a plan needs is told when it is not there, and it is given back."""

import far
import pytest
import torch
from torch import nn

from ortmodule import Options, ORTModule


def module(**options):
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64))
    return ORTModule(layers, Options("error", ("far", "cpu", "aten"), **options))


@pytest.fixture
def small():
    yield far.limit
    far.limit(0)


def test_out_of_memory_tells_the_peak_and_the_largest_values(small):
    model = module()
    x = torch.randn(128, 64)
    expected = model(x)
    small(100_000)
    with pytest.raises(torch.OutOfMemoryError) as error:
        model(x)
    text = str(error.value)
    assert text.startswith("far has no "), text
    assert "the plan needs " in text and "bytes on private_use:0" in text
    assert "the largest values: 131072 bytes made by " in text
    small(0)
    torch.testing.assert_close(model(x), expected)


@pytest.fixture
def whole():
    far.share(100)
    yield
    far.share(60)


def test_an_index_that_is_out_of_range_is_found_when_the_run_ends(whole):
    torch.manual_seed(0)
    embedding = nn.Sequential(nn.Embedding(10, 4), nn.Tanh())
    model = ORTModule(embedding, Options("error", ("far", "cpu")))
    ids = torch.tensor([1, 2])
    torch.testing.assert_close(model(ids), embedding(ids))
    with pytest.raises(RuntimeError, match=r"\[Gather\] an index is out of range; node %"):
        model(torch.tensor([1, 12]))
    torch.testing.assert_close(model(ids), embedding(ids))
