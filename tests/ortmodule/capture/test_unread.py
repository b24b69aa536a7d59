"""What nobody reads of a trace is not made."""

import gc
import logging
import os

import torch
from torch import nn

from ortmodule.capture.unread import collected_seldom
from tests.ortmodule.pairs import Pair


def test_the_collector_is_as_before():
    before = gc.get_threshold()
    with collected_seldom():
        assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold() == before
    gc.set_threshold(0, *before[1:])
    try:
        with collected_seldom():
            assert gc.get_threshold()[0] == 0
        assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)


def test_the_collector_is_as_before_several_captures_at_once():
    """Which end in another order than they began in."""
    before = gc.get_threshold()
    first, second = collected_seldom(), collected_seldom()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold()[0] > before[0]
    second.__exit__(None, None, None)
    assert gc.get_threshold() == before


def test_a_threshold_that_forward_sets_stays():
    before = gc.get_threshold()
    try:
        with collected_seldom():
            gc.set_threshold(1234, 5, 6)
        assert gc.get_threshold() == (1234, 5, 6)
    finally:
        gc.set_threshold(*before)


def test_no_record_of_each_guard():
    """torch makes them as long as its handler is there, which goes with the first."""
    Pair(nn.Linear(3, 3)).step(torch.randn(2, 3))
    found = logging.getLogger("torch.__trace").handlers
    assert not found or "TORCH_TRACE" in os.environ
