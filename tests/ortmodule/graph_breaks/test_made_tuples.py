"""A tuple of a class of the user's that a part makes has the items of the moment."""

import collections

import pytest
import torch
from pairs import Net, options
from torch import nn

from ortmodule import ORTModule


class Items(tuple):
    pass


class Of(collections.namedtuple("Of", "a b")):
    def __new__(cls, a, b=None):
        return super().__new__(cls, a, b)


class Names(frozenset):
    def __new__(cls, names):
        return super().__new__(cls, names)


def of_a_list_that_changes(x):
    found = [x, x * 2]
    made = Items(found)
    found.append(x * 3)
    del found[0]
    return made


MADE = {
    "map": lambda x: Items(map(torch.neg, (x, x * 2))),
    "zip": lambda x: Items(zip([x], [x * 2], strict=True)),
    "iterator": lambda x: Items(iter([x, x * 2])),
    "generator": lambda x: Items(x * i for i in range(3)),
    "another": lambda x: Items(Items(x * i for i in range(3))),
    "list": of_a_list_that_changes,
    "replaced": lambda x: Of(x, x * 2)._replace(b=x * 3),
    "made": lambda x: Of._make(iter([x, x * 2])),
    "names": lambda x: (Names(iter("ab")), x * 2),
    "packed": lambda x: nn.utils.rnn.pack_padded_sequence(
        x[:, None], torch.tensor([len(x)]), enforce_sorted=False
    )._replace(data=x * 2),
}


def kinds(made):
    """The classes of what is in it, to any depth, and each tensor."""
    if isinstance(made, torch.Tensor):
        return [round(v, 4) for v in made.detach().flatten().tolist()]
    if isinstance(made, (tuple, frozenset)):
        return type(made), [kinds(item) for item in made]
    return made


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_made_in_parts(make):
    def forward(net, x):
        y = net.second(net.first(x))
        return make(y * 2 if y.sum() > 1e9 else y)

    net = Net(forward)
    ours = ORTModule(net, options())
    for rows in (5, 4):
        x = torch.linspace(-1, 1, rows * 3).reshape(rows, 3)
        assert kinds(ours(x)) == kinds(net(x))
    assert ours.explain().not_whole
