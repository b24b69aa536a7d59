"""A module in parts is timed against eager in the user's loop, by a clock that the test sets."""

import copy
from unittest import mock

import pytest
import torch
from torch import nn
from torch.func import functional_call

from ortmodule import ORTModule
from ortmodule.graph_breaks.pace import Pace
from ortmodule.graph_breaks.unguarded import Unguarded


def paced(parts, eager, calls=60, made=lambda call: 0):
    """The way of each call, True: eager's; a step takes so many milliseconds, by its way."""
    pace, now, ways = Pace(), 0.0, []
    with mock.patch("ortmodule.graph_breaks.pace.time.perf_counter", lambda: now):
        for call in range(calls):
            ways.append(pace.in_eager(made(call)))
            now += (eager if ways[-1] else parts) / 1e3
    return pace, ways


def test_slow_parts_are_left_to_eager():
    pace, ways = paced(parts=2.0, eager=1.0)
    assert pace.leaves_to_eager() and all(ways[-9:])
    assert pace.words() == "in parts a step took 2 ms, in eager 1: the module runs in eager"


def test_quick_parts_stay():
    pace, ways = paced(parts=1.0, eager=2.0)
    assert pace.times == pytest.approx((1.0, 2.0)) and True in ways and not any(ways[-9:])


def test_nothing_is_timed_before_it_has_settled():
    assert not any(paced(2.0, 1.0, calls=40, made=lambda call: call)[1])
    assert any(paced(2.0, 1.0, calls=90, made=lambda call: call)[1])  # it never does


def test_nothing_is_timed_where_algorithms_are_deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        assert not any(paced(2.0, 1.0)[1])
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.filterwarnings("ignore:ORTModule")
def test_guards_are_no_part_of_eagers_time():
    """They may be slow, as those of a class that forward writes to."""
    ours, now, looks, ways = ORTModule(Normed()), 0.0, [], []
    changed = Unguarded.changed

    def look(self):
        looks.append(len(ways))
        return changed(self)

    with (
        mock.patch("ortmodule.graph_breaks.pace.time.perf_counter", lambda: now),
        mock.patch.object(Unguarded, "changed", look),
    ):
        for _ in range(50):
            ours(torch.ones(4, 3)).sum().backward()
            pace = ours._ortmodule._fall_back._paces[True, True]
            ways.append(pace.times is not None or bool(pace._latest and pace._latest[1]))
            now += 1e-3 * (1 if ways[-1] else 2)
    eagers = {call for call, eager in enumerate(ways) if eager}
    assert len(eagers) > 12 and not eagers & set(looks)
    assert len(set(looks)) == len(ways) - len(eagers)


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(3, 8), nn.BatchNorm1d(8)

    def forward(self, x):
        h = self.norm(self.first(x)).tanh()
        if h.sum() > 1e9:
            h = h * 2
        return self.norm(h + 1).sigmoid()


@pytest.mark.filterwarnings("ignore:ORTModule")
@pytest.mark.parametrize("quicker", [0.5, 2.0])
def test_three_calls_before_one_backward(quicker):
    """One of them may be eager's, whose graph has saved the statistics that the other changes."""
    eager = Normed()
    ours, now = ORTModule(copy.deepcopy(eager)), 0.0
    turns = []
    with mock.patch("ortmodule.graph_breaks.pace.time.perf_counter", lambda: now):
        for i in range(40):
            x = torch.linspace(-1, 1 + i, 12).view(4, 3)
            for model in (eager, ours):
                model.zero_grad()
                weights = dict(model.named_parameters())
                for _ in range(2):
                    loss = functional_call(model, weights, (x,)).square().mean()
                    slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
                    pairs = zip(weights.items(), slopes, strict=True)
                    weights = {name: w - 0.1 * slope for (name, w), slope in pairs}
                functional_call(model, weights, (x,)).square().mean().backward()
            turns.append(ours._ortmodule._fall_back._paces[True, True]._latest)
            now += 1e-3 * (quicker if turns[-1] and turns[-1][1] else 1)
            for p, q in zip(eager.parameters(), ours.module.parameters(), strict=True):
                torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-5)
    for p, q in zip(eager.buffers(), ours.module.buffers(), strict=True):
        torch.testing.assert_close(q, p, rtol=1e-4, atol=1e-5)
    assert any(turn and turn[1] for turn in turns)
