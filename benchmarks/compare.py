"""`make bench`: eager, torch.compile (--compile) and ORTModule on the same work, as table and JSON.

Steps of all engines are interleaved in one process, each warmed first; a ratio is eager's time over
the engine's in the same round. First step, peak memory and the plan for a new batch size are taken
in a fresh process each. `right` is no timing: one training step of every model at its real size, in
a fresh process, must give eager's loss and gradients.
"""

import argparse
import copy
import json
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import torch
from models import MODELS
from optimizers import OPTIMIZERS

# name: (whole step with the optimizer?, steps a round)
STEPS = dict.fromkeys(MODELS, (True, 1)) | {"mlp": (False, 200), "linear": (False, 10)}
RUN_LOOP = pathlib.Path(__file__).parents[1] / "build/current/run_loop"
KINDS = (
    "bert",
    "mlp",
    "adamw",
    "clip",
    "streams",
    "sgd",
    "lamb",
    "tiny",
    "first",
    "memory",
    "resize",
    "loop",
    "right",
)
HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
AUTOCAST: list[str] = []  # the dtype that all steps run under, if any


def make(name: str, **sizes):
    """A workload's module and its loss, under autocast where that is asked for."""
    module, loss_of = MODELS[name](**sizes)
    if not AUTOCAST:
        return module, loss_of

    def cast_loss_of(model):
        with torch.autocast("cpu", HALVES[AUTOCAST[0]]):
            return loss_of(model)

    return module, cast_loss_of


def wrap(engine: str, module: torch.nn.Module) -> torch.nn.Module:
    """The module as one engine runs it."""
    if engine == "compile":
        return torch.compile(module)
    if engine in ("ours", "attached"):
        from ortmodule import ORTModule

        return ORTModule(module)
    return module


def stepper(engine: str, name: str, whole: bool):
    """A function that does one step: zero_grad, forward, loss, backward and, if whole, AdamW."""
    torch.manual_seed(0)
    module, loss_of = make(name)
    model = wrap(engine, module)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    if engine == "attached":
        model.attach(optimizer)

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
    """Seconds a step of each engine."""
    whole, repeat = STEPS[workload]
    steps = {engine: stepper(engine, workload, whole) for engine in engines}
    under = "".join(f", {dtype} autocast" for dtype in AUTOCAST)
    label = f"{workload}: {'whole step' if whole else 'forward+loss+backward'}{under} (ms)"
    return rows(label, interleave(steps, rounds, warm, repeat), 1e3)


def compare_optimizers(what: str, rounds: int, warm: int) -> list[dict]:
    """Seconds an optimizer step of each engine of OPTIMIZERS; others are compared to the first."""
    sizes_of, label, makers = OPTIMIZERS[what]
    steps = {}
    for engine, maker in makers.items():
        torch.manual_seed(0)
        params = [torch.nn.Parameter(torch.randn(size)) for size in sizes_of()]
        for p in params:
            p.grad = torch.randn_like(p)
        steps[engine] = maker(params).step
    return rows(f"{what}: {label} (ms)", interleave(steps, rounds, warm, 1), 1e3)


def interleave(
    steps: dict, rounds: int, warm: int, repeat: int, clock=time.perf_counter
) -> dict[str, list[float]]:
    """Seconds a step of each engine, in rounds whose order turns."""
    for step in steps.values():
        for _ in range(warm):
            step()
    seconds = {engine: [] for engine in steps}
    engines = list(steps)
    for turn in range(rounds):
        for engine in engines[turn % len(engines) :] + engines[: turn % len(engines)]:
            start = clock()
            for _ in range(repeat):
                steps[engine]()
            seconds[engine].append((clock() - start) / repeat)
    return seconds


def compare_fresh(kind: str, engines: list[str], rounds: int) -> list[dict]:
    """One number from each fresh process, BERT-base; see the functions of FRESH."""
    numbers = {engine: [] for engine in engines}
    for _ in range(rounds):
        for engine in engines:
            command = fresh(kind, engine)
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            numbers[engine].append(float(done.stdout.split()[-1]))
            print(f"{kind}, {engine}: {numbers[engine][-1]:.2f}", file=sys.stderr, flush=True)
    return rows(FRESH[kind].__doc__.split(":")[0], numbers, 1)


def fresh(kind: str, what: str) -> list[str]:
    """The command that takes one number in a fresh process."""
    under = ["--autocast", *AUTOCAST] if AUTOCAST else []
    return [sys.executable, __file__, *under, "--fresh", kind, what]


def run_loop(rounds: int) -> list[dict]:
    """What the run loop itself takes for a step: kernels that do nothing, three operands each."""
    runs = [subprocess.run([RUN_LOOP], stdout=subprocess.PIPE, check=True) for _ in range(rounds)]
    return rows("run loop (ns a step)", {"ours": [float(done.stdout) for done in runs]}, 1)


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
    module, loss_of = make("bert")
    model = wrap(engine, module)
    model.train()
    start = time.perf_counter()
    loss_of(model).backward()
    return time.perf_counter() - start


