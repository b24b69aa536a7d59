"""Recurrent layers in a module in parts: an LSTM is a step of ours, others a step of torch's.

Results and gradients are compared with eager, packed sequences too.
"""

import pytest
import torch
from pairs import Pair
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Tagger(nn.Module):
    """Branches on data before and after its layer."""

    def __init__(self, layer, how):
        super().__init__()
        self.first, self.layer, self.how = nn.Linear(4, 4), layer, how
        self.last = nn.Linear(layer.hidden_size * (2 if layer.bidirectional else 1), 2)

    def forward(self, x, lengths=None):
        y = self.first(x)
        if y.detach().sum() > 1e9:
            return y
        out, state = getattr(self, self.how)(y, lengths)
        state = state[0] if isinstance(state, tuple) else state
        z = self.last(out)
        if z.detach().sum() > 1e9:
            return z
        return z.sum() + state.square().sum()

    def plain(self, y, _lengths):
        return self.layer(y)

    def with_state(self, y, _lengths):
        layers = self.layer.num_layers * (2 if self.layer.bidirectional else 1)
        state = torch.full((layers, y.shape[0], self.layer.hidden_size), 0.1)
        return self.layer(y, (state, state) if isinstance(self.layer, nn.LSTM) else state)

    def packed(self, y, lengths):
        given = pack_padded_sequence(y, lengths, batch_first=True, enforce_sorted=False)
        out, state = self.layer(given)
        return pad_packed_sequence(out, batch_first=True)[0], state


LAYERS = {
    "LSTM": lambda: nn.LSTM(4, 3, batch_first=True),
    "deep_LSTM": lambda: nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True),
    "GRU": lambda: nn.GRU(4, 3, batch_first=True),
    "RNN": lambda: nn.RNN(4, 3, batch_first=True, nonlinearity="relu"),
}


@pytest.mark.parametrize("how", ["plain", "with_state", "packed"])
@pytest.mark.parametrize("name", LAYERS)
def test_as_in_eager(name, how):
    pair = Pair(Tagger(LAYERS[name](), how))
    for rows, steps in ((3, 5), (2, 7), (3, 5)):
        lengths = torch.arange(rows) % steps + 1
        lengths[0] = steps
        pair.step(torch.randn(rows, steps, 4), lengths)
    if how == "packed":
        return
    outside = [str(f) for f in pair.report.fallbacks if "between two parts" in str(f)]
    assert not outside
    steps = {step.name for part in pair.report.parts for step in part.steps}
    assert ("LSTM" in name) == any("LSTM" in step for step in steps)
    assert "wrap RNN" not in " ".join(found.reason for found in pair.report.breaks)
