"""Memory of a device: what a plan needs is told when it is not there, and it is given back."""

import gc

import far
import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from ortmodule import InferenceSession, Options, ORTModule, _native


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


def test_what_was_freed_late_is_had_by_a_second_try(small):
    far.schedule(0)
    model, x = module(), torch.randn(128, 64)
    with torch.no_grad():
        expected = model(x)
        one = model.explain().arena_bytes
        assert far.live() == 0
        small(one + one // 2)
        for _ in range(3):
            assert torch.equal(model(x), expected)


class TwoOutputs(nn.Module):
    """A backward of the output that the one before did not ask for has forward run again."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x):
        h = self.first(x).tanh()
        return h, self.second(h).tanh()


def gradients(model, output, **options):
    """Of half the sum of the output's squares, by parameter."""
    model.zero_grad()
    output.backward(output.detach(), **options)
    return [p.grad for p in model.parameters()]


def test_a_backward_that_found_no_memory_can_be_made_again(small):
    torch.manual_seed(0)
    eager = TwoOutputs()
    x = torch.randn(8, 16)
    expected = [gradients(eager, y, retain_graph=True) for y in eager(x)]
    model = ORTModule(eager, Options("error", ("far", "cpu", "aten")))
    failed = 0
    for attempt in range(80):
        outputs, other = model(x), attempt % 2
        small(far.live() + attempt * 256)
        try:
            gradients(model, outputs[other], retain_graph=True)
        except torch.OutOfMemoryError:
            failed += 1
        small(0)
        found = gradients(model, outputs[other])
        torch.testing.assert_close(found, expected[other], rtol=1e-5, atol=1e-6)
    assert failed > 3 and model.explain().reruns > 40


def test_constants_are_uploaded_once_for_all_plans(request):
    weight = numpy_helper.from_array(np.ones((256, 256), np.float32), "w")
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 256]) for name in ("x", "y")
    ]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], [weight])
    opset = [helper.make_opsetid("", 21)]
    far.share(100)
    request.addfinalizer(lambda: far.share(60))
    session = InferenceSession(
        helper.make_model(graph, opset_imports=opset).SerializeToString(), providers=["far", "cpu"]
    )
    before = far.live()
    for rows in range(1, 6):
        (y,) = session.run(None, {"x": np.ones((rows, 256), np.float32)})
        np.testing.assert_array_equal(y, np.full((rows, 256), 256))
        assert far.live() - before <= 1.01 * weight.ByteSize()
    del session
    gc.collect()
    assert far.live() == before


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
