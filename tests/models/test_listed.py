"""What is captured stays captured: forty networks, one training step each, as eager's."""

import copy

import listed
import pytest
import torch
import zoo
from test_training import as_float64, assert_close_or_as_good, step

from ortmodule import Options, ORTModule


def test_forty_networks_are_listed():
    assert len(listed.TRANSFORMERS) + len(listed.TIMM) == 40


@pytest.mark.long
@pytest.mark.parametrize("name", [*listed.TRANSFORMERS, *listed.TIMM])
def test_a_listed_network_is_captured(name):
    if name in listed.TIMM:
        pytest.importorskip("timm")
    eager, batch = listed.build(name)
    eager.eval() if name in listed.TIMM else eager.train()
    exact = copy.deepcopy(eager).double()
    ours = ORTModule(copy.deepcopy(eager), Options(fallback="error"))
    result, expected = step(ours, batch), step(eager, batch)
    reference = step(exact, as_float64(batch))
    losses = [zoo.loss_of(r) for r in (result, expected, reference)]
    assert_close_or_as_good(*losses, "the loss")
    triples = zip(ours.named_parameters(), eager.parameters(), exact.parameters(), strict=True)
    for (key, mine), theirs, double in triples:
        assert (mine.grad is None) == (theirs.grad is None), key
        if theirs.grad is not None:
            assert_close_or_as_good(mine.grad, theirs.grad, double.grad, f"the gradient of {key}")
    assert ours.explain().captures == 1 and not torch.isnan(losses[0])
