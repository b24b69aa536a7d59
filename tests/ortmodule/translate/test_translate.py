"""Each translated ATen op against eager, by value, on the engine's reference provider."""

import pytest
import torch
from captured import Function, captured, check, printed
from op_samples import IMAGE, OPS, POSITIVE, X, Y
from torch import nn

ON_ATEN = {
    # no rule, by choice: torch's own op keeps its precision or its randomness
    "log10": (torch.log10, POSITIVE),
    "erfc": (torch.erfc, X),
    "logaddexp": (torch.logaddexp, X, Y),
    "topk": (lambda x: x.topk(2)[0], X),
    "rand_like": (torch.rand_like, X),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), X),
    "atan2": (torch.atan2, X, Y),
}


@pytest.mark.parametrize("name", OPS)
def test_value(name):
    function, *args = OPS[name]
    found = check(Function(function), *args)
    assert not [node.op for node in found.graph.nodes if node.op.startswith("aten")]


@pytest.mark.parametrize("name", ON_ATEN)
def test_op_without_a_rule_is_an_aten_node(name):
    function, *args = ON_ATEN[name]
    found = captured(Function(function), *args)
    (op,) = [node.op for node in found.graph.nodes if node.op.startswith("aten::")]
    (line,) = printed(found, op)
    assert 'schema="aten::' in line and 'types=["float32[' in line
    assert 'reason="' in line and 'reason=""' not in line


def test_lstm_keeps_time_symbolic():
    module = nn.LSTM(4, 5, 2, bidirectional=True, batch_first=True)
    found = check(module, torch.randn(3, 7, 4))
    assert found.bind([torch.randn(2, 9, 4)]) is not None


OTHER_LAYERS = {
    "GRU": lambda: nn.GRU(4, 5, 2, bidirectional=True),
    "GRU with its batch first": lambda: nn.GRU(4, 5, batch_first=True),
    "GRU without biases": lambda: nn.GRU(4, 5, bias=False),
    "RNN": lambda: nn.RNN(4, 5, 2),
    "RNN of relu": lambda: nn.RNN(4, 5, nonlinearity="relu", bidirectional=True),
}


@pytest.mark.parametrize("name", OTHER_LAYERS)
def test_other_recurrent_layers_keep_time_symbolic(name):
    found = check(OTHER_LAYERS[name](), torch.randn(7, 3, 4))
    assert not [node.op for node in found.graph.nodes if node.op.startswith("aten")]
    assert found.bind([torch.randn(9, 2, 4)]) is not None


def test_bernoulli_is_dropout_of_ones():
    found = captured(Function(lambda x: x * torch.empty(3, 1, 1).bernoulli_(0.75)), X)
    (line,) = printed(found, "ort::Dropout")
    assert "{counter=0, ratio=0.25}" in line


def test_batch_norm_writes_its_statistics():
    module = nn.Sequential(nn.BatchNorm2d(4), nn.InstanceNorm2d(4, track_running_stats=True))
    found = check(module, IMAGE)
    names = sorted(w.name for w in found.write_backs)
    counted = "1.num_batches_tracked"  # torch's instance norm does not count
    assert names == sorted(name for name, _ in module.named_buffers() if name != counted)
    assert not check(module.eval(), IMAGE).write_backs
