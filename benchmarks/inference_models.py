"""The files of inference.py: models with random weights, written by torch's two exporters.

Each has its module, an example of two rows for the exporter, and the arrays of a run. Sizes of
batches and of lengths are symbols of the file.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from models import LstmClassifier
from torch import nn

LENGTH, WORDS = 128, 20000


class Called(nn.Module):
    """A module whose forward is `call(module, *tensors)`: its results are tensors."""

    def __init__(self, module: nn.Module, call: Callable):
        super().__init__()
        self.module, self.call = module, call

    def forward(self, *tensors):
        return self.call(self.module, *tensors)


class Model(NamedTuple):
    make: Callable[[], nn.Module]
    feed: Callable[[int, int], list[np.ndarray]]  # of a batch and a length
    exporter: str = "jit"  # or "dynamo": torch.onnx.export(dynamo=...)


def words(batch: int, length: int) -> np.ndarray:
    return np.random.default_rng(0).integers(3, WORDS, (batch, length))


def words_and_mask(batch: int, length: int) -> list[np.ndarray]:
    return [words(batch, length), np.ones((batch, length), np.int64)]


def image(batch: int, _length: int) -> list[np.ndarray]:
    return [np.random.default_rng(0).standard_normal((batch, 3, 224, 224), np.float32)]


def bert(**sizes) -> nn.Module:
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(**sizes))
    return Called(model, lambda bert, ids, mask: bert(ids, attention_mask=mask).last_hidden_state)


def mini_lm() -> nn.Module:
    return bert(hidden_size=384, num_hidden_layers=6, intermediate_size=1536)


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config())
    return Called(model, lambda gpt2, ids: gpt2(ids, use_cache=False).logits)


def vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    model = ViTForImageClassification(ViTConfig(num_labels=1000))
    return Called(model, lambda vit, pixels: vit(pixels).logits)


def of_torchvision(name: str) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import torchvision

        return getattr(torchvision.models, name)()

    return make


MODELS = {
    "bert": Model(bert, words_and_mask),
    "bert_dynamo": Model(bert, words_and_mask, "dynamo"),
    "mini_lm": Model(mini_lm, words_and_mask),
    "gpt2": Model(gpt2, lambda batch, length: [words(batch, length)], "dynamo"),
    "vit": Model(vit, image),
    "lstm": Model(lambda: LstmClassifier(0.0), lambda batch, length: [words(batch, length)]),
    "resnet50": Model(of_torchvision("resnet50"), image),
    "mobilenet_v3": Model(of_torchvision("mobilenet_v3_large"), image),
    "efficientnet_b0": Model(of_torchvision("efficientnet_b0"), image),
}


def export(name: str, folder: Path) -> Path:
    """The model's file in the folder, written if it is not there."""
    path = folder / f"{name}.onnx"
    if path.exists():
        return path
    model = MODELS[name]
    torch.manual_seed(0)
    module = model.make().eval()
    example = tuple(torch.from_numpy(a) for a in model.feed(2, LENGTH))
    inputs = [f"x{i}" for i in range(len(example))]
    free = [{0: "batch", 1: "length"} if x.dim() == 2 else {0: "batch"} for x in example]
    if model.exporter == "dynamo":
        shapes = (tuple(dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for axes in free),)
        torch.onnx.export(
            module, example, path, dynamo=True, input_names=inputs, dynamic_shapes=shapes,
            external_data=False, verbose=False,
        )  # fmt: skip
    else:
        torch.onnx.export(
            module, example, path, dynamo=False, input_names=inputs, opset_version=17,
            dynamic_axes=dict(zip(inputs, free, strict=True)),
        )  # fmt: skip
    return path


def feed_of(name: str, batch: int, length: int) -> dict[str, np.ndarray]:
    arrays = MODELS[name].feed(batch, length)
    return {f"x{i}": array for i, array in enumerate(arrays)}
