"""Memory of a device: what a plan needs is told when it is not there, and it is given back."""

import far
import numpy as np
import pytest
import torch
from torch import nn

from ortmodule import Options, ORTModule, _native


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


GATHER = """graph (%x: float32[10, 4] user, %i: int64[2] user)
  %1 = Gather(%x, %i) {axis=0}
return ("y" = %1)
"""


def test_an_index_that_is_out_of_range_is_found_when_the_run_ends():
    far.share(100)
    try:
        graph = _native.core().Compiled(_native.core().parse(GATHER), ["far"])
    finally:
        far.share(60)
    x = np.arange(40, dtype=np.float32).reshape(10, 4)
    for i in ([1, 2], [9, 0]):
        np.testing.assert_equal(graph.run({"x": x, "i": np.array(i)})[0], x[i])
        with pytest.raises(RuntimeError, match=r"^\[Gather\] an index is out of range; node %"):
            graph.run({"x": x, "i": np.array([1, 12])})
