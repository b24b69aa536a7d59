"""Progress: what it says of all ranks, and when."""

import re

import pytest
from ortmodule.distributed import Progress


def test_a_line_is_due_after_so_many_steps(capsys):
    progress = Progress(every=2, start=4)
    assert progress.step(3.0, 1) is None
    line = progress.step(1.0, 3)
    assert re.fullmatch(r"step 6: loss 1\.5000, [\d,]+ samples/s on 1 rank", line)
    assert capsys.readouterr().out == line + "\n"
    assert progress.step(9.0, 1) is None
    assert "loss 9.0000" in progress.step(9.0, 1)


def test_losses_of_all_ranks_are_weighed_by_their_samples(pair):
    (line, first), (same, second) = pair.run("told", "progress")
    assert line.startswith("step 1: loss 4.5000, ") and line.endswith(" on 2 ranks")
    assert line.partition(",")[0] == same.partition(",")[0]
    assert first == line + "\n" and second == ""


def test_a_rank_without_samples_has_no_loss(pair):
    for one, nan in pair.run("told", "progress_of_one"):
        assert one.startswith("step 1: loss 2.0000, ") and nan.startswith("step 2: loss nan, ")


def test_errors():
    with pytest.raises(ValueError, match=r"\[Progress\] every is 0, expected 1 or more"):
        Progress(every=0)
