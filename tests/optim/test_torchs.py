"""Muon, whose step is torch's: values, state both ways, what is around a step."""

import copy
import pickle

import pytest
import torch
from ortmodule.optim import Muon

from .kinds import assert_close, parameters, state_of, train, twins

KINDS = {
    "Muon": (Muon, {"lr": 1e-2}, [(5, 3), (4, 9)]),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_hundred_steps_as_torchs_with_state_both_ways(kind, dtype):
    ours, options, shapes = KINDS[kind]
    theirs = getattr(torch.optim, kind)
    first = parameters(dtype, shapes)
    second = twins(first)
    whole = theirs(second, **options)
    train(whole, second, 100)
    optimizer = ours(first, **options)
    for begin, following in ((0, theirs), (30, ours), (60, None)):
        train(optimizer, first, 40 if following is None else 30, begin)
        if following is not None:
            state = pickle.loads(pickle.dumps(optimizer.state_dict()))
            optimizer = following(first, **options)
            optimizer.load_state_dict(state)
    assert_close(first, second, 1e-6)
    assert_close(state_of(optimizer), state_of(whole), 1e-6)


@every_kind
def test_around_a_step(kind):
    """A schedule, a hook, one without gradient, a copy that goes on alike."""
    ours, options, shapes = KINDS[kind]
    params = parameters(shapes=shapes)
    optimizer = ours([{"params": params[:1], "lr": 0.1}, {"params": params[1:]}], **options)
    seen = []
    optimizer.register_step_post_hook(lambda *_: seen.append(1))
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    before = params[0].detach().clone()
    params[1].grad = torch.ones_like(params[1])
    optimizer.step()
    schedule.step()
    assert torch.equal(params[0], before) and list(optimizer.state) == [params[1]]
    assert optimizer.param_groups[0]["lr"] == 0.05 and seen == [1]
    others, other = copy.deepcopy((params, optimizer))
    train(optimizer, params, 2)
    train(other, others, 2)
    assert type(other) is ours and all(map(torch.equal, params, others))


def test_errors_are_torchs():
    with pytest.raises(ValueError, match="Muon only supports 2D parameters"):
        Muon(parameters(shapes=[(3,)]))
