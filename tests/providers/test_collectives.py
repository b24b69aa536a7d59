"""Collectives by the aten provider, in a group of one process, given as text: values, gradients and
every refusal. Several processes: tests/distributed/test_collectives.py."""

import numpy as np
import pytest
import torch
import torch.distributed as dist

from ortmodule import _native

C = _native.core()
_native.torch_bridge()  # with it comes the provider
X = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture(scope="module", autouse=True)
def group():
    """c10d's own name of it."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD.group_name
    dist.destroy_process_group()


def graph_of(op, group, attrs="", size=1, wait="%3 = ort::Wait(%1, %2)", y="%3"):
    return C.parse(
        "graph (%x: float32[3, 2] user)\n"
        f'  %1, %2 = ort::{op}(%x) {{group="{group}", size={size}{attrs}}}\n'
        f'  {wait}\nreturn ("y" = {y})'
    )


def run(graph, **feed):
    return C.evaluate(graph, {"x": X, **feed}, ["aten", "cpu"])


OPS = {
    "AllReduce": "",
    "AllGather": "",
    "ReduceScatter": ', op="max"',
    "Broadcast": ", root=0",
    "Reduce": ", root=0",
}


@pytest.mark.parametrize("op", OPS)
def test_values_and_gradients(op, group):
    graph = graph_of(op, group, OPS[op])
    np.testing.assert_array_equal(run(graph)[0], X)
    joint = C.differentiate(graph, ["x"], ["y"])
    dy = np.cos(X)
    np.testing.assert_array_equal(run(joint, d_y=dy)[1], dy)
    assert sum(node.op == "ort::Wait" for node in joint.nodes) == 2


@pytest.mark.parametrize("op", OPS)
def test_without_a_handle_it_waits_itself(op, group):
    graph = C.parse(
        "graph (%x: float32[3, 2] user)\n"
        f'  %1 = ort::{op}(%x) {{group="{group}", size=1{OPS[op]}}}\nreturn ("y" = %1)'
    )
    np.testing.assert_array_equal(run(graph)[0], X)


def test_a_result_that_nobody_reads(group):
    graph = graph_of("AllReduce", group, wait="%3 = Neg(%x)")
    np.testing.assert_array_equal(run(graph)[0], -X)


def test_a_handle_is_read_once(group):
    two = "%3 = ort::Wait(%1, %2)\n  %4 = Neg(%3)\n  %5 = ort::Wait(%4, %2)"
    with pytest.raises(C.Error, match="the collective was waited for before"):
        run(graph_of("AllReduce", group, wait=two, y="%5"))


def test_errors(group):
    unknown = r"\[ort::AllReduce\] 24 bytes over the group 'nobody' of 1: Could not resolve"
    with pytest.raises(RuntimeError, match=unknown):
        run(graph_of("AllReduce", "nobody"))
    other = f"24 bytes over the group '{group}' of 3, rank 0: it has 1 ranks now, expected 3"
    with pytest.raises(RuntimeError, match=other):
        run(graph_of("Broadcast", group, size=3))


def test_what_stands_in_names_groups_and_reductions():
    from ortmodule.errors import NotCapturable
    from ortmodule.python_ops import collectives

    with pytest.raises(NotCapturable, match="forward communicates in -100, expected a group"):
        collectives._named(dist.GroupMember.NON_GROUP_MEMBER)
    with pytest.raises(NotCapturable, match="which has no name"):
        collectives._name_of(dist.ReduceOp.PREMUL_SUM)
    assert collectives._name_of(dist.ReduceOp.AVG) == "avg"
    assert torch.distributed.is_initialized()
