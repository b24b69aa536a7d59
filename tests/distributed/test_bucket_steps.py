"""An optimizer attached to DataParallel steps each bucket as its reduce ends."""

import pytest

LOOPS = [
    "usual", "reentrant", "loss_inside", "one_large_bucket", "never_zeroed", "unused",
    "static_graph", "penalty_on_weights", "two_forwards", "hooks_on_gradients",
    "gradient_not_linear", "halves", "doubles", "convolutions", "compressed", "power_sgd",
    "uneven_by_all", "uneven_by_those_left",
]  # fmt: skip


@pytest.mark.parametrize("loop", LOOPS)
def test_as_after_the_backward(pair, loop):
    for same in pair.run("bucket_steps", "compare", loop):
        assert all(same), same


def test_our_optimizers_schedulers_and_hooks(pair):
    for same in pair.run("bucket_steps", "our_optimizer"):
        assert all(same), same


def test_buckets_step_while_the_last_is_reduced(pair):
    for steps in pair.run("bucket_steps", "steps_while_the_last_is_reduced"):
        assert all(stepped for stepped, _, _ in steps)
        assert all(last < count for _, last, count in steps[1:])  # the first time it is one bucket


def test_after_a_step_that_failed(pair):
    for same in pair.run("bucket_steps", "after_one_that_failed"):
        assert all(same), same


def test_remove(pair):
    assert pair.run("bucket_steps", "removed") == [True, True]


def test_errors(pair):
    for found in pair.run("bucket_steps", "errors"):
        assert (
            "ValueError: [attach] the DataParallel has gradient_as_bucket_view=False"
            in (found["copied"])
        )
        assert "ValueError: [attach] AdamW has a max_norm" in found["clipping option"]
        assert "it would clip nothing" in found["clipped"]
        assert "gets a second gradient, but was stepped by the first" in found["twice"]
        assert "was written between its backward" in found["after"]
        assert "a GradScaler steps the SGD" in found["scaler"]
        assert "ortmodule.distributed.DataParallel has an attach() of its own" in found["inner"]
