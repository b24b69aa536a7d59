"""Models that onnxruntime's tools have quantised, against onnxruntime."""

import numpy as np
import onnxruntime
import pytest
import torch
from onnxruntime import quantization
from torch import nn

from ortmodule import InferenceSession


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, stride=2, groups=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.body(x))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
        self.memory = nn.LSTM(16, 8, batch_first=True)

    def forward(self, x):
        return self.memory(self.layer(x))[0]


MODELS = {"images": (Images, (2, 3, 16, 16)), "words": (Words, (2, 7, 16))}


@pytest.fixture(scope="module", params=MODELS)
def exported(request, tmp_path_factory):
    """A file and feeds for it."""
    torch.manual_seed(0)
    made, shape = MODELS[request.param]
    path = tmp_path_factory.mktemp(request.param) / "model.onnx"
    x = torch.randn(shape)
    torch.onnx.export(made().eval(), (x,), path, input_names=["x"], dynamo=False, opset_version=17)
    return path, [{"x": torch.randn(shape).numpy()} for _ in range(4)]


class Feeds(quantization.CalibrationDataReader):
    def __init__(self, feeds):
        self.feeds = iter(feeds)

    def get_next(self):
        return next(self.feeds, None)


def agrees(path, feeds):
    """The results, but for what a step of the last quantised value moves: one in a hundred."""
    theirs = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    ours = InferenceSession(path)
    for feed in feeds:
        for got, want in zip(ours.run(None, feed), theirs.run(None, feed), strict=True):
            step = np.ptp(want) / 100
            assert (np.abs(got - want) > step).mean() < 0.01, np.abs(got - want).max()


def test_dynamically(exported):
    path, feeds = exported
    into = path.with_name("dynamic.onnx")
    quantization.quantize_dynamic(path, into, op_types_to_quantize=["Conv", "MatMul", "Gemm"])
    agrees(into, feeds)


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_statically(exported, form, per_channel):
    path, feeds = exported
    into = path.with_name(f"{form}{per_channel}.onnx")
    kinds = ["Conv", "MatMul", "MaxPool", "Relu", "Gemm", "Add", "GlobalAveragePool"]
    quantization.quantize_static(
        path, into, Feeds(feeds), quant_format=quantization.QuantFormat[form],
        per_channel=per_channel, op_types_to_quantize=kinds,
    )  # fmt: skip
    agrees(into, feeds)
