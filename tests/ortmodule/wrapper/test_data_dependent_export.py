"""Files of modules whose sizes depend on data: onnxruntime's results against eager's."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from captured import Function
from pairs import options
from torch import nn
from torch.nn import functional as F

from ortmodule import InferenceSession, ORTModule
from ortmodule.errors import NotCapturable


def rows(x):
    """A mask of x's rows."""
    return x[:, 0] > 0


def given(n, count):
    """n rows of which the first `count` begin with a positive number."""
    x = -torch.rand(n, 4) - 0.1
    x[:count, 0] *= -1
    return x


def exported(function, path):
    ORTModule(Function(function).eval(), options()).export_onnx(path, (given(6, 3),))
    onnx.checker.check_model(onnx.load(path), full_check=True)
    theirs = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return theirs, InferenceSession(path)


ATTENTION = nn.MultiheadAttention(4, 2, batch_first=True)
ENCODER = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()


def attention(x):
    return ATTENTION(*[x[rows(x)][None]] * 3, need_weights=False)[0]


WRITTEN = {
    "attention": attention,
    "dot_products": lambda x: F.scaled_dot_product_attention(*[x[rows(x)][None]] * 3),
    "encoder": lambda x: ENCODER(x[rows(x)][None]),
    "two_evaluations": lambda x: x[x > 0] + x.sin()[x > 0],
    "product": lambda x: torch.cartesian_prod(x[x > 0], x[x < -0.5]),
    "pairs": lambda x: x[rows(x)].reshape(-1, 2, 2).transpose(0, 1),
    "promised": lambda x: (torch._check(x[rows(x)].shape[0] < 9), x[rows(x)] * 2)[1],
}


@pytest.mark.parametrize("name", WRITTEN)
def test_none_one_and_many_are_selected(name, tmp_path):
    torch.manual_seed(0)
    with torch.no_grad():
        for session in exported(WRITTEN[name], tmp_path / "net.onnx"):
            for n, count in ((6, 3), (5, 0), (7, 1), (4, 4)):
                x = given(n, count)
                (got,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
                want = WRITTEN[name](x)
                assert got.shape == want.shape
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


# What a file has no checks for, and would be wrong about where they fail.
REFUSED = {
    "squeeze": (lambda x: x[x > 0].squeeze(0) * 2, "whether squeeze drops an axis of size u0"),
    "broadcast": (lambda x: x[x > 0] + x[x < -0.5], r"the trace holds where Eq\(u0, u1\)"),
    "assumed": (lambda x: torch.inner(x[rows(x)], x[:1]), r"holds where Ne\(u0, 1\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_check_decides_is_no_file(name, tmp_path):
    function, reason = REFUSED[name]
    with pytest.raises(NotCapturable, match=reason):
        exported(function, tmp_path / "net.onnx")


def test_a_lone_tensor_is_no_arguments(tmp_path):
    ours = ORTModule(Function(torch.sin), options())
    with pytest.raises(TypeError, match="inputs is a Tensor, expected a tuple of arguments or"):
        ours.export_onnx(tmp_path / "net.onnx", given(2, 1))
