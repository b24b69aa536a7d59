"""Indices out of range on devices whose results stay there: told later, each once.

Run by test_deferred_errors.py, in a process of its own: torch knows one device of another name from
then on. Both devices keep what is queued until somebody waits (far.schedule(0)).
"""

import gc
import threading

import cuda_double
import far
import pytest
import torch
from far_torch import DEVICE
from torch import nn

from ortmodule import Options, ORTModule, _native

cuda_double.use(cuda_double.PRIVATE_USE)
ROWS = 10
WORDS = "index is out of range.*; node %"
EARLIER = WORDS + ".*; this was found in an earlier call"
GOOD, BAD = torch.tensor([[1, 2, 3]]), torch.tensor([[1, ROWS + 2, 3]])


class Rows(nn.Module):
    """Its loss stays on the device."""

    def __init__(self):
        super().__init__()
        self.rows, self.linear = nn.Embedding(ROWS, 4), nn.Linear(4, 3)

    def forward(self, index):
        return self.linear(self.rows(index)).square().sum()


@pytest.fixture(params=["far", "cuda"])
def provider(request):
    far.schedule(0)
    far.share(100)
    yield request.param
    far.share(60)


@pytest.fixture
def model(provider):
    torch.manual_seed(0)
    wrapped = ORTModule(Rows().to(DEVICE), Options("error", (provider, "aten")))
    step(wrapped, good)
    finish()
    assert set(wrapped.explain().providers) == {provider}
    return wrapped


ONE = torch.ones(()).to(DEVICE)
good, bad = GOOD.to(DEVICE), BAD.to(DEVICE)


def step(model, index):
    for parameter in model.parameters():
        parameter.grad = None
    loss = model(index)
    loss.backward(ONE)
    return loss


def finish():
    """What was queued runs, and nobody was told to wait for it."""
    far.live()


def is_right(model):
    """Whether a step with a good index gives eager's loss and gradients."""
    eager = Rows()
    eager.load_state_dict({k: v.cpu() for k, v in model.state_dict().items()})
    expected = eager(GOOD)
    expected.backward()
    torch.testing.assert_close(step(model, good).detach().cpu(), expected.detach())
    for ours, theirs in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)
    return True


def test_the_next_call_tells_it_once(model):
    with torch.no_grad():
        model(good)
        finish()
        model(bad)
        finish()
        with pytest.raises(RuntimeError, match=EARLIER):
            model(good)
    assert is_right(model) and not model.explain().fallbacks


def test_a_call_that_comes_too_early_does_not_wait_for_it(model):
    with torch.no_grad():
        model(good)
        finish()
        model(bad)
        model(good)
        finish()
        with pytest.raises(RuntimeError, match=EARLIER):
            model(good)
    assert is_right(model)


def test_the_backward_of_that_call_tells_it_and_gives_no_gradient(model):
    loss = model(bad)
    finish()
    for parameter in model.parameters():
        parameter.grad = None
    with pytest.raises(RuntimeError, match=WORDS):
        loss.backward(ONE)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert is_right(model)


def test_the_backward_of_a_call_that_another_one_told_of_fails_too(model):
    loss = model(bad)
    finish()
    with pytest.raises(RuntimeError, match=EARLIER):
        model(good)
    with pytest.raises(RuntimeError, match=WORDS):
        loss.backward(ONE)
    assert is_right(model)


def test_what_a_backward_finds_is_told_at_the_next_call(model):
    index = GOOD.to(DEVICE)
    loss = model(index)
    finish()
    index.data.copy_(bad)  # which no version tells of: eager's backward reads it too
    loss.backward(ONE)
    finish()
    with pytest.raises(RuntimeError, match=EARLIER):
        model(good)
    assert is_right(model)


class RowsOfABranch(Rows):
    """The host waits within forward for a condition, whose branch has steps on the device; within
    backward it does not."""

    def forward(self, index, x):
        branches = self.linear, lambda x: self.linear(x).cos()
        y = torch.cond(x.sum() > 0, *branches, (x,)).detach()
        return (self.linear(self.rows(index)) * y).square().sum()


def test_a_branch_tells_what_an_earlier_backward_found(provider):
    torch.manual_seed(0)
    model = ORTModule(RowsOfABranch().to(DEVICE), Options("error", (provider, "aten", "cpu")))
    index, x = GOOD.to(DEVICE), torch.ones(1, 3, 4).to(DEVICE)
    loss = model(index, x)
    index.data.copy_(bad)
    loss.backward(ONE)  # it has not run when the next call begins
    with pytest.raises(_native.torch_bridge().DeferredError, match=EARLIER):
        model(good, x)
    model(good, x).backward(ONE)
    assert not model.explain().fallbacks


def test_of_two_calls_in_flight_each_is_told(model):
    losses = [model(bad), model(bad), model(good)]
    finish()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=EARLIER):
            model(good)
    losses[2].backward(ONE)
    assert is_right(model)


def test_explain_waits_for_it(model):
    model(bad)
    with pytest.raises(RuntimeError, match=EARLIER):
        model.explain()
    assert not model.explain().fallbacks and is_right(model)


def test_a_plan_that_goes_leaves_what_it_found(model):
    found = []
    with torch.no_grad():
        model(good)
        finish()
        model(bad)
        for length in range(4, 44):  # more than are kept
            index = torch.ones(1, length, dtype=torch.int64).to(DEVICE)
            try:
                model(index)
            except RuntimeError as error:
                found.append(str(error))
    assert len(found) == 1 and "earlier call" in found[0]
    assert is_right(model)


def test_what_nobody_was_told_is_logged(model, capfd):
    model(bad)
    finish()
    model.__dict__.clear()
    gc.collect()
    assert "index is out of range" in capfd.readouterr().err


def test_threads_are_told_as_often_as_it_happened(model):
    ran, told = [], []

    def calls(turn):
        for i in range(12):
            wrong = (i + turn) % 3 == 0
            try:
                with torch.no_grad():
                    model(bad if wrong else good)
                ran.append(wrong)
                if i % 4 == turn:
                    finish()
            except RuntimeError as error:
                told.append(str(error))

    threads = [threading.Thread(target=calls, args=(turn,)) for turn in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    while True:
        try:
            model.explain()
            break
        except RuntimeError as error:
            told.append(str(error))
    assert len(told) == sum(ran) > 0 and all("earlier call" in text for text in told)
    assert is_right(model)


@pytest.mark.parametrize("seed", range(10))
def test_training_steps_make_the_host_wait_for_nothing(model, seed):
    far.schedule(seed)
    step(model, good)
    before = far.waits()
    for _ in range(3):
        step(model, good)
    assert far.waits() == before
    assert is_right(model)
