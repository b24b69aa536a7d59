"""Ops in float16 against torch: what an entry computes in float32 does not overflow or drift."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from . import engine

C = engine.C
ROWS, SIZE = 3, 512


def row_of(mean, spread):
    values = np.random.default_rng(0).standard_normal((ROWS, SIZE)) * spread + mean
    return torch.from_numpy(values.astype(np.float16))


# At a mean of 300 the squares exceed float16; 512 terms lose their last bits in a float16 sum.
X, SCALE = row_of(300, 20), row_of(1, 0.2)[0]
CASES = {
    "LayerNormalization(%x, %w)": (lambda x, w: F.layer_norm(x, [SIZE], w), (X, SCALE)),
    "RMSNormalization(%x, %w)": (lambda x, w: F.rms_norm(x, [SIZE], w, 1e-5), (X, SCALE)),
    "Softmax(%x)": (lambda x, _: x.softmax(-1), (row_of(0, 1), SCALE)),
    "LogSoftmax(%x)": (lambda x, _: x.log_softmax(-1), (row_of(0, 1), SCALE)),
}
TEXT = """graph (%x: float16[3, 512] user, %w: float16[512] user)
  %y = CALL
return ("y" = %y)
"""


@pytest.mark.parametrize("call", CASES)
def test_value(call):
    f, (x, w) = CASES[call]
    got = C.evaluate(
        C.parse(TEXT.replace("CALL", call)), {"x": x.numpy(), "w": w.numpy()}, ["reference"]
    )[0]
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, f(x, w).numpy(), rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("call", [c for c in CASES if "Normalization" in c])
def test_gradient(call):
    f, (x, w) = CASES[call]
    joint = C.differentiate(C.parse(TEXT.replace("CALL", call)), ["x", "w"], ["y"])
    dy = row_of(0, 1)
    feed = {"x": x.numpy(), "w": w.numpy(), "d_y": dy.numpy()}
    _, *got = C.evaluate(joint, feed, ["reference"])
    inputs = [x.clone().requires_grad_(), w.clone().requires_grad_()]
    want = torch.autograd.grad(f(*inputs), inputs, dy)
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == np.float16
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=5e-3, atol=2e-3)
