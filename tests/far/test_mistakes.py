"""A plan with a wait, a copy or a host mark less is noticed: twenty such, drawn from all there are.

Each runs in a process of its own, as memory of the device that the host touches ends it.
"""

import os
import random

import far
import pytest
from test_training import Trained

STEPS, SCHEDULES = 2, range(12)


def trained():
    return Trained("bert", "far", "cpu", "aten")


def everything():
    """All waits and copies of two late steps, and the host ports that kernels have."""
    model = trained()
    far.schedule(0)
    far.leave_out(far.Mistake.NONE)
    model.losses(STEPS)
    waits, copies = far.counts()
    marks = far.marked()
    assert waits > 50 and copies > 50 and marks
    return (
        [(far.leave_out, (far.Mistake.WAIT, i)) for i in range(waits)]
        + [(far.leave_out, (far.Mistake.COPY, i)) for i in range(copies)],
        [(far.unmark, mark) for mark in marks],
    )


def is_caught(make, arguments, expected) -> bool:
    """Whether a process that makes the mistake fails, ends by a signal, or has other losses."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            if make is far.unmark:
                make(*arguments)
            model = trained()
            for seed in SCHEDULES:
                far.schedule(seed)
                if make is far.leave_out:
                    make(*arguments)
                if model.losses(STEPS) != expected:
                    os._exit(1)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


@pytest.mark.slow
def test_nineteen_of_twenty_mistakes_are_caught():
    queued, marks = everything()
    far.schedule(0)
    expected = trained().losses(STEPS)
    draw = random.Random(5)
    drawn = draw.sample(queued, 15) + [draw.choice(marks) for _ in range(5)]
    assert not is_caught(far.leave_out, (far.Mistake.NONE, 0), expected)
    missed = [(make.__name__, arguments) for make, arguments in drawn
              if not is_caught(make, arguments, expected)]  # fmt: skip
    assert len(missed) <= 1, missed
