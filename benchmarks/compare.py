"""`make bench`: eager, torch.compile (--compile) and ORTModule on the same work, as table and JSON.

Steps of all engines are interleaved in one process, each warmed first; a ratio is eager's time over
the engine's in the same round. First step and peak memory are taken in a fresh process each.
"""

import argparse
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import torch
from models import MODELS

# name: (model, whole step with the optimizer?, steps a round)
STEPS = {"bert": ("bert", True, 1), "mlp": ("mlp", False, 200)}
KINDS = ("bert", "mlp", "first", "memory", "resize")


def wrap(engine: str, module: torch.nn.Module) -> torch.nn.Module:
    """The module as one engine runs it."""
    if engine == "compile":
        return torch.compile(module)
    if engine == "ours":
        from ortmodule import ORTModule

        return ORTModule(module)
    return module


def stepper(engine: str, name: str, whole: bool):
    """A function that does one step: zero_grad, forward, loss, backward and, if whole, AdamW."""
    torch.manual_seed(0)
    module, loss_of = MODELS[name]()
    model = wrap(engine, module)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step():
        optimizer.zero_grad()
        loss_of(model).backward()
        if whole:
            optimizer.step()

    return step


def spread(values: list[float]) -> dict:
    """Median and quartiles."""
    ordered = sorted(values)
    low, middle, high = (
        statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else ordered * 3
    )
    return {"median": middle, "quartiles": [low, high]}


def compare_steps(workload: str, engines: list[str], rounds: int, warm: int) -> list[dict]:
    """Seconds a step of each engine, in interleaved rounds whose order turns."""
    name, whole, repeat = STEPS[workload]
    steps = {engine: stepper(engine, name, whole) for engine in engines}
    for step in steps.values():
        for _ in range(warm):
            step()
    seconds = {engine: [] for engine in engines}
    for turn in range(rounds):
        for engine in engines[turn % len(engines) :] + engines[: turn % len(engines)]:
            start = time.perf_counter()
            for _ in range(repeat):
                steps[engine]()
            seconds[engine].append((time.perf_counter() - start) / repeat)
    label = f"{workload}: {'whole step' if whole else 'forward+loss+backward'} (ms)"
    return rows(label, seconds, 1e3)


def compare_fresh(kind: str, engines: list[str], rounds: int) -> list[dict]:
    """One number from each fresh process, BERT-base; see the functions of FRESH."""
    numbers = {engine: [] for engine in engines}
    for _ in range(rounds):
        for engine in engines:
            command = [sys.executable, __file__, "--fresh", kind, engine]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            numbers[engine].append(float(done.stdout.split()[-1]))
            print(f"{kind}, {engine}: {numbers[engine][-1]:.2f}", file=sys.stderr, flush=True)
    return rows(FRESH[kind].__doc__.split(":")[0], numbers, 1)


def rows(label: str, values: dict[str, list[float]], scale: float) -> list[dict]:
    """A row an engine; the ratio is that of the rounds, eager over engine."""
    table = []
    for engine, numbers in values.items():
        row = {"what": label, "engine": engine} | spread([n * scale for n in numbers])
        if engine != "eager" and "eager" in values:
            pairs = zip(values["eager"], numbers, strict=True)
            row["eager_over_engine"] = spread([a / b for a, b in pairs])
        table.append(row)
    return table


# --- in a fresh process -------------------------------------------------------------------------


def status(field: str) -> float:
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def first_step(engine: str) -> float:
    """first step of BERT-base (s): from the first call to the return of the first backward"""
    module, loss_of = MODELS["bert"]()
    model = wrap(engine, module)
    model.train()
    start = time.perf_counter()
    loss_of(model).backward()
    return time.perf_counter() - start


def peak_memory(engine: str) -> float:
    """peak memory of BERT-base (MB): VmHWM after five whole steps less the RSS after imports"""
    from transformers import BertForSequenceClassification  # noqa: F401 excluded, as all imports

    if engine == "ours":
        wrap(engine, torch.nn.Identity())
    before = status("VmRSS")
    step = stepper(engine, "bert", True)
    for _ in range(5):
        step()
    return status("VmHWM") - before


def new_batch(engine: str) -> float:
    """new batch size of BERT-base (s): what its first step takes more than its third"""
    module, loss_of = MODELS["bert"](batch=8)
    model = wrap(engine, module)
    model.train()
    loss_of(model).backward()
    _, loss_of = MODELS["bert"](batch=6)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        loss_of(model).backward()
        seconds.append(time.perf_counter() - start)
    return seconds[0] - seconds[2]


FRESH = {"first": first_step, "memory": peak_memory, "resize": new_batch}


# --- the command --------------------------------------------------------------------------------


def processor() -> str:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {torch.get_num_threads()} threads"


def show(table: list[dict]) -> str:
    """The rows as text: median, quartiles, ratio and its quartiles."""
    lines = [f"{'':56}{'median':>10}{'quartiles':>20}{'eager/it':>10}{'quartiles':>16}"]
    for row in table:
        low, high = row["quartiles"]
        line = f"{row['what'][:44]:46}{row['engine']:10}{row['median']:10.2f}"
        line += f"{f'{low:.2f} to {high:.2f}':>20}"
        if ratio := row.get("eager_over_engine"):
            low, high = ratio["quartiles"]
            line += f"{ratio['median']:10.2f}{f'{low:.2f} to {high:.2f}':>16}"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--compile", action="store_true", help="torch.compile too: takes minutes")
    parser.add_argument(
        "--rounds", type=int, default=15, help="of steps; a fifth of fresh processes"
    )
    parser.add_argument("--warm", type=int, default=3, help="steps before the clock starts")
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path("out/bench.json"))
    parser.add_argument("--fresh", nargs=2, metavar=("KIND", "ENGINE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fresh:
        print(FRESH[given.fresh[0]](given.fresh[1]))
        return
    engines = ["eager", "compile", "ours"] if given.compile else ["eager", "ours"]
    table = []
    print(f"{processor()}, torch {torch.__version__}")
    for kind in given.only:
        if kind in STEPS:
            table += compare_steps(kind, engines, given.rounds, given.warm)
        else:
            table += compare_fresh(kind, engines, max(1, given.rounds // 5))
    print(show(table))
    given.json.parent.mkdir(parents=True, exist_ok=True)
    facts = {"cpu": processor(), "torch": torch.__version__, "command": sys.argv, "rows": table}
    given.json.write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
