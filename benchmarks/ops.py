#!/usr/bin/env python3
"""Times every operator at three sizes: a session of ours, onnxruntime and torch.

    benchmarks/ops.py [--only TEXT] [--page]

A case is an ONNX file of one node, run by both sessions; torch's time is that of the op table's
reference on the same float32 tensors, where it is one call. The three are timed in turns; a ratio
is of the quickest rounds, which other work on the machine disturbs least. Each has one thread, or
as many as OMP_NUM_THREADS says. `--page` writes docs/op_speed.md. `make long` runs it: what is over
three times either is listed last, with its reason where one is known.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
THREADS = int(os.environ["OMP_NUM_THREADS"])
ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
import torch  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import benchmarks.op_cases_of_models  # noqa: E402, F401  # registers more
from benchmarks.op_cases import CASES, EXPLAINED, Case  # noqa: E402
from ortmodule import InferenceSession  # noqa: E402
from tests.ops.families import TABLE  # noqa: E402

PAGE = ROOT / "docs" / "op_speed.md"
SIZES = ("small", "medium", "large")
# Rounds, and about how long one engine's share of a round takes, in seconds.
ROUNDS, SHARE = 9, 0.002
SLOW, UNEXPLAINED = 3.0, 2.0
HEAD = """# Speed of each operator

Written by `python benchmarks/ops.py --page`; do not edit. One node, one thread, float32 where not
said otherwise: our time over onnxruntime's, and over torch's for the same values, at three sizes
(benchmarks/op_cases.py). Below 1 we are faster; over 2 there is a reason below. {machine}

A small case is a session's call: some 4 µs for names, checks and the result's memory, where torch
takes one or two for a function without a session. Over 2 times torch at the small size is that, and
is not listed.

