"""predict: buckets beside those of DataParallel's processes, its arithmetic beside sums by hand."""

import dataclasses
import functools
import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ortmodule.distributed.link import fit, measure, measure_in
from ortmodule.distributed.observe import group_of_one, loss_of
from ortmodule.distributed.predict import load, main, optimizer_of, predict
from ortmodule.distributed.shares import Parameter, memory, parameters_of
from ortmodule.distributed.timeline import Alone, Bucket, Link, Reduce, simulate
from predicted import CASES, predicted, small
from torch import nn

MOMENTUM = functools.partial(torch.optim.SGD, lr=0.0, momentum=0.9)


@pytest.mark.parametrize("case", CASES)
def test_buckets_are_those_of_two_processes(pair, case):
    expected = predicted(case)
    for reduced in pair.run("predicted", "buckets", case):
        assert expected == reduced
        assert len(reduced) >= {"wide": 3, "small": 1}.get(case, 4)


# --- the timeline ---

LINK = Link(latency=0.5, bandwidth=8.0)


def alone(*ready: float, broadcast: int = 0) -> Alone:
    """A backward of 10 s with buckets of 8, 16, 24, ... bytes."""
    buckets = tuple(Bucket(8 * k, (), at) for k, at in enumerate(ready, start=1))
    return Alone(2.0, 10.0, 1.0, (), buckets, broadcast)


def test_one_rank_waits_for_nothing():
    found = simulate(alone(4.0, 9.0), LINK, 1)
    assert found.reduces == (Reduce(4, 4, 4), Reduce(9, 9, 9))
    assert (found.step, found.exposed, found.exposed_share) == (13, 0, 0)


def test_reduces_run_beside_the_backward():
    """Two messages of 0.5 s, and the bucket's bytes once at 8 a second."""
    found = simulate(alone(4.0, 9.0), LINK, 2)
    assert found.reduces == (Reduce(4, 4, 6), Reduce(9, 9, 12))
    assert (found.backward, found.exposed, found.step) == (10, 2, 15)
    assert found.exposed_share == 2 / 5


def test_more_ranks_send_more_messages():
    """Six messages, and the bytes 1.5 times."""
    found = simulate(alone(4.0, 9.0), LINK, 4)
    assert found.reduces == (Reduce(4, 4, 8.5), Reduce(9, 9, 15))
    assert (found.exposed, found.step) == (5, 18)


def test_a_reduce_waits_for_the_link():
    found = simulate(alone(4.0, 5.0, 5.5), LINK, 2)
    assert found.reduces == (Reduce(4, 4, 6), Reduce(5, 6, 9), Reduce(5.5, 9, 13))
    assert found.step == 2 + 13 + 1


def test_reduces_take_processor_time():
    """At half its speed beside a reduce: 4 to 6 is 1 s of the backward's own."""
    found = simulate(alone(4.0, 9.0), Link(0.5, 8.0, processor=0.5), 2)
    assert found.reduces == (Reduce(4, 4, 6), Reduce(10, 10, 13))
    assert (found.backward, found.exposed, found.step) == (12, 1, 16)


def test_a_reduce_may_take_a_whole_processor():
    found = simulate(alone(4.0, 9.0), Link(0.5, 8.0, processor=1.0), 2)
    assert found.reduces == (Reduce(4, 4, 6), Reduce(11, 11, 14))
    assert (found.backward, found.exposed, found.step) == (15, 0, 18)


def test_buffers_are_sent_before_the_forward():
    """Two levels of a tree for four ranks, each 0.5 s and 8 bytes."""
    before, after = (simulate(alone(4.0, broadcast=n), LINK, 4).step for n in (0, 8))
    assert after - before == 3


def test_ranks_wait_for_the_slowest():
    """Of steps of 1, 2 and 3 s the larger of two has its median at the quantile sqrt(1/2)."""
    uneven = dataclasses.replace(alone(), steps=(3.0, 1.0, 2.0))
    assert simulate(uneven, LINK, 1).step == 13
    assert simulate(uneven, LINK, 2).step == pytest.approx(13 * (1 + 2**0.5) / 2)
    assert 17 < simulate(uneven, LINK, 4).step < simulate(uneven, LINK, 1000).step < 13 * 3 / 2


