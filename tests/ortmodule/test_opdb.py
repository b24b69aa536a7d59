"""A fixed part of what `make long` runs in whole: torch's operator database against eager."""

import collections

import opdb
import pytest
import torch

# One sample of every third entry: each is small, and the first of an entry is often its plainest.
STEP = 3
# What these had at the last change; fewer means that a rule was lost.
CAPTURED, NATIVE = 150, 80


@pytest.mark.filterwarnings("ignore")
def test_a_part_of_the_database():
    found, wrong = collections.Counter(), []
    for at, op in enumerate(opdb.entries()):
        if at % STEP:
            continue
        torch.manual_seed(0)
        given = op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
        sample = next(iter(given), None)
        if sample is None:
            continue
        result = opdb.timed(op, sample)
        found[result["status"]] += 1
        if result["status"] == "wrong":
            wrong.append(f"{opdb.name_of(op)}: {result['why']}")
    assert not wrong, "\n".join(wrong)
    assert found["native"] + found["aten"] >= CAPTURED and found["native"] >= NATIVE, found
