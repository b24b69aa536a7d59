"""One training step of many models in ORTModule against eager's; writes docs/models.md.

`python tools/sweep.py` runs what the results file lacks of this commit, as `make long` does.
--keep: results of other commits count too. --kind timm: these; --only NAME...: these, printed and
not kept. --page: the page alone. Each model runs in a process of its own, so that one that dies or
hangs is a row.

A model is *right* where outputs, buffers and every gradient are within RTOL and ATOL of eager's, or
the tensor is no farther from float64's than twice eager's and an ulp of it, by Euclid's norm. Where
a choice differs (top-k, routing, non-maximum suppression) the one made in float64 so decides. The
sign of what enters a ReLU is such a choice too, of millions of numbers, and one of these may lie
within a rounding of zero: where a tensor is still too far, eager's distance is the largest of MOVED
runs more, parameters and inputs moved by an ulp each, and the page says so.
"""

import argparse
import json
import multiprocessing
import os
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import architectures  # noqa: E402
import coverage_page  # noqa: E402
import models_page  # noqa: E402
import torch  # noqa: E402
import torch._dynamo  # noqa: E402, F401 before the processes fork
import vision_models  # noqa: E402
from torch import nn  # noqa: E402
from torch.profiler import ProfilerActivity, profile  # noqa: E402
from torch.utils._pytree import tree_map, tree_map_with_path  # noqa: E402

from ortmodule import Options, ORTModule  # noqa: E402

RESULTS = ROOT / "build" / "sweep.jsonl"
RTOL, ATOL = 1e-4, 1e-5  # ATOL of the tensor's largest magnitude
MOVED = 16
SECONDS, WAIT = 120, 5  # of a processor, which a model may take, and times that of the clock
# Operators that compute nothing, those of `step` itself among them.
MEMORY = {
    "alias", "as_strided", "chunk", "clone", "contiguous", "detach", "empty", "empty_like",
    "empty_permuted", "empty_strided", "expand", "lift_fresh", "narrow", "permute",
    "reshape", "select", "set_", "slice", "split", "squeeze", "t", "to", "transpose", "unsqueeze",
    "view",
}  # fmt: skip
LARGE = {"vit_h_14", "vit_l_16", "regnet_y_128gf", "keypointrcnn_resnet50_fpn", "nasnetalarge"}


def models() -> dict:
    """All models, by name what makes one and its inputs."""
    return {**architectures.models(), **vision_models.models()}


def judge(name: str) -> dict:
    """What became of one model's step."""
    model, inputs = models()[name]()
    ours = ORTModule(model, Options("report", providers=("cpu", "aten")))
    started = time.process_time()
    found, steps = architectures.step(ours, inputs), 1
    if ours.explain().warm_ups:  # forward sets up state, so eager makes the first call
        found, steps = architectures.step(ours, inputs), 2
    seconds = time.process_time() - started
    report = ours.explain()
    whole = report.captures == 1 and not report.parts and not _in_eager(report)
    shares = in_parts(model, ours, inputs) if report.parts and not whole else {}
    del model, ours  # of which some take gigabytes
    wrong, at_kinks = differing(name, steps, found)
    return {
        "right": not wrong,
        "wrong": wrong[:5],
        "at_kinks": at_kinks,
        "whole": whole,
        "captures": report.captures,
        "parts": len(report.parts),
        "small": report.small,
        "aten": sorted({f.op for f in report.fallbacks if _is_step(f)}),
        "reasons": [str(f) for f in (*_in_eager(report), *report.not_whole, *report.breaks)],
        "seconds": round(seconds, 2),
        **shares,
    }


def _is_step(fallback) -> bool:
    """Whether it is an operator that torch runs as a step of the plan."""
    return fallback.op is not None and "between two parts" not in fallback.reason


def _in_eager(report) -> list:
    steps = report.providers.get("aten", 0)
    return [f for f in report.fallbacks if not (steps and _is_step(f))]


def differing(name: str, steps: int, ours: dict) -> tuple[list[str], bool]:
    """The tensors that are not eager's, each with by how much; whether any is right by MOVED."""
    eager = stepped(name, steps)
    if list(ours) != list(eager):
        odd = sorted(ours.keys() ^ eager.keys())
        return [f"there in one of both alone: {odd[:3]}"], False
    far = {key: value for key, value in eager.items() if not near(ours[key], value)}
    if not far:
        return [], False
    runs = [eager]
    exact = stepped(name, steps, torch.float64)
    wrong = farther(far, ours, runs, exact)
    if not wrong:
        return [], False
    for seed in range(1, MOVED + 1):
        if wrong:
            runs.append(stepped(name, steps, moved=seed))
            wrong = farther(wrong, ours, runs, exact)
    return [f"{key}: {how}" for key, how in wrong.items()], not wrong


def stepped(name: str, steps: int, dtype=torch.float32, moved: int | None = None) -> dict:
    """Eager's step, in `dtype`; moved: with parameters and inputs an ulp away, by this seed."""
    model, inputs = models()[name]()
    if moved is not None:
        torch.manual_seed(moved)
        with torch.no_grad():
            for tensor in model.parameters():
                tensor.copy_(_moved(tensor))
        inputs = tree_map(_moved, inputs)
    torch.set_default_dtype(dtype)  # of what forward makes
    try:
        inputs = tree_map_with_path(lambda path, x: _cast(path, x, dtype), inputs)
        model = model.to(dtype)
        return [architectures.step(model, inputs) for _ in range(steps)][-1]
    finally:
        torch.set_default_dtype(torch.float32)


def _cast(path: tuple, value, dtype: torch.dtype):
    fixed = "keypoints" in str(path)  # which torchvision takes in float32 alone
    return value.to(dtype) if _is_float(value) and not fixed else value


