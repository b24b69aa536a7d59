"""What `make gpu` runs on a machine with a GPU: device, op table, models, speed, profile.

Each stage writes its results as lines of JSON to a file as it goes; a failure stops none.
STAGE=models picks one."""

import functools
import json
import os
import pathlib
import subprocess
import sys
import time
import traceback
from collections.abc import Callable

import torch
from torch import nn

HERE = pathlib.Path(__file__).resolve().parents[2]
OUT = pathlib.Path(os.environ.get("OUT", "."))
sys.path[:0] = [str(HERE / "tests" / folder) for folder in ("models", "far")]

from ortmodule import Options, ORTModule  # noqa: E402

ON_GPU = ("cuda", "aten", "cpu")
MODELS = ("mlp", "bert", "gpt2", "t5", "vit", "llama_lora", "resnet50", "lstm")


def say(stage: str, **what) -> None:
    """One line of results."""
    line = json.dumps({"stage": stage, **what})
    with open(OUT / "gpu.jsonl", "a") as file:
        file.write(line + "\n")
    print(line[:700], flush=True)


def device() -> None:
    """The card, its driver, and the rate of a copy."""
    card = torch.cuda.get_device_properties(0)
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True).stdout.strip()
    x = torch.empty(1 << 28, device="cuda")
    y = torch.empty_like(x)
    rate = 2 * x.nbytes / microseconds(lambda: y.copy_(x), 20) / 1e3
    say("device", name=card.name, driver=driver, torch=torch.__version__, copy_gb_s=rate)


def table() -> None:
    """The op table's cases that the provider takes, against torch in float64."""
    command = [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib", "-n", "14"]
    command += ["-p", "no:cacheprovider", "tests/ops/test_cuda.py"]
    alone = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{HERE}/tools/gpu:{HERE}"}
    run = subprocess.run(command, capture_output=True, text=True, cwd=HERE, env=alone)
    (OUT / "table.log").write_text(run.stdout + run.stderr)
    failed = [line[:200] for line in run.stdout.splitlines() if line.startswith("FAILED")]
    say("table", result=run.stdout.strip().splitlines()[-1], failed=failed[:10])


def models() -> None:
    """Five steps of training with torch's tensors on the GPU, against eager there."""
    from trained import build, losses

    for name in MODELS:
        try:
            module, batch = build(name, dropout=0.0)
            batch = {key: value.cuda() for key, value in batch.items()}
            expected = losses(name, module.cuda(), batch)
            model = ORTModule(build(name, dropout=0.0)[0].cuda(), Options("error", ON_GPU))
            begin = time.time()
            found = losses(name, model, batch)
            seconds = time.time() - begin
            worst = max(abs(a - b) for a, b in zip(found, expected, strict=True))
            report = model.explain()
            host = sorted({s.name for s in report.steps if s.provider == "cpu"})
            say("model", name=name, worst=worst, loss=found[-1], providers=report.providers,
                on_host=host, seconds=seconds)  # fmt: skip
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:1000]
            say("model failed", name=name, error=text, trace=traceback.format_exc()[-600:])


class Block(nn.Module):
    """Layer norm, linear, GELU, linear, and a way around."""

    def __init__(self, width: int):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def microseconds(step: Callable, times: int) -> float:
    """Of a step by events, after three that are not counted."""
    for _ in range(3):
        step()
    begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
    torch.cuda.synchronize()
    begin.record()
    for _ in range(times):
        step()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / times * 1e3


def trained_step(model: nn.Module, run: Callable) -> None:
    """One step without an optimizer."""
    run(model).backward()
    for parameter in model.parameters():
        parameter.grad = None


def gpt2(dtype: torch.dtype) -> tuple[nn.Module, Callable]:
    """Twelve layers, 8 sequences of 512."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    ids = torch.randint(0, 50257, (8, 512), device="cuda")
    model = GPT2LMHeadModel(config).cuda().to(dtype)
    return model, lambda m: m(input_ids=ids, labels=ids).loss


def blocks(dtype: torch.dtype) -> tuple[nn.Module, Callable]:
    """Six blocks of width 1024 over 8192 rows."""
    x = torch.randn(8192, 1024, device="cuda", dtype=dtype)
    model = nn.Sequential(*[Block(1024) for _ in range(6)]).cuda().to(dtype)
    return model, lambda m: m(x).float().square().mean()


def speed() -> None:
    """A training step by eager, by torch.compile, and ours."""
    for name, make in (("blocks", blocks), ("gpt2", gpt2)):
        for dtype in (torch.float32, torch.bfloat16):
            try:
                torch.manual_seed(0)
                model, run = make(dtype)
                times = {}
                ours = ORTModule(model, Options("error", ON_GPU))
                for way, module in (
                    ("eager", model), ("ours", ours), ("compile", torch.compile(model)),
                ):  # fmt: skip
                    step = functools.partial(trained_step, module, run)
                    times[way] = microseconds(step, 10)
                    say("speed so far", model=name, dtype=str(dtype), **times)
                say("speed", model=name, dtype=str(dtype), **times,
                    providers=ours.explain().providers)  # fmt: skip
            except Exception as error:
                text = f"{type(error).__name__}: {error}"[:1000]
                say("speed failed", model=name, dtype=str(dtype), error=text)


def profile() -> None:
    """Kernels of a step of blocks in bfloat16, by time."""
    from torch.profiler import ProfilerActivity

    model, run = blocks(torch.bfloat16)
    ours = ORTModule(model, Options("error", ON_GPU))
    for _ in range(3):
        trained_step(ours, run)
    with torch.profiler.profile(activities=[ProfilerActivity.CUDA]) as prof:
        for _ in range(3):
            trained_step(ours, run)
        torch.cuda.synchronize()
    found = sorted(prof.key_averages(), key=lambda e: -e.self_device_time_total)[:12]
    say("profile", kernels=[(e.key[:60], e.count, e.self_device_time_total) for e in found])


def main() -> None:
    wanted = os.environ.get("STAGE", "device table models speed profile").split()
    for stage in (device, table, models, speed, profile):
        if stage.__name__ not in wanted:
            continue
        begin = time.time()
        try:
            stage()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:1000]
            say(f"{stage.__name__} failed", error=text, trace=traceback.format_exc()[-800:])
        say(f"{stage.__name__} ended", seconds=round(time.time() - begin, 1))


if __name__ == "__main__":
    main()
