"""What nothing reads raises all the same where eager does: positions, dtypes, torch's own ops."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ortmodule import ORTModule

X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
POSITIONS = {
    "gather": lambda x, i: x.gather(0, i[None]),
    "index_select": lambda x, i: x.index_select(0, i),
    "index": lambda x, i: x[:, i],
    "index_of_two": lambda x, i: x[i, i],
    "scatter": lambda x, i: x.scatter(0, i[None], 1.0),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[None], x, "amax"),
    "index_add": lambda x, i: x.index_add(0, i, x[:3]),
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0),
    "index_copy": lambda x, i: x.index_copy(1, i, x),
    "index_put": lambda x, i: x.index_put((i,), x[0]),
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i[None], x),
    "one_hot": lambda x, i: F.one_hot(i, 3),
    "nll_loss": lambda x, i: F.nll_loss(x[:3], i),
    "cross_entropy": lambda x, i: F.cross_entropy(x[:3], i, ignore_index=-9),
    "take": lambda x, i: x.take(i + 9),
    "put": lambda x, i: x.put(i + 9, x[0]),
    "cholesky": lambda x, i: torch.linalg.cholesky(x[:3] * 0 + i),
}
FLOATS = {
    "masked_select": lambda x: x.masked_select(x),
    "index_select": lambda x: x.index_select(0, x[0]),
    "index_add": lambda x: x.index_add(0, x[0], x[:3]),
    "index_copy": lambda x: x.index_copy(1, x[0], x),
    "index_fill": lambda x: x.index_fill(0, x[0], 1.0),
    "index_put": lambda x: x.index_put((x[0],), x[0]),
    "index_reduce": lambda x: x.index_reduce(0, x[0], x[:3], "prod"),
    "repeat_interleave": lambda x: torch.repeat_interleave(x, x[:, 0], 0),
    "and": lambda x: torch.bitwise_and(x, x + 1),
    "gcd": lambda x: torch.gcd(x, x + 1),
    "put": lambda x: x.put(x, x),
}


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class Net(nn.Module):
    """op's result, or what is made of it, is read where `reads`."""

    def __init__(self, op, reads):
        super().__init__()
        self.op, self.reads = op, reads

    def forward(self, x, *rest):
        found = self.op(x, *rest)
        made = found.abs() * 2
        return made if self.reads else x + 1


def end(call, *args):
    """What a call gives or raises."""
    try:
        return call(*args).tolist()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("op", POSITIONS.values(), ids=POSITIONS)
def test_positions_that_nothing_reads(op):
    net = Net(op, reads=False)
    model = ORTModule(net)
    for row in ([0, 1, 2], [0, 1, 7], [2, 1, -1], [0, -9, 1], [3, 0, 0]):
        index = torch.tensor(row)
        assert end(model, X, index) == end(net, X, index), row


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("op", FLOATS.values(), ids=FLOATS)
def test_floats_where_torch_wants_whole_numbers(op, dtype, reads):
    net, x = Net(op, reads), X.abs().to(dtype)
    found = end(net, x)
    assert found[0] in (RuntimeError, NotImplementedError, IndexError), found
    assert end(ORTModule(net), x) == found
