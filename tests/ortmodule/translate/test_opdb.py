"""A fixed part of what `make long` runs in whole: torch's operator database against eager."""

import collections
import contextlib
import zlib

import opdb
import pytest
import torch
import verdict

# One sample of every third entry, whatever others this torch has: each is small, and the first of
# an entry is often its plainest.
STEP = 3
# What these had at the last change; fewer means that a rule was lost.
CAPTURED, NATIVE = 205, 107


@pytest.mark.filterwarnings("ignore")
def test_a_part_of_the_database():
    found, wrong = collections.Counter(), []
    for op in opdb.entries():
        if zlib.crc32(opdb.name_of(op).encode()) % STEP:
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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("answer, status", [(None, "refused"), ("gradient 0 differs", "wrong")])
def test_what_the_engine_refuses_as_it_runs_is_judged_by_the_wrapper(answer, status, monkeypatch):
    """torch takes a negative position along an axis here, which the engine leaves to eager."""
    if answer:
        monkeypatch.setattr(opdb, "cross_one", lambda function, tensors: answer)
    op = next(op for op in opdb.entries() if op.name == "take_along_dim")
    sample = next(s for s in opdb.samples(op) if s.args and (s.args[0] < 0).any())
    result = opdb.judge(op, sample)
    assert result["status"] == status and "out of range" in result["why"]


def test_only_named_entries_may_be_other_than_eager():
    wrong, right = {"status": "wrong", "why": "gradient 0"}, {"status": "native"}
    results = {("sort", 0): wrong, ("abs", 1): wrong, ("abs", 0): right}
    assert opdb.coverage_page.unexplained(results, "bfloat16") == [("abs", 1)]
    assert opdb.coverage_page.unexplained(results, "float32") == [("abs", 1), ("sort", 0)]
    with pytest.raises(SystemExit, match="2 samples are other than eager, such as .'abs', 1."):
        opdb.summary(results, "float32")


def test_the_page_needs_results(monkeypatch, tmp_path):
    monkeypatch.setattr(opdb, "RESULTS", tmp_path / "opdb.jsonl")
    monkeypatch.setattr("sys.argv", ["opdb.py", "--page"])
    before = opdb.coverage_page.PAGE.read_text()
    with pytest.raises(SystemExit, match="no results in bfloat16 of this commit"):
        opdb.main()
    assert opdb.coverage_page.PAGE.read_text() == before


@pytest.mark.parametrize(
    "ours, eager, near",
    [(1.00001, 0.99999, True), (1.0003, 0.9998, True), (1.0003, 0.9999, False), (1.1, 1.0, False)],
)
def test_a_miss_is_judged_against_float64(ours, eager, near):
    """The value is 1: ours may be within the tolerance of it, or twice as far as eager."""
    exact = [torch.ones(1, dtype=torch.float64)], None
    given = (([torch.tensor([value])], None) for value in (ours, eager))
    judged = contextlib.nullcontext() if near else pytest.raises(verdict.Wrong, match="output 0")
    with judged:
        verdict.compare(*given, lambda: exact)


def test_a_miss_names_the_operands_at_its_place(monkeypatch):
    """Of those whose sizes reach over the result's."""
    tensors = [torch.tensor([[1.0], [2.0]]), torch.tensor([3.0, 4.0]), torch.ones(5)]
    monkeypatch.setattr(verdict, "Traced", lambda f, _: lambda *given: [y + 1 for y in f(*given)])
    monkeypatch.setattr(verdict, "gradients", lambda outputs, tensors: None)
    with pytest.raises(verdict.Wrong) as found:
        verdict.check(lambda a, b, c: [torch.where(a + b > 4.5, a + b, torch.inf)], tensors)
    assert str(found.value) == (
        "output 0: 6.0 at [0, 1], eager 5.0 (3 of 4 differ); there operand 0 is 1.0, "
        "operand 1 is 4.0"
    )
    with pytest.raises(verdict.Wrong, match=r"at \[0, 0\], eager 1.0 \(2 of 4 differ\)$"):
        verdict.check(lambda a, b, c: [torch.complex(b, b - b) - 2], tensors)
