#!/usr/bin/env python3
"""Sessions of ours beside onnxruntime and, where it is installed, OpenVINO, in float32.

    benchmarks/inference.py [--rows NAME ...] [--kinds speed open memory call lengths]
                            [--rounds N] [--threads N] [--folder PATH]

Files are written by torch's exporters (inference_models.py) into the folder. `speed`: runs of all
engines in turns, in one process, each after a pause in which the threads of the others go to sleep;
a ratio is our time over the better of the others' in the same round: below 1 we are faster. `call`:
the same of a file of one node. `open` and `memory`: each engine in fresh processes: how long a file
takes to open, and the memory that one session and a second one hold, over the file's bytes.
`lengths`: what a session's memory grows by over 2,000 lengths.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

KINDS = ("speed", "call", "open", "memory", "lengths")
# Row: model, batch, length.
ROWS = {
    "bert b1": ("bert", 1, 128),
    "bert b8": ("bert", 8, 128),
    "bert_dynamo b1": ("bert_dynamo", 1, 128),
    "mini_lm b1": ("mini_lm", 1, 128),
    "gpt2 256": ("gpt2", 1, 256),
    "vit b1": ("vit", 1, 0),
    "lstm b32": ("lstm", 32, 64),
    "resnet50 b1": ("resnet50", 1, 0),
    "mobilenet_v3 b1": ("mobilenet_v3", 1, 0),
    "efficientnet_b0 b1": ("efficientnet_b0", 1, 0),
}
PAUSE = 0.05  # seconds in which idle threads stop spinning
SHARE = 0.2  # seconds of an engine's runs in a round

Run = Callable[[dict[str, np.ndarray]], list[np.ndarray]]


# --- engines ------------------------------------------------------------------------------------


def open_ours(data: str | bytes, threads: int) -> Run:
    from ortmodule import InferenceSession

    session = InferenceSession(data)
    return lambda feed: session.run(None, feed)


def open_onnxruntime(data: str | bytes, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    session = onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)


def open_openvino(data: str | bytes, threads: int) -> Run:
    import openvino

    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
    }
    core = openvino.Core()
    request = core.compile_model(core.read_model(data), "CPU", settings).create_infer_request()
    return lambda feed: [np.array(value) for value in request.infer(feed).values()]


OPEN = {"ours": open_ours, "onnxruntime": open_onnxruntime, "openvino": open_openvino}


def engines() -> list[str]:
    try:
        import openvino  # noqa: F401
    except ImportError:
        return ["ours", "onnxruntime"]
    return list(OPEN)


# --- in turns -----------------------------------------------------------------------------------


def agree(name: str, results: dict[str, list[np.ndarray]]) -> None:
    for engine, values in results.items():
        for mine, other in zip(results["ours"], values, strict=True):
            far = np.abs(mine - other).max() / max(np.abs(other).max(), 1e-6)
            if not far < 1e-3:
                raise SystemExit(f"{name}: ours is {far:.1e} from {engine}")


def in_turns(name: str, opened: dict[str, Run], feed: dict, rounds: int) -> dict:
    """The row of a file: milliseconds of each engine, and ours over the better of the others."""
    agree(name, {engine: run(feed) for engine, run in opened.items()})
    times: dict[str, list[float]] = {engine: [] for engine in opened}
    for _ in range(rounds + 1):
        for engine, run in opened.items():
            time.sleep(PAUSE)
            run(feed)
            counted, began = 0, time.perf_counter()
            while counted < 2 or time.perf_counter() - began < SHARE:
                run(feed)
                counted += 1
            times[engine].append((time.perf_counter() - began) / counted * 1e3)
    times = {engine: taken[1:] for engine, taken in times.items()}  # the first round warms
    others = [min(pair) for pair in zip(*(t for e, t in times.items() if e != "ours"), strict=True)]
    ratios = sorted(mine / other for mine, other in zip(times["ours"], others, strict=True))
    row = {"row": name} | {engine: statistics.median(taken) for engine, taken in times.items()}
    quarter = len(ratios) // 4
    return row | {
        "ratio": statistics.median(ratios),
        "from": ratios[quarter],
        "to": ratios[len(ratios) - 1 - quarter],
    }


def speed(asked: argparse.Namespace) -> list[dict]:
    from inference_models import export, feed_of

    found = []
    for name in asked.rows or ROWS:
        model, batch, length = ROWS[name]
        path = str(export(model, asked.folder))
        opened = {engine: OPEN[engine](path, asked.threads) for engine in engines()}
        found.append(in_turns(name, opened, feed_of(model, batch, length), asked.rounds))
        print(text_of(found[-1]), flush=True)
    return found


def call(asked: argparse.Namespace) -> list[dict]:
    """A file of one Add of four numbers: what a run takes beside its work."""
    from onnx import TensorProto, helper

    port = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xyz"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "y"], ["z"])], "g", port[:2], port[2:])
    opsets = [helper.make_opsetid("", 17)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    opened = {
        engine: OPEN[engine](data, asked.threads) for engine in engines() if engine != "openvino"
    }
    feed = {name: np.ones(4, np.float32) for name in "xy"}
    row = in_turns("one Add", opened, feed, asked.rounds)
    print(text_of(row), flush=True)
    return [row]


def text_of(row: dict) -> str:
    times = ", ".join(f"{engine} {row[engine]:.3f} ms" for engine in OPEN if engine in row)
    return f"{row['row']}: {times}; ratio {row['ratio']:.2f} ({row['from']:.2f} to {row['to']:.2f})"


# --- in fresh processes -------------------------------------------------------------------------


def resident() -> float:
    """Megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


