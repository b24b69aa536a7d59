"""DataParallel beside DDP(ORTModule), bit for bit, and beside DDP of the plain module."""

import pytest
from loops import LOOPS

# Of the largest element. PowerSGD starts at random; what it sends is compared bit for bit alone.
FROM_EAGER = {"halves": 0.05, "float16": 0.01, "compressed": 5e-3, "power_sgd": float("inf")}


@pytest.mark.parametrize("loop", LOOPS)
def test_two_processes(pair, loop):
    for found in pair.run("loops", "compare", loop):
        assert found["bits"], found
        assert found["from_eager"] <= FROM_EAGER.get(loop, 5e-6), found


@pytest.mark.parametrize(
    "loop",
    ["usual", "loss_inside", "one_large_bucket", "accumulated", "unused", "uneven_by_all"],
)
def test_four_processes(four, loop):
    for found in four.run("loops", "compare", loop):
        assert found["bits"] and found["from_eager"] <= 5e-6, found


def test_a_backward_within_another(pair):
    assert pair.run("loops", "nested") == [True, True]


def test_gradients_are_made_where_they_are_reduced(pair):
    """Nothing copies or divides one, as DDP does."""
    assert pair.run("buckets", "operations_on_gradients", True) == [[], []]
    assert all(pair.run("buckets", "operations_on_gradients", False))


def test_a_reduce_starts_before_the_next_segment(pair):
    for events in pair.run("buckets", "order_of_reduces"):
        segments = [k for k, event in enumerate(events) if event != "bucket"]
        assert len(segments) >= 4 and events.count("bucket") >= 4, events
        for at, after in zip(segments[1:], segments[2:], strict=False):
            assert "bucket" in events[at:after], events


def test_errors(pair):
    twice = (
        "RuntimeError: register_comm_hook or register_builtin_comm_hook can only be called once."
    )
    for found in pair.run("buckets", "errors"):
        options, callable_, again, builtin, frozen, root = found
        assert options == (
            "ValueError: [DataParallel] the module is an ORTModule, which has its options"
        )
        assert callable_ == "TypeError: Communication hook must be callable."
        assert again == builtin == twice
        assert "doesn't have any parameter that requires a gradient" in frozen
        assert "gets a gradient from outside the module too, at the root" in root