def peak_memory(engine: str) -> float:
    """peak memory of BERT-base (MB): VmHWM after five whole steps less the RSS after imports"""
    from transformers import BertForSequenceClassification  # noqa: F401 excluded, as all imports

    if engine in ("ours", "attached"):
        wrap(engine, torch.nn.Identity())
    before = status("VmRSS")
    step = stepper(engine, "bert", True)
    for _ in range(5):
        step()
    return status("VmHWM") - before


def new_batch(engine: str) -> float:
    """plan for a new batch size of BERT-base (ms): without a new capture, the engine's timer"""
    module, loss_of = make("bert", batch=8)
    model = wrap(engine, module)
    model.train()
    loss_of(model).backward()
    _, loss_of = make("bert", batch=6)
    loss_of(model).backward()
    report = model.explain()
    assert report.captures == 1 and report.plans == 2, report
    return report.planned_ms


FRESH = {"first": first_step, "memory": peak_memory, "resize": new_batch}


# --- as eager at real sizes -----------------------------------------------------------------------


def check_right(name: str) -> str:
    """One step of both engines on the same weights: the loss and the gradients must agree.

    A tensor agrees within rtol 1e-4 and atol 1e-5, or when it is no farther from float64's than
    twice eager's is. Returns a line of figures; raises AssertionError.
    """
    torch.manual_seed(0)
    module, loss_of = make(name, dropout=0.0)
    module.train()
    state = copy.deepcopy(dict(module.named_buffers()))
    theirs = one_step(module, module, loss_of)
    module.load_state_dict(state, strict=False)
    model = wrap("ours", module)
    mine = one_step(module, model, loss_of)
    report = model.explain()
    assert not report.reasons(), report
    apart = sum((mine[key] - expected).norm() ** 2 for key, expected in theirs.items())
    apart = (apart / sum(expected.norm() ** 2 for expected in theirs.values())).sqrt().item()
    unsure = [
        key
        for key, expected in theirs.items()
        if not torch.allclose(mine[key], expected, rtol=1e-4, atol=1e-5)
    ]
    if unsure:
        module.load_state_dict(state, strict=False)
        exact = one_step_in_double(module, loss_of)
        for key in unsure:
            far, limit = (mine[key] - exact[key]).norm(), (theirs[key] - exact[key]).norm()
            limit = 2 * limit + 1e-7 * exact[key].norm()
            assert far <= limit, f"{name}: {key} is {far:.3e} from float64, allowed {limit:.3e}"
    return (
        f"{name}: {len(theirs)} tensors agree, {len(unsure)} by float64, relative distance of all "
        f"{apart:.1e}; {sum(report.providers.values())} steps on {', '.join(report.providers)}"
    )


def one_step(module: torch.nn.Module, model: torch.nn.Module, loss_of) -> dict:
    """The loss and the gradients of one step, which the module has no more afterwards."""
    module.zero_grad(set_to_none=True)
    loss = loss_of(model)
    loss.backward()
    found = {k: p.grad for k, p in module.named_parameters() if p.grad is not None}
    module.zero_grad(set_to_none=True)
    return {"the loss": loss.detach()} | found


def one_step_in_double(module: torch.nn.Module, loss_of) -> dict:
    """The same in float64: the module is converted, floating inputs on their way in."""

    def widen(_, args, kwargs):
        return torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda t: t.double() if t.is_floating_point() else t, (args, kwargs)
        )

    module.double().register_forward_pre_hook(widen, with_kwargs=True)
    return one_step(module, module, loss_of)


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
    parser.add_argument("--only", nargs="+", choices=[*KINDS, *MODELS], default=KINDS)
    parser.add_argument("--compile", action="store_true", help="torch.compile too: takes minutes")
    parser.add_argument(
        "--rounds", type=int, default=15, help="of steps; a fifth of fresh processes"
    )
    parser.add_argument("--autocast", choices=HALVES, help="the dtype that steps run under")
    parser.add_argument("--warm", type=int, default=3, help="steps before the clock starts")
    parser.add_argument("--json", type=pathlib.Path, default=pathlib.Path("out/bench.json"))
    parser.add_argument("--fresh", nargs=2, metavar=("KIND", "ENGINE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    AUTOCAST[:] = [given.autocast] if given.autocast else []
    if given.fresh:
        kind, what = given.fresh
        print(check_right(what) if kind == "right" else FRESH[kind](what))
        return
    if "loop" in given.only and not RUN_LOOP.exists():
        parser.error(f"{RUN_LOOP} is missing: `make bench` builds it")
    engines = ["eager", "compile", "ours"] if given.compile else ["eager", "ours"]
    table = []
    print(f"{processor()}, torch {torch.__version__}")
    for kind in given.only:
        if kind == "right":
            for name in MODELS:
                subprocess.run(fresh(kind, name), check=True)
        elif kind == "loop":
            table += run_loop(given.rounds)
        elif kind in STEPS:
            table += compare_steps(kind, engines, given.rounds, given.warm)
        elif kind in OPTIMIZERS:
            table += compare_optimizers(kind, given.rounds, given.warm)
        else:
            which = {"resize": ["ours"], "memory": [*engines, "attached"]}.get(kind, engines)
            table += compare_fresh(kind, which, max(1, given.rounds // 5))
    print(show(table))
    given.json.parent.mkdir(parents=True, exist_ok=True)
    facts = {"cpu": processor(), "torch": torch.__version__, "command": sys.argv, "rows": table}
    given.json.write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
