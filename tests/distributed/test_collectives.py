"""Forwards that communicate are one graph with the collectives as nodes: values, gradients and the
number of messages are eager's on every rank."""

import pytest
from forwards import FORWARDS

TOLERANCE = {"float64": 1e-13, "float32": 2e-6, "bfloat16": 0.02}
# By hand, in halves: each of its ops rounds.
ROUNDED = {("norm_over_all_ranks", "bfloat16"): 0.1}
# torch does without reduce_scatter there on Gloo: a message for each rank.
MORE_IN_EAGER = {"nn_all_gather", "nn_all_gather_numbers", "nn_reduce_scatter", "contrastive"}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", FORWARDS)
def test_beside_eager(pair, name, dtype):
    for found in pair.run("forwards", "compare", name, dtype):
        assert found["distance"] <= ROUNDED.get((name, dtype), TOLERANCE[dtype]), found
        assert found["fallbacks"] == [], found
        ours, eagers = found["sent"]
        assert 0 < ours < eagers if name in MORE_IN_EAGER else ours == eagers, found
        assert any(step.startswith("ort::Wait") for step in found["steps"]), found
