"""Sets and lists in a module in parts: what forward writes to them stays written, and a set that
it makes is walked through in Python's order."""

import copy

import pytest
import torch
from torch import nn

from ..pairs import Pair


class Kinds(set):
    """A set of the user's."""


class Holder(nn.Module):
    """body(module, y) between two layers, after a branch on data."""

    def __init__(self, body, held):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.layers = [nn.Tanh() for _ in range(6)]
        self.body, self.held = body, held

    def __deepcopy__(self, memo):
        twin = Holder(self.body, copy.copy(self.held))  # the same objects, in the same order
        twin.load_state_dict(self.state_dict())
        twin.layers = self.layers
        return twin

    def forward(self, x):
        y = self.first(x)
        if y.sum() > 1e9:
            y = y * 2
        return self.second(self.body(self, y) * 2 + 1)


def adds(m, y):
    m.held.add(m.layers[len(m.held)])
    return y * len(m.held)


def adds_number(m, y):
    m.held.add(len(m.held) + 7)
    return y * len(m.held)


def joins(m, y):
    held = m.held
    held |= {len(held) + 7}
    return y * len(held)


def narrows(m, y):
    held = m.held
    held &= {1, 2}
    return y * len(held)


def takes_out(m, y):
    return y * (m.held.pop() if m.held else 5)


def adds_to_list(m, y):
    m.held.__iadd__([len(m.held)])
    return y * len(m.held)


def repeats_list(m, y):
    held = m.held
    held *= 2
    return y * len(m.held)


def repeats_own(m, y):
    own = [1.0]
    other = own
    own *= 2
    return y * len(other)


def walks(names, m, y):
    for name in names(m):
        y = torch.tanh(y) * 2 if name == "b" else y * len(name) + ord(name[0]) / 100
    return y


WRITES = {
    "a layer is added": (adds, {1}),
    "to a set of a user's": (adds, Kinds({1})),
    "a number is added": (adds_number, {1}),
    "a number to a user's": (adds_number, Kinds({1})),
    "joined in place": (joins, {1}),
    "a user's joined": (joins, Kinds({1})),
    "narrowed in place": (narrows, {1, 2, 3}),
    "a user's narrowed": (narrows, Kinds({1, 2, 3})),
    "any taken out": (takes_out, {1, 2, 3}),
    "__iadd__": (adds_to_list, [1]),
    "a list repeated": (repeats_list, [1]),
    "a list of forward's repeated": (repeats_own, None),
}
# What forward walks through, of names whose order in a set is none that it was made in.
WALKS = {
    "set of a list": lambda m: set(m.held),
    "frozenset": lambda m: frozenset(m.held),
    "comprehension": lambda m: {2 * name for name in m.held},
    "union": lambda m: set(m.held) | {"z", "abc"},
    "difference": lambda m: set(m.held) - {"zz"},
    "list of a set": lambda m: list(set(m.held)),
    "unpacked": lambda m: [*set(m.held)],
    "joined text": lambda m: list("".join(set(m.held))),
    "first": lambda m: [next(iter(set(m.held)))],
}


def same_steps(body, held):
    torch.manual_seed(0)
    pair = Pair(Holder(body, held))
    for rows in (4, 4, 2, 4):
        pair.step(torch.linspace(-2, 3, 3 * rows).reshape(rows, 3))
        assert pair.eager.held == pair.twin.held
    return pair


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", WRITES)
def test_a_write_to_a_container_is_made(name):
    same_steps(*WRITES[name])


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", WALKS)
def test_a_set_is_walked_through_in_its_order(name):
    names = [chr(ord("a") + (7 * i) % 26) * (i % 3 + 1) for i in range(12)]
    pair = same_steps(lambda m, y: walks(WALKS[name], m, y), names)
    assert any("in its order" in f.reason for f in pair.report.fallbacks), pair.report


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_asks_no_order_of_a_set_ends_no_graph():
    def body(m, y):
        known = set(m.held) | {"x"}
        return y * len(known) * (2 if "b" in known else 3) * len(sorted(known)[0])

    pair = same_steps(body, ["b", "a", "zz"])
    assert not any("set" in b.reason for b in pair.report.breaks), pair.report
