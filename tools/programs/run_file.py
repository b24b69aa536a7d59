"""Runs the text of a file's program in our session, onnxruntime and onnx's reference.

`judge(text)` compares them and gives a verdict as run_module.py does: "equal" to one of the
others, "differs", or "eager" where neither of them runs it. Used by workers.py.
"""

import dataclasses
import re

import torch
from onnx.reference import ReferenceEvaluator

from .facts import Difference, Seen, difference
from .record import Op, array_of, tensor_of, with_onnxruntime

MOVED = 3


def judge(text: str) -> dict:
    world: dict = {}
    try:
        exec(text.replace("__main__", "program"), world)
        model, feeds = build(world)
    except Exception as error:
        return {"status": "eager", "why": repr(error)[:200]}
    return compare(model, feeds, world)


def build(world: dict) -> tuple:
    """The model and the feed of each run."""
    torch.manual_seed(0)
    rows = world["CALLS"]
    first = world["feeds"](rows[0])
    op = Op(world["OPSET"])
    for name, value in first.items():
        op.feed(name, value)
    results = world["build"](op, **first)
    sizes = _sizes(first, world["feeds"](rows[0] + 1), world.get("SIZES", "n"))
    model = op.model(sizes, {n: v.dtype for n, v in first.items()}, results)
    calls = rows if world.get("SIZES") != "fixed" else [rows[0]] * len(rows)
    feeds = [world["feeds"](n, 10 * at) for at, n in enumerate(calls)]
    return model, [{k: array_of(v) for k, v in f.items()} for f in feeds]


def _sizes(first: dict, other: dict, how: str) -> dict[str, list]:
    found = {}
    for name, value in first.items():
        pairs = zip(value.shape, other[name].shape, strict=True)
        texts = {"n": "n", "each": f"{name}_{{}}", "unknown": None, "fixed": 0}[how]
        found[name] = [
            a if a == b or texts == 0 else texts and texts.format(at)
            for at, (a, b) in enumerate(pairs)
        ]
    return found


def compare(model, feeds: list, world: dict) -> dict:
    """In each run ours must be as one of the others that has an answer."""
    mine, kinds = ours(model, feeds), {n.op_type for n in model.graph.node}
    report = {"ran": f"opset {model.opset_import[0].version}", "ops": sorted(kinds)}
    theirs = with_onnxruntime(model, feeds)
    if not any(
        _difference(at, *pair, []) for at, pair in enumerate(zip(mine, theirs, strict=True))
    ):
        return {"status": "equal", **report}
    answers = [theirs, with_reference(model, feeds)]
    moved = [[_moved(feed, k) for feed in feeds] for k in range(1, MOVED + 1)]
    others = [run(model, m) for m in moved for run in (with_onnxruntime, with_reference)] + answers
    judged = 0
    for at, a in enumerate(mine):
        given = [runs[at] for runs in answers if not isinstance(runs[at], Exception)]
        found = [_difference(at, a, b, [runs[at] for runs in others]) for b in given]
        judged += len(given) > 0
        if found and all(found):
            return {"status": "differs", "kind": found[0].kind, "why": str(found[0]), **report}
    failed = next((str(r)[:200] for r in theirs if isinstance(r, Exception)), "")
    return {"status": "equal" if judged else "eager", "why": failed, **report}


def ours(model, feeds: list) -> list:
    from ortmodule import InferenceSession

    try:
        session = InferenceSession(model.SerializeToString())
    except Exception as error:
        return [error] * len(feeds)
    return [_caught(lambda feed=feed: session.run(None, feed)) for feed in feeds]


def with_reference(model, feeds: list) -> list:
    made = _caught(lambda: ReferenceEvaluator(model))
    if isinstance(made, Exception):
        return [made] * len(feeds)
    return [_caught(lambda feed=feed: made.run(None, feed)) for feed in feeds]


def _caught(function):
    try:
        return function()
    except Exception as error:
        return error


def _difference(at: int, mine, theirs, moved: list) -> Difference | None:
    """Between the answers of run `at`; moved: others' for inputs that were moved by an ulp."""
    if isinstance(theirs, Exception):
        return Difference("no error", f"run {at}", str(theirs)[:200])
    if isinstance(mine, Exception):
        words = re.sub(r"[^a-zA-Z ]+", "", str(mine))[:40]
        return Difference(f"error {words}", f"run {at}", str(mine)[:300])
    runs = [[_sight(m)] for m in moved if not isinstance(m, Exception)]
    found = difference([_sight(mine)], [_sight(theirs)], moved=runs)
    return found and dataclasses.replace(found, place=found.place.replace("sight 0", f"run {at}"))


def _sight(arrays: list) -> list:
    """As facts.py sees a run's outputs: what a file promises are types, sizes and elements."""
    found = []
    for at, array in enumerate(arrays):
        tensor = tensor_of(array)
        fact = Seen(tensor.dtype, tuple(tensor.shape), (), False, True, at, tensor)
        found.append((f"output {at}", fact))
    return found


def _moved(feed: dict, seed: int) -> dict:
    from .run_module import _move

    tensors = {k: tensor_of(v) for k, v in feed.items()}
    return {k: array_of(_move(v, seed) if v.is_floating_point() else v) for k, v in tensors.items()}


def show(feeds, build_graph) -> None:
    """What each of the three gives, for a program that is run as a script."""
    import sys

    program = sys.modules["__main__"]
    model, given = build(vars(program))
    for run in (ours, with_onnxruntime, with_reference):
        print(run.__name__, *run(model, given), sep="\n")
