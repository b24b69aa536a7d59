"""Models that onnxruntime's tools have quantised, against onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization
from torch import nn

from ortmodule import InferenceSession, SessionOptions


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


@pytest.mark.slow
def test_a_chain_of_large_constants_is_folded(tmp_path):
    """Each result takes the place of what it was made of, so the graph does not grow."""
    weight = np.random.default_rng(0).integers(0, 256, (8, 5_000_000)).astype(np.uint8)
    nodes = [helper.make_node("BitwiseXor", [f"w{k}", f"m{k}"], [f"w{k + 1}"]) for k in range(8)]
    nodes.append(helper.make_node("MatMulInteger", ["x", "w8"], ["y"]))
    constants = {"w0": weight, **{f"m{k}": np.array(1 << k, np.uint8) for k in range(8)}}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
        [numpy_helper.from_array(v, name) for name, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    options = SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    x = np.arange(8, dtype=np.uint8)[None]
    (y,) = InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    np.testing.assert_array_equal(y, x.astype(np.int32) @ (weight ^ 255).astype(np.int32))
    left = {node.op_type for node in onnx.load(tmp_path / "optimised.onnx").graph.node}
    assert "BitwiseXor" not in left