def _moved(value):
    if not _is_float(value):
        return value
    return torch.nextafter(value, torch.where(torch.rand_like(value) < 0.5, -torch.inf, torch.inf))


def _is_float(value) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def near(ours: torch.Tensor, eager: torch.Tensor) -> bool:
    if ours.shape != eager.shape or ours.dtype != eager.dtype:
        return False
    largest = eager.abs().max().item() if eager.numel() else 0.0
    return torch.allclose(ours, eager, RTOL, ATOL * largest, equal_nan=True)


def farther(keys: Iterable[str], ours: dict, runs: list[dict], exact: dict) -> dict[str, str]:
    """Of these what is farther from `exact` than twice the farthest of eager's runs."""
    largest, eps = {}, torch.finfo(torch.float32).eps
    for key, value in exact.items():
        largest[_kind(key)] = max(largest.get(_kind(key), 0.0), value.norm().item())
    found = {}
    for key in keys:
        mine, theirs, true = ours[key], [run[key] for run in runs], exact[key].double()
        if not true.isfinite().all():  # as where a mask is float32's lowest number
            true = theirs[0].double()
        if mine.shape != true.shape or not torch.equal(mine.isnan(), theirs[0].isnan()):
            found[key] = "another size, or other NaNs"
            continue
        norm = true.norm().item()
        distance = (mine - true).norm().item()
        bound = max((run - true).norm().item() for run in theirs)
        rounding, floor = eps * norm, eps * largest[_kind(key)]
        if norm < floor or _kind(key) == "buffer":  # zero but for rounding: a key's bias, a mean
            rounding = floor
        if not distance <= 2 * bound + rounding:
            found[key] = f"{distance / norm:.1e} from float64, eager {bound / norm:.1e}"
    return found


def _kind(key: str) -> str:
    return key.partition(" ")[0]


def in_parts(model: nn.Module, ours: nn.Module, inputs: dict) -> dict:
    """The shares of operators and of floating-point operations that torch did not run itself.

    What runs on the provider aten counts as run by torch.
    """
    architectures.step(ours, inputs)  # what a call that makes parts computes is of no other
    ops, flops = _of_torch(model, inputs)
    outside, flops_outside = _of_torch(ours, inputs)
    return {
        "ops": round(1 - outside / max(ops, 1), 3),
        "flops": round(1 - flops_outside / max(flops, 1), 3),
    }


def _of_torch(model: nn.Module, inputs: dict) -> tuple[int, int]:
    """How many operators a step of it has in torch, and their floating-point operations."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_flops=True) as found:
        architectures.step(model, inputs)
    events = [event for event in found.events() if event.name.startswith("aten::")]
    outer = [e for e in events if not (e.cpu_parent and e.cpu_parent.name.startswith("aten::"))]
    count = sum(e.name.removeprefix("aten::") not in MEMORY for e in outer)
    return count, sum(event.flops or 0 for event in events)


def in_a_process(work: Callable[[str], dict], name: str, wait: float) -> dict:
    """work(name) in a process of its own, which ends after `wait` seconds; "error" instead, with
    "trace" where it raised."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_send, args=(work, name, theirs))
    process.start()
    theirs.close()
    try:
        row = ours.recv() if ours.poll(wait) else {"error": f"took {wait} s"}
    except EOFError:
        process.join()
        row = {"error": f"the process died ({process.exitcode})"}
    process.kill()
    process.join()
    return row


def _send(work: Callable[[str], dict], name: str, results: Connection) -> None:
    warnings.simplefilter("ignore")
    try:
        row = work(name)
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        row = {"error": f"{type(error).__name__}: {first}"[:300]}
        row["trace"] = traceback.format_exc()[-3000:]
    results.send(row)


def _seconds(name: str) -> int:
    return SECONDS * (3 if name.rpartition("/")[2] in LARGE else 1)


def _judged(name: str) -> dict:
    os.nice(5)
    resource.setrlimit(resource.RLIMIT_CPU, (_seconds(name), _seconds(name)))
    return judge(name)


def row_of(name: str) -> dict:
    """judge(name) in a process of its own; one that raises, dies or hangs is not right."""
    row = in_a_process(_judged, name, WAIT * _seconds(name))
    if "error" in row:
        row = {"right": False, "whole": False, "wrong": [row.pop("error")]} | row
    return {"name": name, **row}


def made_by() -> dict:
    """What results are of: others are not resumed."""
    return {"commit": coverage_page.commit(), "torch": torch.__version__}


def read(path: Path, keep: bool) -> dict[str, dict]:
    """Each model's latest row."""
    lines = path.read_text().splitlines() if path.exists() else []
    made = made_by()
    rows = [json.loads(line) for line in lines]
    wanted = [row for row in rows if keep or all(row[k] == v for k, v in made.items())]
    return {row["name"]: row for row in wanted}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--kind", choices=("timm", "transformers", "torchvision"))
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--again", action="store_true", help="what was not right and whole")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.only:
        for name in given.only:
            row = row_of(name)
            print(row.pop("trace", ""), json.dumps(row, indent=1), flush=True)
        return
    done, made = read(given.results, given.keep), made_by()
    given.results.parent.mkdir(exist_ok=True)
    if given.again:
        done = {name: row for name, row in done.items() if row["right"] and row["whole"]}
    names = [name for name in models() if name.startswith(given.kind or "") and name not in done]
    for name in names if not given.page else ():
        row = row_of(name) | made
        print(models_page.line(row), flush=True)
        with given.results.open("a") as file:
            print(json.dumps(row), file=file)
    rows = read(given.results, given.keep)
    models_page.write({name: rows[name] for name in models() if name in rows})


if __name__ == "__main__":
    main()
