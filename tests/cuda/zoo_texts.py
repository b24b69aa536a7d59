"""The texts of the zoo's training steps, in float32 and under autocast, and of wide layers.

Run by test_texts.py; prints them as JSON.
"""

import json
import pathlib
import sys

import torch
from torch import nn

HERE = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(HERE / name) for name in ("far", "cuda", "models")]

import cuda_double  # noqa: E402
import zoo  # noqa: E402

from ortmodule import Options, ORTModule  # noqa: E402


class Wide(nn.Module):
    """What surrounds the products of a block: norms, attention's softmax, activations, a loss."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.norm, self.scale = nn.LayerNorm(width), nn.RMSNorm(width)

    def forward(self, x, bias, target):
        x = x + nn.functional.dropout(self.norm(x), 0.1)
        y = nn.functional.gelu(self.scale(x) + bias) * nn.functional.silu(x)
        soft = torch.softmax(y.float() + bias, -1)
        loss = nn.functional.cross_entropy(y.reshape(-1, self.width).float(), target)
        return loss + (soft * soft).mean() + y.float().mean()


def step(module: nn.Module, batch: dict, dtype: torch.dtype | None) -> None:
    """Forward and backward, without a run."""
    torch.manual_seed(0)
    model = ORTModule(module.train(), Options("error", ("cuda", "aten", "cpu")))
    with torch.autocast("cpu", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        loss = zoo.loss_of(model(**batch))
    loss.backward()


def main() -> None:
    cuda_double.use_without_runs()
    for dtype in (None, torch.bfloat16, torch.float16):
        for make in zoo.MODELS.values():
            step(*make(), dtype)
    for width in (768, 1024, 4096, 8192, 12288):
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            x = torch.randn(2, 4, width, dtype=dtype)
            batch = {"x": x, "bias": torch.randn(2, 1, width, dtype=dtype)}
            step(Wide(width).to(dtype), batch | {"target": torch.zeros(8, dtype=torch.long)}, None)
    print(json.dumps(cuda_double.texts()))


if __name__ == "__main__":
    main()
