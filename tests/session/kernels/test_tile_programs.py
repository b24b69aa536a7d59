"""A session's tile programs hold no sizes: made once, they serve every batch and length."""

import onnxruntime
import pytest
from numpy.testing import assert_allclose

from ortmodule import InferenceSession
from ortmodule._native import core

from ..models import attention_block, model, node, normal, port


def both(made):
    theirs = onnxruntime.InferenceSession(made.SerializeToString())
    return InferenceSession(made.SerializeToString()), theirs


def agree(sessions, feed):
    ours, theirs = (session.run(None, feed) for session in sessions)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert_allclose(mine, wanted, atol=2e-5, rtol=2e-4)


def test_thirty_sizes_of_a_file_make_no_program_anew():
    made, feed = attention_block()
    sessions = both(made)
    before = core().tile_programs()
    agree(sessions, feed)
    programs = core().tile_programs()
    for batch in range(1, 7):
        for length in (1, 4, 9, 33, 300):
            agree(sessions, {"x": normal(batch, length, 8)})
    assert core().tile_programs() == programs > before


@pytest.mark.parametrize("op", ["Add", "Where"])
def test_what_sizes_alone_decide_makes_a_program_for_each_way(op):
    """Which of two operands broadcasts is seen when it runs: three ways, and no size of theirs."""
    nodes = [node("Greater", "x y", "more"), node("Where", "more x y", "z")]
    if op == "Add":
        nodes = [node("Add", "x y", "z")]
    ports = [port("x", ["a"]), port("y", ["b"])]
    sessions = both(model(nodes, ports, [port("z", ["c"])]))
    ways = [[(7, 7), (5, 5), (300, 300)], [(7, 1), (2, 1), (5000, 1)], [(1, 4), (1, 900), (1, 2)]]
    for sizes in ways:
        agree(sessions, {"x": normal(sizes[0][0]), "y": normal(sizes[0][1])})
        programs = core().tile_programs()
        for a, b in sizes[1:]:
            agree(sessions, {"x": normal(a), "y": normal(b)})
        assert core().tile_programs() == programs
