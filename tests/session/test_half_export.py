"""Exported modules in halves and float64: dtypes are kept, in our session and in onnxruntime."""

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from ortmodule import InferenceSession, ORTModule

KINDS = {"float16": 2**-10, "bfloat16": 2**-7, "float64": 1e-12}


class Block(nn.Module):
    """An attention block with a convolution, whose second output is float32 whatever it holds."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(8, 8, 3, padding=1)
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        x = x + self.conv(x.transpose(1, 2)).transpose(1, 2)
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return nn.functional.gelu(self.out(x)).softmax(-1), x.float().mean()


class Dense(nn.Module):
    """What onnxruntime's CPU provider has in float64 too."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 3)

    def forward(self, x):
        x = self.second(self.first(x).relu()).softmax(-1)
        return x, x.float().mean()


def exported(kind: str, make, path) -> tuple[np.ndarray, list[torch.Tensor]]:
    """The feed of a module written to `path`, and the float64 results on its rounded weights."""
    torch.manual_seed(0)
    module = make().to(getattr(torch, kind)).eval()
    x = torch.randn(2, 5, 8).to(getattr(torch, kind))
    ORTModule(module).export_onnx(path, (x,))
    onnx.checker.check_model(onnx.load(path), full_check=True)
    dtype = ml_dtypes.bfloat16 if kind == "bfloat16" else kind
    with torch.no_grad():
        return x.double().numpy().astype(dtype), module.double()(x.double())


def assert_near(got: list, wanted: list, kind: str) -> None:
    names = [array.dtype.name for array in got]
    assert names == [kind, "float32"]
    for ours, theirs, near in zip(got, wanted, (KINDS[kind], KINDS[kind] + 1e-6), strict=True):
        np.testing.assert_allclose(ours.astype(np.float64), theirs.numpy(), rtol=0, atol=2 * near)


@pytest.mark.parametrize("kind", KINDS)
def test_exported_block_in_our_session(kind, tmp_path):
    feed, wanted = exported(kind, Block, tmp_path / "block.onnx")
    session = InferenceSession(tmp_path / "block.onnx", providers=("cpu",))
    assert [(p.name, p.type) for p in session.get_inputs()] == [
        ("x", f"tensor({'double' if kind == 'float64' else kind})")
    ]
    assert_near(session.run(None, {"x": feed}), wanted, kind)


@pytest.mark.parametrize(
    "kind, make", [("float16", Block), ("float16", Dense), ("float64", Dense)]
)  # it has no kernels for bfloat16, and for convolutions in float64
def test_exported_modules_in_onnxruntime(kind, make, tmp_path):
    feed, wanted = exported(kind, make, tmp_path / "module.onnx")
    got = onnxruntime.InferenceSession(tmp_path / "module.onnx").run(None, {"x": feed})
    assert_near(got, wanted, kind)
