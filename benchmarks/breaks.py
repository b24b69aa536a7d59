"""What one break costs: BERT-base with `if loss > 1e9` in its middle, against BERT-base whole.

Whole steps of both, interleaved in one process; first steps in fresh processes, with the share of
Dynamo, which cuts. Run: python benchmarks/breaks.py
"""

import argparse
import subprocess
import sys
import time
import warnings

import compare
import torch
from torch import nn

from ortmodule import ORTModule
from ortmodule.graph_breaks import dynamo

MIDDLE = 6


class Checked(nn.Module):
    """A layer whose result Python looks at."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, *args, **kwargs):
        result = self.layer(*args, **kwargs)
        loss = (result if isinstance(result, torch.Tensor) else result[0]).square().mean()
        if loss > 1e9:
            raise ValueError("the loss explodes")
        return result


def stepper(broken: bool):
    """A whole step."""
    torch.manual_seed(0)
    module, loss_of = compare.make("bert")
    if broken:
        layers = module.bert.encoder.layer
        layers[MIDDLE] = Checked(layers[MIDDLE])
    model = ORTModule(module)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step():
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()

    return step, model


def first_step(broken: bool) -> tuple[float, float]:
    """Seconds of the first step, and of these Dynamo's own."""
    spent, cut = [0.0], dynamo._Convert.__call__

    def timed(*args):
        start = time.perf_counter()
        try:
            return cut(*args)
        finally:
            spent[0] += time.perf_counter() - start

    dynamo._Convert.__call__ = timed
    step, _ = stepper(broken)
    start = time.perf_counter()
    step()
    return time.perf_counter() - start, spent[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--first", choices=["whole", "broken"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.first:
        print(*first_step(given.first == "broken"))
        return
    print(f"{compare.processor()}, torch {torch.__version__}")
    steps, models = {}, {}
    for name in ("whole", "broken"):
        steps[name], models[name] = stepper(name == "broken")
    seconds = compare.interleave(steps, given.rounds, 2, 1)
    ratios = [b / a for a, b in zip(seconds["whole"], seconds["broken"], strict=True)]
    print(compare.show(compare.rows("BERT-base: whole step (ms)", seconds, 1e3)))
    print("broken over whole:", compare.spread(ratios))
    print(models["broken"].explain())
    for name in ("whole", "broken"):
        for _ in range(max(1, given.rounds // 3)):
            command = [sys.executable, __file__, "--first", name]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            total, cut = map(float, done.stdout.split()[-2:])
            print(f"first step, {name}: {total:.1f} s, of these {cut:.1f} s in Dynamo", flush=True)


if __name__ == "__main__":
    main()
