"""Runs the text of a module's program in eager and in ORTModule and compares them.

`judge(text)` gives a verdict: a dict with status "equal", "differs" or "eager" (which cannot run
the text), kind and why. Used by workers.py.
"""

import contextlib
import importlib.util
import re
import sys
import tempfile
import warnings
from pathlib import Path

import torch

from .facts import Difference, difference, look

MOVED = 4
WIDER = [
    (r"torch\.(float32|float16|bfloat16|half)\b", "torch.float64"),
    (r"\.(float|half|bfloat16)\(\)", ".double()"),
    (r"torch\.autocast\([^)]*\)", "contextlib.nullcontext()"),
]
# An ulp of what such a program computes in.
HALF, UNIT = re.compile(r"autocast|bfloat16|\bhalf\(|float16"), 2.0**-8
RANDOM = re.compile(r"rand|dropout|Dropout")
# Of a text that says nothing: left by the shrinker, or by templates that met no fitting operand.
EMPTY = (NameError, SyntaxError, IndentationError)


def judge(text: str) -> dict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _judge(text)


def _judge(text: str) -> dict:
    eager = run(text)
    if eager and isinstance(eager[-1], EMPTY):
        return {"status": "eager", "why": repr(eager[-1])}
    report: dict = {}
    ours = run(text, ours=report)
    found = compare(ours, eager)
    if found and found.kind == "value":
        found = compare(ours, eager, *_others(text))
    if found is None:
        return {"status": "equal", **report}
    return {"status": "differs", "kind": found.kind, "why": str(found), **report}


def _others(text: str) -> tuple:
    """Eager's runs that say how much a difference means: in float64, and moved by an ulp."""
    return run(text, exact=True), [run(text, moved=seed) for seed in range(1, MOVED + 1)]


def compare(ours: list, eager: list, exact=None, moved=()) -> Difference | None:
    """The sights come first, as they are earlier than an error that ends the run."""
    sights = [_sights(r) for r in (ours, eager)]
    exact, moved = exact and _sights(exact), [_sights(r) for r in moved]
    ends = [next((s for s in r if isinstance(s, BaseException)), None) for r in (ours, eager)]
    wrong = [type(e).__name__ if e else "no error" for e in ends]
    short = min(map(len, sights))
    if found := difference(*[r[:short] for r in sights], exact, moved):
        return found
    if wrong[0] != wrong[1]:
        kind = f"error {wrong[0]} for {wrong[1]}"
        return Difference(kind, "the run", " | ".join(_first(e) for e in ends if e))
    return difference(*sights, exact, moved)


def _sights(run: list) -> list:
    return [s for s in run if isinstance(s, list)]


def _first(error) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"


def run(text: str, ours: dict | None = None, exact=False, moved=0) -> list:
    """What was seen, and the exception that ended it. ours: run it in ORTModule and report here."""
    if exact:
        for pattern, instead in WIDER:
            text = re.sub(pattern, instead, text)
    found: list = []
    unit = UNIT if HALF.search(text[text.find("class Net") :]) else None
    torch.manual_seed(0)
    try:
        with _module(text) as program, _defaults():
            program.contextlib = contextlib
            _prepare(program, exact, moved, unit)
            net = program.Net()
            _change(net, exact, moved, unit)
            model, explain = _wrapped(net, ours)
            if exact:
                torch.set_default_dtype(torch.float64)

            def see(*values):
                if model is not net and any(v is model for v in values):
                    raise NameError("the wrapper is no result")
                found.append(look(values))

            try:
                program.drive(net, model, see)
            finally:
                if ours is not None:
                    ours.update(_report(explain()))
        if not RANDOM.search(text[text.find("class Net") :]):
            found.append([("random", ("state", int(torch.get_rng_state().sum())))])
    except Exception as error:
        found.append(error.with_traceback(None))
    return found


@contextlib.contextmanager
def _module(text: str):
    """The program as a module of a file of its own, as a user's is."""
    with tempfile.TemporaryDirectory(prefix="program") as folder:
        path = Path(folder) / "program.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("program", path)
        module = sys.modules["program"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


@contextlib.contextmanager
def _defaults():
    grads, kind = torch.is_grad_enabled(), torch.get_default_dtype()
    try:
        yield
    finally:
        torch.set_grad_enabled(grads)
        torch.set_default_dtype(kind)


def _prepare(program, exact: bool, moved: int, unit: float | None) -> None:
    """Puts a `data` in the program that gives the same numbers wider, or moved."""
    plain = program.data

    def data(seed, *sizes):
        kind = torch.get_default_dtype()
        torch.set_default_dtype(torch.float32)
        made = plain(seed, *sizes)
        torch.set_default_dtype(kind)
        return made.to(kind) if exact else _move(made, moved, unit)

    program.data = data


def _change(net, exact: bool, moved: int, unit: float | None) -> None:
    if exact:
        net.double()
    with torch.no_grad():
        for p in net.parameters() if moved else ():
            p.copy_(_move(p, moved, unit))


def _move(x: torch.Tensor, seed: int, unit: float | None = None) -> torch.Tensor:
    if not seed:
        return x
    signs = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)).sign()
    return x * (1 + signs.to(x.dtype) * (unit or torch.finfo(x.dtype).eps))


def _wrapped(net, ours: dict | None):
    if ours is None:
        return net, None
    from ortmodule import ORTModule

    model = ORTModule(net)
    return model, model.explain


def _report(report) -> dict:
    """How the module ran."""
    place = "parts" if report.parts else "whole" if report.captures else "eager"
    return {"ran": place, "captures": report.captures}