def test_a_link_is_found_again():
    for world in (2, 5):
        times = {n: LINK.all_reduce(n, world) for n in (0, 64, 256, 1024)}
        found = fit(times, world, 0.25)
        assert (found.latency, found.bandwidth) == pytest.approx((0.5, 8.0))
        assert found.processor == 0.25


def test_a_link_is_measured(pair):
    first, second = pair.run("predicted", "link")
    assert first == second
    assert first[0] > 0 and first[1] > 0 and 0 <= first[2] <= 1


@pytest.mark.slow
def test_a_link_is_measured_by_processes_of_its_own():
    found = measure(rounds=1)
    assert found.latency > 0 and found.bandwidth > 0 and 0 <= found.processor <= 1


# --- memory ---


def test_memory_by_hand():
    """Float32 parameters of 4 x 2 and 3 in two blocks and 5 x 2 in none, that frozen; states twice
    a parameter."""
    parameters = [
        Parameter((4, 2), 4, True, 64, block=1),
        Parameter((3,), 4, True, 24, block=2),
        Parameter((5, 2), 4, False),
    ]
    found = [memory(parameters, 2, stage, 1000) for stage in range(4)]
    assert [(m.parameters, m.gradients, m.states) for m in found] == [
        (84, 44, 88),
        (84, 44, 64),  # the larger parameter's
        (84 + 16 + 8 + 24, 16 + 8 + 32, 32 + 16),
        (84 + 16 + 8 + 24, 16 + 8 + 32, 32 + 16),  # 40 + 2 * 32 would be more than all
    ]
    assert [m.total - m.parameters - m.gradients - m.states for m in found] == [1000] * 4


def test_memory_is_what_processes_have(pair):
    model, inputs = small()
    found = predict(model, inputs, worlds=[2], optimizer=MOMENTUM, rounds=1)
    whole = sum(p.nbytes for p in model.parameters())
    blocks = [sum(p.nbytes for p in block.parameters()) for block in model.net.blocks]
    plain, dealt, two, three = found.memories
    assert (plain.parameters, plain.gradients, plain.states) == (whole, whole, whole)
    assert dealt.states == max(pair.run("predicted", "dealt"))
    shares, gradients, states = pair.run("predicted", "sharded")[0]
    assert two.parameters == whole + shares
    assert three.parameters == shares + min(whole, whole - sum(blocks) + 2 * max(blocks))
    rest = whole - sum(blocks)
    assert two.gradients == three.gradients == gradients + max(*blocks, rest)
    assert two.states == three.states == states


def test_what_a_plan_needs_is_said():
    model, inputs = small()
    assert all(m.activations > 0 for m in predict(model, inputs, rounds=1).memories)


def test_a_tied_parameter_is_counted_once():
    model, _ = small(tied=True)
    counted = sum(p.bytes for p in parameters_of(model))
    assert counted == sum(p.nbytes for p in model.parameters())


# --- a model, and the command ---


def test_what_was_there_stays():
    model, inputs = small()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    found = predict(model, inputs, rounds=2, bucket_cap_mb=0.001)
    assert not dist.is_initialized()
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    model(*inputs)["loss"].backward()  # no hook of a reducer is left
    assert {g.name for b in found.alone.buckets for g in b.gradients} == set(before)


def test_the_model_is_let_go():
    model, inputs = small()
    held = weakref.ref(model)
    predict(model, inputs, rounds=1)
    del model
    gc.collect()
    assert held() is None


def test_gradients_are_ready_before_their_bucket():
    found = predict(*small(), rounds=3, bucket_cap_mb=0.001).alone
    assert len(found.segments) >= 4 and list(found.segments) == sorted(found.segments)
    for bucket in found.buckets:
        assert all(gradient.ready < bucket.ready for gradient in bucket.gradients)
        assert bucket.bytes == sum(gradient.bytes for gradient in bucket.gradients)
    ready = [bucket.ready for bucket in found.buckets]
    assert ready == sorted(ready)


