"""Where the first step of a model goes: processor time of each phase, in a fresh process a model.

A phase is the time of the functions of PHASES less that of the phases within them, by the
processor's clock of the whole process, so other work on the machine counts little. `second step`
is what a step takes once all is made: what `first run` has beside it a first run costs. `--other`
takes another checkout in turn (as before.py), `--layers 8 32` Llamas of these depths.
"""

import argparse
import contextlib
import functools
import importlib
import json
import pathlib
import statistics
import subprocess
import sys
import time

import compare
import models
import torch
from torch.nn import functional

HERE = pathlib.Path(__file__).resolve().parents[1]
# phase: the functions, as module and name, whose time it is.
PHASES = {
    "look": ["ortmodule.capture.stages.admit", "ortmodule.capture.stages.seen_in"],
    "fake run": ["ortmodule.capture.stages.fake_run"],
    "trace": ["ortmodule.capture.stages.trace"],
    "guard": ["ortmodule.capture.stages.Snapshot"],
    "name": ["ortmodule.capture.stages.names_of_sizes", "ortmodule.capture.stages.name"],
    "translate": ["ortmodule.capture.stages.translate"],
    "finish": ["ortmodule.capture.stages.finish"],
    "around": ["ortmodule.dispatch.making.capture"],
    "compile": ["ortmodule.dispatch.making.CompiledCapture"],
    "prepare": ["ortmodule.dispatch.compiled.CompiledCapture.plan_for"],
}


def efficientnet(batch: int = 8):
    """torchvision's EfficientNet-B0 at 224 x 224; cross entropy outside of the module."""
    import torchvision

    x, y = torch.randn(batch, 3, 224, 224), torch.randint(0, 1000, (batch,))
    module = torchvision.models.efficientnet_b0()
    return module, lambda model: functional.cross_entropy(model(x), y)


def llama(layers: int):
    """LoRA of rank 8 on q and v, narrow: what grows with depth is the building."""
    sizes = {"width": 256, "hidden": 512, "heads": 8, "groups": 4}
    return models._lora(1, 32, 0.05, layers=layers, **sizes)


def swept(name: str):
    """A model of tools/sweep.py, as "timm/tf_efficientnet_b0"."""
    sys.path.insert(0, str(HERE / "tools"))
    import architectures
    import sweep

    module, inputs = sweep.models()[name]()
    return module, lambda model: architectures.loss_of(model(**inputs))


def workload(name: str):
    if "/" in name:
        return swept(name)
    if name == "efficientnet":
        return efficientnet()
    if name.startswith("llama") and name not in models.MODELS:
        return llama(int(name.removeprefix("llama")))
    return compare.make(name)


class Phases:
    """Seconds of each phase, that of the phases within it left out."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inside = [0.0]

    @contextlib.contextmanager
    def phase(self, name: str):
        self._inside.append(0.0)
        began = time.process_time()
        try:
            yield
        finally:
            took = time.process_time() - began
            self.seconds[name] = self.seconds.get(name, 0.0) + took - self._inside.pop()
            self._inside[-1] += took

    def wrap(self, name: str, path: str) -> None:
        home, _, function = path.rpartition(".")
        try:
            owner = importlib.import_module(home)
        except ModuleNotFoundError:  # a class
            module, _, kind = home.rpartition(".")
            owner = getattr(importlib.import_module(module), kind)
        inner = getattr(owner, function)

        @functools.wraps(inner, updated=())
        def timed(*args, **kwargs):
            with self.phase(name):
                return inner(*args, **kwargs)

        setattr(owner, function, timed)


def serve(name: str) -> dict[str, float]:
    """The phases of the first step, in this process."""
    torch.manual_seed(0)
    module, loss_of = workload(name)
    model = compare.wrap("ours", module)
    model.train()
    phases = Phases()
    for phase, paths in PHASES.items():
        for path in paths:
            phases.wrap(phase, path)
    began = time.process_time()
    with phases.phase("first run"):
        loss_of(model).backward()
    first, began = time.process_time() - began, time.process_time()
    loss_of(model).backward()
    second = time.process_time() - began
    assert model.explain().captures, model.explain()
    return {"first step": first, **phases.seconds, "second step": second}


def measured(root: pathlib.Path, name: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--serve", str(root), name]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    known = ["bert", "gpt2", "vit", "resnet50", "efficientnet", "llama12", "t5"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", nargs="+", default=known, help="or others of compare.py and tools/sweep.py"
    )
    parser.add_argument("--layers", nargs="+", type=int, help="Llamas of these depths instead")
    parser.add_argument("--other", type=pathlib.Path, help="a built earlier checkout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        sys.path.insert(0, given.serve[0])
        print(json.dumps(serve(given.serve[1])))
        return
    print(f"{compare.processor()}, torch {torch.__version__}; seconds of processor time, medians")
    names = [f"llama{n}" for n in given.layers] if given.layers else given.only
    builds = {"now": HERE} | ({"before": given.other.resolve()} if given.other else {})
    for name in names:
        taken: dict[str, list[dict]] = {build: [] for build in builds}
        for _ in range(given.rounds):
            for build, root in builds.items():
                taken[build].append(measured(root, name))
        for build, rounds in taken.items():
            middle = {key: statistics.median(r.get(key, 0) for r in rounds) for key in rounds[0]}
            shown = ", ".join(f"{key} {value:.2f}" for key, value in middle.items())
            print(f"{name} {build}: {shown}", flush=True)


if __name__ == "__main__":
    main()
