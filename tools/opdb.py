"""torch's own operator database through translator and engine, values and gradients against eager.

`python tools/opdb.py` runs what the results file lacks of this commit and this torch, and then
writes docs/coverage.md, as `make long` does. --keep: results of other commits count too. --only
a,b: these entries, printed and not kept. --cross n: n samples by ORTModule itself, with
torch.export, too. --page: the page alone. --dtype: another than float32, with results of its own,
which the page counts; --every n: of its entries each nth, printed alone.
"""

import argparse
import collections
import json
import signal
import subprocess
import sys
import time
import traceback
import warnings
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import coverage_page  # noqa: E402
import torch  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402
from verdict import (  # noqa: E402
    Wrong,
    check,
    check_random,
    compare,
    filled,
    is_random,
    leaves_of,
    run,
    widened,
)

from ortmodule import ORTModule  # noqa: E402
from ortmodule._native import torch_bridge  # noqa: E402
from ortmodule.errors import NotCapturable  # noqa: E402

RESULTS = ROOT / "build" / "opdb.jsonl"
OTHERS = ("bfloat16", "float64")  # dtypes that the page counts too
OURS = "its translation failed"  # a defect of ours, not a refusal
EQUAL = ("equal", "fallback")  # what cross_one says of an answer that is eager's
SECONDS = 60  # a sample that takes longer has failed
STARTS = 3  # of a worker that gets no sample further
# Their values are whatever the memory held.
UNINITIALISED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty"}
UNINITIALISED |= {"new_empty_strided"}


def results_of(dtype: str) -> Path:
    return RESULTS if dtype == "float32" else RESULTS.with_stem(f"opdb_{dtype}")


