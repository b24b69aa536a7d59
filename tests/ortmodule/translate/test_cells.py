"""Recurrent cells, projections and norms in float32, in halves and under autocast."""

import pytest
import torch
from captured import Function
from near import check_step
from torch import nn
from torch.nn.utils import parametrizations

RANDOM = torch.Generator().manual_seed(0)
X, SERIES = torch.randn(5, 3, generator=RANDOM), torch.randn(6, 5, 3, generator=RANDOM)
LAYERS = {
    "LSTMCell": lambda: nn.LSTMCell(3, 4),
    "LSTMCell without biases": lambda: nn.LSTMCell(3, 4, bias=False),
    "GRUCell": lambda: nn.GRUCell(3, 4),
    "RNNCell": lambda: nn.RNNCell(3, 4),
    "relu RNNCell": lambda: nn.RNNCell(3, 4, nonlinearity="relu"),
    "GRU": lambda: nn.GRU(3, 4, 2, bidirectional=True),
    "RNN": lambda: nn.RNN(3, 4, batch_first=True),
    "relu RNN": lambda: nn.RNN(3, 4, nonlinearity="relu"),
    "LSTM with a projection": lambda: nn.LSTM(3, 4, proj_size=2),
    "stacked projections": lambda: nn.LSTM(
        3, 4, 2, proj_size=2, bidirectional=True, batch_first=True
    ),
}
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


class Unrolled(nn.Module):
    """A cell over a series, from a state of zeros of its own."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, series):
        state = None
        for x in series:
            state = self.cell(x, state)
        return state


@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", LAYERS)
def test_recurrent_layers_under_autocast(name, dtype):
    torch.manual_seed(0)
    report = check_step(LAYERS[name](), X if "Cell" in name else SERIES, dtype=dtype)
    assert bool(report.fallbacks) == ("projection" in name)  # which is torch's own step


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell])
def test_cells_that_carry_their_state(cell, dtype):
    torch.manual_seed(0)
    report = check_step(Unrolled(cell(3, 4)), SERIES, dtype=dtype)
    assert not report.fallbacks


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("around", [None, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("make", [lambda: nn.Linear(3, 4), lambda: nn.Conv1d(5, 4, 2)])
def test_weight_norm(make, around, dtype):
    module = parametrizations.weight_norm(make()).to(dtype)
    report = check_step(module, X.to(dtype), dtype=around)
    assert not report.fallbacks


NORMS = {
    "Tensor.norm": lambda x: x.norm(dim=-1),
    "keepdim": lambda x: x.norm(1, -1, True),
    "torch.norm": lambda x: torch.norm(x, dim=(-1, -2)),
    "of order 3": lambda x: torch.norm(x, 3, dim=-1),
    "vector_norm": lambda x: torch.linalg.vector_norm(x, dim=[-1]),
    "by position": lambda x: torch.linalg.vector_norm(x, 1, -1),
    "linalg.norm": lambda x: torch.linalg.norm(x, dim=-1),
    "of a matrix": lambda x: torch.linalg.norm(x, "fro", (-2, -1)),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(5, 1), (1, 1), (5, 3)], ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_norms_over_an_axis_of_any_size(name, shape, dtype):
    check_step(Function(NORMS[name]), torch.randn(shape).to(dtype))