| case | µs small | medium | large | ÷ onnxruntime | | | ÷ torch | | |
|---|---|---|---|---|---|---|---|---|---|
"""


class Timed(NamedTuple):
    """Microseconds a run of ours, and our time over that of each other engine; None: it has not the
    operator."""

    case: str
    size: str
    ours: float
    ratios: dict[str, float | None]


def model_of(case: Case, size: str, arrays: list, constants: set[int]) -> onnx.ModelProto:
    """A file of one node; inputs whose places are in `constants` are initializers."""
    names = [f"x{k}" if a is not None else "" for k, a in enumerate(arrays)]
    outputs = [f"y{k}" for k in range(case.outputs)]
    node = helper.make_node(case.op, names, outputs, **case.attributes(size))
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for k, (name, a) in enumerate(zip(names, arrays, strict=True))
        if a is not None and k not in constants
    ]
    made = [helper.make_tensor_value_info(y, TensorProto.UNDEFINED, None) for y in outputs]
    for value in made:
        value.ClearField("type")
    kept = [numpy_helper.from_array(arrays[k], names[k]) for k in sorted(constants)]
    graph = helper.make_graph([node], "case", given, made, kept)
    opsets = [helper.make_opsetid("", case.opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 10
    return onnx.shape_inference.infer_shapes(model)


def dense(result: object) -> object:
    return result.contiguous() if isinstance(result, torch.Tensor) else result


def engines(case: Case, size: str) -> dict[str, Callable[[], object]]:
    """By name what runs the case once; what does not know it is left out."""
    arrays = case.make(size)
    constants = {k for k, a in enumerate(arrays) if a is not None and k in case.constants}
    model = model_of(case, size, arrays, constants)
    data = model.SerializeToString()
    feed = {
        f"x{k}": a for k, a in enumerate(arrays) if a is not None and k not in constants
    }  # fmt: skip
    own = InferenceSession(data)
    found = {"ours": lambda: own.run(None, feed)}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    options.log_severity_level = 4
    try:
        theirs = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])
        theirs.run(None, feed)
        found["onnxruntime"] = lambda: theirs.run(None, feed)
    except Exception:  # no kernel of these dtypes
        pass
    entry = TABLE.get(case.op)
    if case.torch is not None or (entry is not None and case.by_reference):
        call = case.torch or entry.reference
        tensors = [a if a is None else torch.from_numpy(np.asarray(a)) for a in arrays]
        try:
            attributes = case.attributes(size)
            call(*tensors, **attributes)
            # Of a view the elements too, as an operator's result is memory of its own.
            found["torch"] = lambda: dense(call(*tensors, **attributes))
        except Exception:  # a reference in float64 alone
            pass
    return found


def timed(case: Case, size: str) -> Timed:
    """All engines in turns."""
    running = engines(case, size)
    counts = {}
    with torch.no_grad():
        for name, run in running.items():
            run()
            began = time.perf_counter()
            run()
            counts[name] = max(1, min(2000, int(SHARE / max(time.perf_counter() - began, 1e-7))))
        times: dict[str, list[float]] = {name: [] for name in running}
        for _ in range(ROUNDS):
            for name, run in running.items():
                began = time.perf_counter()
                for _ in range(counts[name]):
                    run()
                times[name].append((time.perf_counter() - began) / counts[name])
    best = {name: min(each) for name, each in times.items()}
    ours = best["ours"]
    others = ("onnxruntime", "torch")
    ratios = {name: ours / best[name] if name in best else None for name in others}
    return Timed(case.name, size, 1e6 * ours, ratios)


def sweep(only: str) -> Iterator[Timed]:
    for case in CASES:
        if only not in case.name:
            continue
        for size in SIZES:
            yield timed(case, size)


def _show(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}"


def machine() -> str:
    names = [
        line.partition(": ")[2]
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    name = names[0] if names else "a CPU"
    return f"{name}, onnxruntime {onnxruntime.__version__}, torch {torch.__version__}."


def page(found: list[Timed]) -> str:
    by_case: dict[str, list[Timed]] = {}
    for one in found:
        by_case.setdefault(one.case, []).append(one)
    text = HEAD.format(machine=machine())
    for name, sizes in by_case.items():
        cells = [f"{one.ours:.1f}" for one in sizes]
        for engine in ("onnxruntime", "torch"):
            cells += [_show(one.ratios[engine]) for one in sizes]
        text += f"| {name} | {' | '.join(cells)} |\n"
    slow = [name for name, sizes in by_case.items() if worst(sizes) > UNEXPLAINED]
    text += "\n## Over two times\n\n"
    for name in slow:
        text += f"- {name}: {worst(by_case[name]):.1f}. {EXPLAINED.get(name, 'Not explained.')}\n"
    return text


def worst(sizes: list[Timed]) -> float:
    return max((r for one in sizes for _, r in ratios_that_count(one)), default=0.0)


def ratios_that_count(one: Timed) -> Iterator[tuple[str, float]]:
    """A small case against torch is a session's call against a function's."""
    for name, ratio in one.ratios.items():
        if ratio is not None and not (one.size == "small" and name == "torch"):
            yield name, ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="cases with this text in their name")
    parser.add_argument("--page", action="store_true", help="write docs/op_speed.md")
    given = parser.parse_args()
    torch.set_num_threads(THREADS)
    found = []
    for one in sweep(given.only):
        found.append(one)
        ratios = "  ".join(f"{name} {_show(r)}" for name, r in one.ratios.items())
        print(f"{one.case:40} {one.size:7} {one.ours:10.1f} us   ours over {ratios}", flush=True)
    slow = [(r, one, name) for one in found for name, r in ratios_that_count(one) if r > SLOW]
    print(f"over {SLOW:g} times: {len(slow)}")
    for ratio, one, name in sorted(slow, key=lambda item: -item[0]):
        reason = EXPLAINED.get(one.case, "not explained")
        print(f"  {one.case} {one.size}: {ratio:.1f} times {name}'s time; {reason}")
    if given.page:
        PAGE.write_text(page(found))


if __name__ == "__main__":
    main()