def entries(dtype: torch.dtype = torch.float32) -> list:
    """The operators of the database that take `dtype`."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if dtype in op.dtypes]


def samples(op, dtype: torch.dtype = torch.float32) -> list:
    torch.manual_seed(0)
    wants = op.supports_autograd and dtype in op.backward_dtypes
    return list(op.sample_inputs("cpu", dtype, requires_grad=wants))


def name_of(op) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def function_of(op, sample) -> tuple:
    """A function of tensors, returning tensors, and its arguments."""
    plain, tensors = plain_function_of(op, sample)

    def function(*given):
        # Some entries seed torch's generator, which a trace does not show and a capture refuses.
        with mock.patch.object(torch, "manual_seed", lambda seed: None):
            return plain(*given)

    return function, tensors


def plain_function_of(op, sample) -> tuple:
    tensors, tree = leaves_of((sample.input, sample.args, sample.kwargs))

    def function(*given):
        first, args, kwargs = filled(tree, given)
        result = sample.output_process_fn_grad(op(first, *args, **kwargs))
        return [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]

    return function, tensors


def judge(op, sample) -> dict:
    """status: native, aten, refused, wrong or eager (which fails itself); and why."""
    function, tensors = function_of(op, sample)
    state = torch.get_rng_state()
    try:
        if not function(*tensors):
            return {"status": "eager", "why": "returns no tensor"}
    except Exception as error:
        return {"status": "eager", "why": _first(error)}
    torch.set_rng_state(state)
    try:
        made = compared(op, function, tensors)
    except NotCapturable as error:
        failed = OURS in error.reason
        return {"status": "wrong" if failed else "refused", "why": error.reason, "op": error.op}
    except Wrong as error:
        return {"status": "wrong", "why": str(error)}
    except torch_bridge().Error as error:  # of values that the engine does not take: eager's call
        answer = cross_one(*plain_function_of(op, sample))
        if answer not in EQUAL:
            return {"status": "wrong", "why": f"{error}; {answer}"}
        return {"status": "refused", "why": f"the engine: {_first(error)}"}
    operators = made.operators()
    return {"status": "aten" if operators else "native", "aten": operators}


def compared(op, function, tensors):
    if op.name in UNINITIALISED:
        return shapes_alone(function, tensors)
    try:
        return check(function, tensors)
    except Wrong:
        if not is_random(function, tensors):
            raise
    return check_random(function, tensors)


def shapes_alone(function, tensors):
    """For what is uninitialised: types and sizes."""
    return check(lambda *xs: [torch.zeros_like(y) for y in function(*xs)], tensors)


def _first(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"


class _Late(Exception):
    pass


def _ring(*_):
    raise _Late


def timed(op, sample) -> dict:
    """judge, with any other failure as its result."""
    signal.signal(signal.SIGALRM, _ring)
    signal.alarm(SECONDS)
    started = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = judge(op, sample)
    except _Late:
        found = {"status": "wrong", "why": f"takes more than {SECONDS} s"}
    except Exception as error:
        found = {"status": "wrong", "why": _first(error), "trace": traceback.format_exc()[-1500:]}
    finally:
        signal.alarm(0)
    return {**found, "seconds": round(time.perf_counter() - started, 3)}


def work(path: Path, part: int, parts: int, done: set, dtype=torch.float32, every=1) -> None:
    """Runs every sample of this part that is not done. A started line is there for crashes."""
    made = made_by()
    with path.open("a") as file:

        def note(**fields):
            print(json.dumps({**fields, **made}), file=file, flush=True)

        for at, op in enumerate(entries(dtype)[::every]):
            if at % parts != part:
                continue
            for k, sample in enumerate(samples(op, dtype)):
                if (name_of(op), k) in done:
                    continue
                note(entry=name_of(op), sample=k, status="started")
                note(entry=name_of(op), sample=k, **timed(op, sample))
            torch._dynamo.reset()


def made_by() -> dict:
    """What results are of: others are not resumed."""
    return {"commit": coverage_page.commit(), "torch": torch.__version__}


def read(path: Path, keep: bool = False) -> dict:
    """(entry, sample) -> its latest line; what has started and not ended has crashed."""
    found, made = {}, made_by()
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            fields = json.loads(line)
        except json.JSONDecodeError:  # its writer was killed; the next one wrote on
            continue
        if not keep and any(fields.get(name) != value for name, value in made.items()):
            continue
        if fields["status"] == "started":
            fields.update(status="wrong", why="the process died")
        found[fields["entry"], fields["sample"]] = fields
    return found


def sweep(path: Path, workers: int, options: list[str]) -> None:
    """Workers in processes of their own, each begun anew until it has ended by itself."""
    path.parent.mkdir(exist_ok=True)
    if path.exists() and not path.read_bytes().endswith(b"\n"):
        with path.open("a") as file:  # what was cut stays a line of its own
            file.write("\n")
    command, keep = [sys.executable, __file__, *options], "--keep" in options
    waiting = dict.fromkeys(range(workers))
    starts, known = 0, -1
    while waiting:
        for i, process in list(waiting.items()):
            if process is None or process.poll() not in (None, 0):
                before, known = known, len(read(path, keep))
                starts = 1 if known > before else starts + 1
                if starts > STARTS * workers:
                    stop(f"workers ended {starts} times and got no sample further", waiting)
                waiting[i] = subprocess.Popen([*command, "--part", f"{i}/{workers}"])
            elif process.poll() == 0:
                del waiting[i]
        time.sleep(1)


def stop(why: str, workers: dict) -> None:
    for process in filter(None, workers.values()):
        process.kill()
    raise SystemExit(why)


def cross(count: int, results: dict) -> None:
    """Samples by ORTModule itself, evenly spread over those that are captured and always have the
    same values; ends in an error for a wrong one."""
    good = {key for key, found in results.items() if found["status"] in ("native", "aten")}
    able = [key for key, *of in samples_of(good) if not is_random(*function_of(*of))]
    count = min(count, len(able))
    chosen = {able[i * len(able) // count] for i in range(count)}
    found = {key: cross_one(*plain_function_of(*of)) for key, *of in samples_of(chosen)}
    fallen = sum(answer == "fallback" for answer in found.values())
    wrong = [f"{key}: {answer}" for key, answer in found.items() if answer not in EQUAL]
    print(f"{len(found)} samples by ORTModule: {fallen} fell back, {len(wrong)} differ")
    if wrong:
        raise SystemExit("\n".join(wrong))


def samples_of(keys: set):
    """(key, entry, sample) of each of these that has values to compare."""
    names = {entry for entry, _ in keys}
    for op in entries():
        if op.name in UNINITIALISED or name_of(op) not in names:
            continue
        for k, sample in enumerate(samples(op)):
            if (name_of(op), k) in keys:
                yield (name_of(op), k), op, sample


def cross_one(function, tensors) -> str:
    module = torch.nn.Module()
    module.forward = lambda *xs: tuple(function(*xs))
    ours = ORTModule(module)
    try:
        compare(run(ours, tensors), run(function, tensors), lambda: run(function, widened(tensors)))
    except Wrong as error:
        return str(error)
    return "fallback" if not ours.explain().captures else "equal"


def only(name: str, number: int | None, dtype: torch.dtype) -> None:
    for op in entries(dtype):
        if {op.name, name_of(op)} & set(name.split(",")):
            for k, sample in enumerate(samples(op, dtype)):
                if number is None or k == number:
                    found = timed(op, sample)
                    found.pop("trace", None) if number is None else print(found.pop("trace", ""))
                    print(name_of(op), k, found, flush=True)


def summary(results: dict, dtype: str) -> None:
    """Counts, and what is wrong; ends the process where that is no known exception."""
    print(dict(collections.Counter(found["status"] for found in results.values())))
    for (entry, k), found in sorted(results.items()):
        if found["status"] == "wrong":
            print(f"{entry} {k}: {found.get('why')}")
    if strange := coverage_page.unexplained(results, dtype):
        sys.exit(f"{len(strange)} samples are other than eager, such as {strange[0]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part")
    parser.add_argument("--only")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cross", type=int)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(1)
    dtype, plain = getattr(torch, given.dtype), given.dtype == "float32"
    given.results = given.results or results_of(given.dtype)
    if given.only:
        return only(given.only, given.sample, dtype)
    if given.part:
        part, parts = map(int, given.part.split("/"))
        done = set(read(given.results, given.keep))
        return work(given.results, part, parts, done, dtype, given.every)
    if given.cross:
        return cross(given.cross, read(given.results, given.keep))
    if not given.page:
        options = ["--results", str(given.results), *["--keep"] * given.keep]
        options += ["--dtype", given.dtype, "--every", str(given.every)]
        sweep(given.results, given.workers, options)
    if not plain or given.every > 1:
        return summary(read(given.results, given.keep), given.dtype)
    others = {name: read(results_of(name), given.keep) for name in OTHERS}
    for name, found in {**others, "float32": read(given.results, given.keep)}.items():
        if not found:
            sys.exit(f"there are no results in {name} of this commit: the page is left as it is")
    names = [name_of(op) for op in entries()]
    coverage_page.write(read(given.results, given.keep), names, others)
    return summary(read(given.results, given.keep), given.dtype)


if __name__ == "__main__":
    main()
