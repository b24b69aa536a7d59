"""Our optimizers over DTensors and under ZeroRedundancyOptimizer; loss curves of two processes."""

import pytest
import sharded

AROUND = {
    "plain": {},
    "clipped": {"max_norm": 0.05},
    "ema": {"ema_decay": 0.9},
    "zeroed": {"zero_grad": True, "max_norm": 0.05},
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", sharded.OPTIONS)
def test_shards_are_stepped_as_the_whole(pair, name, around):
    found = pair.run("sharded", "compare", name, AROUND[around])
    for rank in found:
        assert rank["apart"] <= 1e-6 and rank["norms"] <= 1e-6, rank
    kinds = {"AdamW": 2, "Adam": 3, "SGD": 1, "Lion": 1}[name] + ("ema" in around)
    assert sum(rank["bytes"] for rank in found) == kinds * found[0]["of"]


def test_what_asks_for_the_whole_is_refused(pair):
    for told in pair.run("sharded", "refused"):
        for name, text in zip(("LAMB", "Adafactor", "Muon"), told, strict=True):
            assert text.startswith(f"[{name}] a parameter is a DTensor, of which each process has")


def test_zero_redundancy_optimizer(pair):
    for found in pair.run("sharded", "zero"):
        assert found["apart"] <= 1e-6 and 0 < found["bytes"] <= found["bound"], found


def test_two_processes_train_as_one(pair):
    alone = sharded.losses()
    for curve in pair.run("sharded", "losses"):
        assert curve == pytest.approx(alone, rel=1e-5)
