"""Models that onnxruntime's own tools have optimised or quantised, against onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import transformers
from onnxruntime import quantization
from onnxruntime.transformers import optimizer
from torch import nn

from ortmodule import InferenceSession


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = nn.LSTM(16, 8, batch_first=True, bidirectional=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.memory(x)[0]).softmax(-1)


class Bert(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.body = transformers.BertModel(config, add_pooling_layer=False)

    def forward(self, ids, mask, types):
        return self.body(input_ids=ids, attention_mask=mask, token_type_ids=types)[0]


def export(model, args, path, names):
    torch.onnx.export(
        model.eval(), args, str(path), input_names=names, dynamo=False, opset_version=17
    )
    return path


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=16, attn_implementation="eager",
    )  # fmt: skip
    ids = torch.randint(0, 64, (2, 8))
    mask = torch.ones(2, 8, dtype=torch.int64)
    mask[1, 5:] = 0
    names = ["input_ids", "attention_mask", "token_type_ids"]
    args = (ids, mask, torch.zeros_like(ids))
    path = export(Bert(config), args, tmp_path_factory.mktemp("bert") / "model.onnx", names)
    return path, {name: arg.numpy() for name, arg in zip(names, args, strict=True)}


def agrees(path, feed, close):
    options = onnxruntime.SessionOptions()
    # 1.31.1 fails to optimise some files that its own optimizer wrote.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    theirs = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    session = InferenceSession(path)
    want = theirs.run(None, feed)
    for mine, other in zip(session.run(None, feed), want, strict=True):
        assert mine.dtype == other.dtype
        close(mine, other)


def nearly(mine, other):
    np.testing.assert_allclose(mine, other, 1e-4, 1e-5)


def within_steps(mine, other):
    """But for what a step of the last quantised value moves: one in a hundred."""
    assert (np.abs(mine - other) > np.ptp(other) / 100).mean() < 0.01, np.abs(mine - other).max()


def ops_of(path, domain="com.microsoft"):
    return {node.op_type for node in onnx.load(path).graph.node if node.domain == domain}


def optimised(path, **options):
    into = path.with_name("optimised.onnx")
    made = optimizer.optimize_model(str(path), "bert", num_heads=4, hidden_size=32, **options)
    made.save_model_to_file(str(into))
    return into


@pytest.mark.parametrize("of_gpus", [False, True])
def test_bert_by_the_optimizer(bert, of_gpus):
    path, feed = bert
    into = optimised(path, use_gpu=of_gpus)
    assert ops_of(into) >= {"SkipLayerNormalization"} | ({"Attention"} if of_gpus else {"Gelu"})
    agrees(into, feed, nearly)


@pytest.mark.parametrize("level", ["EXTENDED", "ALL"])
def test_bert_saved_by_a_session(bert, level):
    path, feed = bert
    into = path.with_name(f"{level}.onnx")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(into)
    options.graph_optimization_level = getattr(
        onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}"
    )
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    assert ops_of(into)
    agrees(into, feed, nearly)


def test_bert_optimised_and_quantised(bert):
    path, feed = bert
    into = path.with_name("quantised.onnx")
    quantization.quantize_dynamic(
        optimised(path, use_gpu=True), into, extra_options={"DefaultTensorType": 1}
    )
    assert "QAttention" in ops_of(into)
    agrees(into, feed, within_steps)


def test_lstm_quantised_dynamically(tmp_path):
    torch.manual_seed(0)
    x = torch.randn(1, 7, 16)  # of more, onnxruntime rounds each thread's rows apart
    path = export(Words(), (x,), tmp_path / "model.onnx", ["x"])
    into = tmp_path / "dynamic.onnx"
    quantization.quantize_dynamic(path, into)
    assert "DynamicQuantizeLSTM" in ops_of(into)
    agrees(into, {"x": x.numpy()}, lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5))
