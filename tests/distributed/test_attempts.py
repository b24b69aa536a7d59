"""The name of an attempt: what earlier ones left in the store misleads nobody."""

import threading
from datetime import timedelta

import pytest
import torch.distributed as dist
from ortmodule.distributed import attempts

SOON = timedelta(seconds=20)


def names(shared, size):
    found = [None] * size

    def ask(rank):
        found[rank] = attempts.name(shared, rank, size, SOON)

    threads = [threading.Thread(target=ask, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return set(found)


def test_each_attempt_has_one_name():
    shared, before = dist.HashStore(), set()
    for _ in range(5):
        found = names(shared, 4)
        assert len(found) == 1 and None not in found and not found & before
        before |= found


def test_who_does_not_come_is_named():
    shared = dist.HashStore()
    names(shared, 3)  # words and answers of an earlier attempt
    with pytest.raises(RuntimeError, match="rank 1, 2 did not come to this attempt of the job in"):
        attempts.name(shared, 0, 3, timedelta(seconds=0.1))
    with pytest.raises(RuntimeError, match="rank 0 did not come to this attempt of the job in"):
        attempts.name(shared, 2, 3, timedelta(seconds=0.1))
