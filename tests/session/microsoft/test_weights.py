"""Products with weights of few bits: groups in an order of their own, and gradients.

The weight is written out with numpy: onnxruntime takes no zero points beside g_idx.
"""

import numpy as np
import pytest
import torch
from onnx import helper

from ortmodule import InferenceSession
from ortmodule._native import core

from .cases import made, rng

Error = core().Error
N, K, BLOCK = 5, 40, 16
COUNT = 3  # blocks in a column, the last of them cut
PLACES = np.arange(K) // BLOCK
WEIGHTS = {"x1", "x2", "x3"}


def unpacked(packed, bits):
    parts = [packed >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(len(packed), -1).astype(np.float64)


def operands(bits=4, groups=None, zeros=True, bias=False):
    """Of MatMulNBits; what its scales are multiplied by [N, K]; the block of each place in K."""
    packed = rng.integers(0, 256, (N, COUNT, BLOCK * bits // 8)).astype(np.uint8)
    zero = rng.integers(0, 256, (N, -(-COUNT * bits // 8))).astype(np.uint8) if zeros else None
    centre = unpacked(zero, bits)[:, :COUNT] if zeros else np.full((N, COUNT), 1 << bits - 1)
    a, scales = rng.standard_normal((2, K)), rng.random((N, COUNT)) / 10
    where = PLACES if groups is None else groups[:K]
    codes = unpacked(packed.reshape(N, -1), bits)[:, :K] - centre[:, where]
    given = [x.astype(np.float32) for x in (a, scales)]
    index = None if groups is None else groups.astype(np.int32)
    more = rng.standard_normal(N).astype(np.float32) if bias else None
    return [given[0], packed, given[1], zero, index, more], codes, where


def attrs(bits=4):
    return {"N": N, "K": K, "bits": bits, "block_size": BLOCK}


GROUPS = {
    "in order": PLACES,
    "shuffled": np.random.default_rng(1).permutation(PLACES),
    "with what fills the last block": np.append(PLACES[::-1], [2] * (COUNT * BLOCK - K)),
}


@pytest.mark.parametrize("held", [WEIGHTS | {"x4"}, WEIGHTS, ()], ids=["held", "half", "fed"])
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("name", GROUPS)
def test_groups(name, zeros, held):
    given, codes, where = operands(groups=GROUPS[name], zeros=zeros)
    model, feed = made("MatMulNBits", given, attrs(), 1, held)
    (y,) = InferenceSession(model.SerializeToString()).run(None, feed)
    np.testing.assert_allclose(y, given[0] @ (codes * given[2][:, where]).T, 1e-5, 1e-5)


@pytest.mark.parametrize("providers", [("reference",), None], ids=["reference", "default"])
@pytest.mark.parametrize("wrong", [-1, -COUNT, COUNT, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("held", [True, False])
def test_groups_that_are_not_there(held, wrong, providers):
    groups = PLACES.copy()
    groups[7] = wrong
    given = operands(groups=PLACES)[0]
    given[4] = groups.astype(np.int32)
    model, feed = made("MatMulNBits", given, attrs(), 1, WEIGHTS | {"x4"} if held else ())
    message = f"element 7 of g_idx is {wrong}, expected 0 to 2" if held else "is out of range"
    with pytest.raises(Error, match=message) as caught:
        InferenceSession(model.SerializeToString(), providers=providers).run(None, feed)
    assert "the_node" in str(caught.value)


@pytest.mark.parametrize("count", [0, 1, K - 1, K + 1, 2 * K])
def test_groups_of_another_size(count):
    given = operands(groups=PLACES)[0]
    given[4] = np.zeros(count, np.int32)
    model, feed = made("MatMulNBits", given, attrs(), 1, WEIGHTS | {"x4"})
    with pytest.raises(Error, match=f"shape .{K}. has {K} elements, the input .{count}. has"):
        InferenceSession(model.SerializeToString()).run(None, feed)


# --- gradients -----------------------------------------------------------------------------------


def with_gradient(model, wrt, shape):
    """y0 with the gradients of the sum of its elements times `up`."""
    graph, domain = model.graph, "ai.onnx.preview.training"
    made = [f"d_{name}" for name in wrt]
    graph.node.append(helper.make_node("Mul", ["y0", "up"], ["z"]))
    graph.node.append(helper.make_node("Gradient", wrt, made, domain=domain, xs=wrt, y="z"))
    graph.input.append(helper.make_tensor_value_info("up", 1, shape))
    graph.output.extend(helper.make_empty_tensor_value_info(name) for name in made)
    model.opset_import.append(helper.make_opsetid(domain, 1))
    return InferenceSession(model.SerializeToString())


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("name", [None, *GROUPS])
def test_gradients_of_blocks(name, bits):
    """Of the operand, the scales and the bias."""
    given, codes, where = operands(bits, None if name is None else GROUPS[name], bias=True)
    model, feed = made("MatMulNBits", given, attrs(bits), 1, {"x1", "x3", "x4"})
    up, wrt = rng.standard_normal((2, N)).astype(np.float32), ["x0", "x2", "x5"]
    got = with_gradient(model, wrt, up.shape).run(None, feed | {"up": up})
    a, scales, bias = (torch.tensor(feed[n].astype(np.float64), requires_grad=True) for n in wrt)
    y = a @ (torch.tensor(codes) * scales[:, torch.tensor(where)]).T + bias
    want = [y, *torch.autograd.grad(y, [a, scales, bias], torch.tensor(up).double())]
    for mine, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(mine, theirs.detach(), 1e-4, 1e-4)


@pytest.mark.parametrize("size", [16, 24])
@pytest.mark.parametrize("forward", [0, 1])
@pytest.mark.parametrize("kind", [0, 1])
def test_gradients_of_tables(kind, forward, size):
    """The product is linear in its operand: its weight is what it makes of a unit matrix."""
    codes = rng.integers(0, 256, N * K // 2).astype(np.uint8)
    absmax = rng.random(-(-N * K // size)).astype(np.float32)
    rows = K if forward else N
    unit = np.eye(rows, dtype=np.float32)
    told = {"N": N, "K": K, "block_size": size, "quant_type": kind, "transB": forward}
    model, feed = made("MatMulBnb4", [unit, codes, absmax], told, 1, {"x1", "x2"})
    up = rng.standard_normal((rows, K + N - rows)).astype(np.float32)
    weight, dx = with_gradient(model, ["x0"], up.shape).run(None, feed | {"up": up})
    np.testing.assert_allclose(dx, up @ weight.T, 1e-4, 1e-5)