def test_the_table(capsys):
    options = "--world 1,2,4 --bucket-cap-mb 0.001 --rounds 1 --optimizer SGD --gradients"
    main(["predicted:small", *options.split()])
    printed = capsys.readouterr().out
    worlds = ("1 rank: step", "2 ranks: step", "4 ranks: step")
    for part in (*worlds, "net.first.bias\n", "DataParallel\n", "fully_shard\n"):
        assert part in printed, printed


def test_losses_are_found():
    loss = torch.ones(1, requires_grad=True) * 2
    output = type("Output", (), {"loss": loss})()
    for given in (loss, {"loss": loss}, output, (loss, "logits")):
        assert loss_of(given) is loss


def test_a_loss_may_be_outside():
    x = torch.ones(4, 2)
    found = predict(nn.Linear(2, 3), lambda model: model(x).square().mean(), rounds=1)
    assert {g.name for g in found.alone.buckets[0].gradients} == {"bias", "weight"}


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3), requires_grad=False)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: simulate(alone(4.0), LINK, 0), "world is 0, expected 1 or more ranks"),
        (lambda: memory([], 0, 0), "world is 0, expected 1 or more ranks"),
        (lambda: memory([], 2, 4), "stage is 4, expected one of [0, 1, 2, 3]"),
        (lambda: Link(-1.0, 1.0), "latency is -1.0 s, expected 0 or more"),
        (lambda: Link(0.0, 0.0), "bandwidth is 0.0 bytes/s, expected above 0"),
        (lambda: Link(0.0, 1.0, 2.0), "processor is 2.0, expected 0 to 1"),
        (lambda: predict(*small(), worlds=[2, 0]), "world is 0, expected 1 or more ranks"),
        (lambda: predict(*small(), rounds=0), "rounds is 0, expected 1 or more"),
        (
            lambda: predict(nn.Linear(2, 3, device="meta"), torch.ones(4, 2)),
            "the model is on meta, expected cpu",
        ),
        (lambda: predict(Frozen(), ()), "no parameter of the model requires a gradient"),
        (
            lambda: predict(nn.Linear(2, 3), torch.ones(4, 2)),
            "the model's output has no loss: found sizes [4, 3], expected one number that requires "
            "a gradient: the output, its `loss` or its first item",
        ),
        (lambda: load("predicted"), "'predicted' is no function, expected module:function"),
        (lambda: load("predicted:none"), "'predicted:none': module predicted has no function none"),
        (lambda: load("nowhere:f"), "'nowhere:f': No module named 'nowhere'"),
        (lambda: load("predicted:Net"), "predicted:Net gave a Net, expected (module, inputs)"),
        (lambda: optimizer_of("Adamant"), "'Adamant' is no optimizer of ortmodule.optim or"),
    ],
)
def test_errors(call, message):
    with pytest.raises(ValueError) as raised:
        call()
    assert str(raised.value).startswith(f"[predict] {message}")
    assert not dist.is_initialized()


def test_a_link_needs_two():
    with group_of_one() as group, pytest.raises(ValueError, match="between 2 or more ranks"):
        measure_in(group)


def test_the_command_says_what_is_wrong():
    command = [sys.executable, "-m", "ortmodule.distributed.predict", "nowhere:f"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "error: [predict] 'nowhere:f': No module named 'nowhere'" in done.stderr
    assert "Warning" not in done.stderr


@pytest.mark.slow
def test_the_command_under_torchrun():
    """All ranks measure, the first prints."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "-m", "ortmodule.distributed.predict", "predicted:small", "--measure", "--rounds", "1",
    ]  # fmt: skip
    here = Path(__file__).parent / "ranks"
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=here, env=env, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("one process: forward ") == done.stdout.count("2 ranks: step ") == 1
