"""Warnings that forward gives: at each call as in eager, also in what an earlier call captured."""

import threading
import warnings
from warnings import warn
from warnings import warn as say

import pytest
import torch
from pairs import Pair
from torch import nn

from ortmodule import ORTModule
from ortmodule.side_effects.told_warnings import hidden, kept_back

WAYS = {
    "by_its_module": lambda: warnings.warn("told", stacklevel=1),
    "by_its_name": lambda: warn("told", stacklevel=1),
    "of_a_line": lambda: warnings.warn_explicit("told", UserWarning, "file", 1),
}


class Warns(nn.Module):
    """Warns of a batch larger than `limit`."""

    def __init__(self, give, limit):
        super().__init__()
        self.net, self.give, self.limit = nn.Linear(4, 4), give, limit

    def forward(self, x):
        x = self.net(x)
        if x.shape[0] > self.limit:
            self.give()
        return x.sin().cos().tanh().exp()


def told(pair: Pair, action: str) -> int:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter(action)
        warnings.filterwarnings("ignore", "ORTModule")
        pair.step(torch.rand(3, 4))
    return [str(each.message) for each in found].count("told")


@pytest.mark.parametrize("way", WAYS)
def test_each_call_warns(way):
    pair = Pair(Warns(WAYS[way], 2))
    given = [told(pair, action) for action in ("ignore", "always", "ignore", "always")]
    assert given == [0, 2, 0, 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for module in (pair.eager, pair.ours):
            with pytest.raises(UserWarning, match="told"):
                module(torch.rand(3, 4))


@pytest.mark.parametrize("way", WAYS)
def test_what_does_not_warn_is_captured(way):
    pair = Pair(Warns(WAYS[way], 5))
    assert [told(pair, "always") for _ in range(2)] == [0, 0]
    pair.through_engine(captures=1)
    assert not pair.report.not_whole


def test_the_filters_are_put_back():
    before = list(warnings.filters)
    Pair(Warns(WAYS["by_its_name"], 5)).step(torch.rand(3, 4))
    assert warnings.filters == before


def all_told(module: nn.Module, action: str) -> list[str]:
    """What four calls tell, in the order that it is told."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter(action)
        for _ in range(4):
            module(torch.rand(3, 4))
    return [str(each.message) for each in found if "ORTModule" not in str(each.message)]


def cut_in_parts():
    print(end="")
    warnings.warn("told", stacklevel=1)


def in_a_thread():
    thread = threading.Thread(target=lambda: warnings.warn("told", stacklevel=1))
    thread.start()
    thread.join()


def under_another_name():
    give = warnings.warn
    [give(text, stacklevel=1) for text in ("told", "and this")]


OTHER_NAMES = {
    "of_the_function's": under_another_name,
    "of_the_module's": lambda: say("told", stacklevel=1),
    "in_a_thread": in_a_thread,
}


@pytest.mark.parametrize("way", OTHER_NAMES)
def test_another_name_and_another_thread(way):
    eager = Warns(OTHER_NAMES[way], 2)
    assert all_told(ORTModule(eager), "always") == all_told(eager, "always")


class OfAFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        warnings.warn("forward", stacklevel=1)
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        warnings.warn("backward", stacklevel=1)
        return dy * 2


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.net, self.function = nn.Linear(4, 4), function

    def forward(self, x):
        return self.function(self.net(x)) * 1.0


def places_told(module: nn.Module, action: str) -> list[tuple]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter(action)
        warnings.filterwarnings("ignore", "ORTModule")
        for _ in range(3):
            module(torch.rand(3, 4)).sum().backward()
    return [(str(each.message), each.filename, each.lineno) for each in found]


@pytest.mark.parametrize("action", ["default", "always"])
def test_a_function_warns_where_it_runs(action):
    eager = Calls(OfAFunction.apply)
    assert places_told(ORTModule(eager), action) == places_told(eager, action)


OF_TORCH = {
    "of_a_caller's_line": lambda x: nn.functional.softmax(x),
    "of_torch's_line": lambda x: nn.functional.mse_loss(x, x * 2, size_average=True),
    "of_two_lines": lambda x: [nn.functional.softmax(x),
                               nn.functional.softmax(x)][1],
    "of_two_sizes": lambda x: nn.functional.mse_loss(x, x[:1]),
    "in_eager_too": lambda x: torch.range(0, 3)[:1] * x,
}  # fmt: skip


@pytest.mark.parametrize("what", OF_TORCH)
def test_torchs_warnings_are_told_once_for_the_users_line(what):
    eager = Calls(OF_TORCH[what])
    assert places_told(ORTModule(eager), "default") == places_told(eager, "default")


@pytest.mark.parametrize("what", OF_TORCH)
def test_torchs_warnings_are_errors_where_a_filter_says_so(what):
    eager = Calls(OF_TORCH[what])
    ours = ORTModule(eager)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for module in (eager, ours):
            with pytest.raises(UserWarning, match="deprecated|target size"):
                module(torch.rand(3, 4))
    torch.testing.assert_close(ours(torch.ones(3, 4)), eager(torch.ones(3, 4)))
    assert ours.explain().captures == (what != "in_eager_too")


@pytest.mark.parametrize("action", ["default", "once", "module", "always"])
@pytest.mark.parametrize("give", [*WAYS.values(), cut_in_parts], ids=[*WAYS, "cut_in_parts"])
def test_what_was_told_stays_told(give, action):
    eager = Warns(give, 2)
    expected = all_told(eager, action)
    assert "told" in expected
    assert all_told(ORTModule(eager), action) == expected


CHANGES = {
    "one": lambda: warnings.filterwarnings("ignore", "nothing of forward's"),
    "all": lambda: warnings.simplefilter("ignore"),
    "none": warnings.resetwarnings,
}


@pytest.mark.parametrize("change", CHANGES)
def test_forward_changes_the_filters(change):
    left = []
    for make in (lambda m: m, ORTModule):
        with warnings.catch_warnings():
            warnings.simplefilter("error", BytesWarning)
            module = make(Warns(CHANGES[change], 2))
            for _ in range(3):
                module(torch.rand(3, 4))
            left.append([(f[0], getattr(f[1], "pattern", f[1]), *f[2:]) for f in warnings.filters])
    assert left[0] == left[1]


class WhileAnotherWarns(nn.Module):
    """Forward waits for a warning of a thread that is none of its own."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)

    def forward(self, x):
        other_warns()
        return self.net(x)


ASKED, ANSWERED = threading.Event(), threading.Event()
RAISED: list = []


def other_warns():
    ASKED.set()
    ANSWERED.wait(20)
    ANSWERED.clear()


def warn_when_asked(end: threading.Event):
    while not end.is_set():
        if ASKED.wait(0.01):
            ASKED.clear()
            try:
                warnings.warn("of another thread", stacklevel=1)
            except Exception as error:
                RAISED.append(error)
            ANSWERED.set()


def test_another_thread_warns():
    end = threading.Event()
    thread = threading.Thread(target=warn_when_asked, args=(end,))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        thread.start()
        try:
            module = ORTModule(WhileAnotherWarns())
            for _ in range(2):
                module(torch.rand(3, 4))
        finally:
            end.set()
            thread.join()
    assert not RAISED
    assert "of another thread" in [str(each.message) for each in found]


@pytest.mark.parametrize("change", [hidden, lambda: kept_back([])], ids=["hidden", "kept_back"])
def test_filters_that_another_thread_sets_back_hide_nothing(change):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with change():
            anothers = warnings.catch_warnings()
            anothers.__enter__()
        anothers.__exit__(None, None, None)
        warnings.warn("told", stacklevel=1)
    assert [str(each.message) for each in found] == ["told"]