def fresh_open(engine: str, path: str, threads: int) -> dict:
    """Seconds, after another file has loaded the engine."""
    from onnx import TensorProto, helper

    port = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", port[:1], port[1:])
    opsets = [helper.make_opsetid("", 17)]
    small = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    OPEN[engine](small.SerializeToString(), threads)
    began = time.perf_counter()
    OPEN[engine](path, threads)
    return {"seconds": time.perf_counter() - began}


def fresh_memory(engine: str, path: str, threads: int) -> dict:
    """What one session holds after a run, and what a second one adds, over the file's bytes."""
    from inference_models import feed_of

    feed, size = feed_of("bert", 1, 128), os.path.getsize(path) / 2**20
    __import__({"ours": "ortmodule"}.get(engine, engine))
    begun = resident()
    first = OPEN[engine](path, threads)
    first(feed)
    one = resident()
    second = OPEN[engine](path, threads)
    second(feed)
    return {"one": (one - begun) / size, "second": (resident() - one) / size}


def fresh_lengths(engine: str, path: str, threads: int) -> dict:
    """Megabytes from the 200th to the 2,000th length."""
    from inference_models import feed_of

    run = OPEN[engine](path, threads)
    begun = 0.0
    for i in range(2000):
        run(feed_of("mini_lm", 1 + i // 500, 1 + i % 500))
        if i == 199:
            begun = resident()
    return {"megabytes": resident() - begun}


FRESH = {
    "open": (fresh_open, "bert"),
    "memory": (fresh_memory, "bert"),
    "lengths": (fresh_lengths, "mini_lm"),
}


def in_fresh_processes(kind: str, asked: argparse.Namespace) -> list[dict]:
    from inference_models import export

    path = str(export(FRESH[kind][1], asked.folder))
    rounds = 1 if kind == "lengths" else max(asked.rounds // 3, 3)
    found: dict[str, list[dict]] = {engine: [] for engine in engines()}
    for _ in range(rounds):
        for engine, rows in found.items():
            command = [sys.executable, __file__, "--fresh", kind, engine, path, str(asked.threads)]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            rows.append(json.loads(done.stdout.splitlines()[-1]))
    table = []
    for engine, rows in found.items():
        row = {key: statistics.median(r[key] for r in rows) for key in rows[0]}
        table.append({"row": kind, "engine": engine} | row)
        figures = ", ".join(f"{key} {value:.2f}" for key, value in row.items())
        print(f"{kind}, {engine}: {figures}", flush=True)
    return table


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((x.split(": ")[1] for x in lines if x.startswith("model name")), platform.machine())


def main() -> None:
    if sys.argv[1:2] == ["--fresh"]:
        kind, engine, path, threads = sys.argv[2:]
        print(json.dumps(FRESH[kind][0](engine, path, int(threads))))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="*", choices=ROWS)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=Path("build/inference"))
    parser.add_argument("--json", type=Path, help="where to write the rows")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = str(asked.threads)
    print(f"{processor()}, {asked.threads} threads, {', '.join(engines())}")
    table = []
    for kind in asked.kinds:
        run = {"speed": speed, "call": call}.get(kind)
        table += run(asked) if run else in_fresh_processes(kind, asked)
    if asked.json:
        asked.json.write_text(json.dumps({"cpu": processor(), "rows": table}, indent=1))


if __name__ == "__main__":
    main()
