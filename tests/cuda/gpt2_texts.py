"""GPT-2 of twelve layers: how long a first step without a run takes, how many texts it compiles.

Run by test_code_cache.py: what is compiled is kept where ORTMODULE_CACHE says. Prints JSON.
"""

import json
import pathlib
import sys
import time

import torch

sys.path[:0] = [str(pathlib.Path(__file__).parents[1] / name) for name in ("far", "cuda")]

import cuda_double  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402

from ortmodule import Options, ORTModule  # noqa: E402


def main() -> None:
    cuda_double.use_without_runs(cuda_double.nvrtc())
    module = GPT2LMHeadModel(GPT2Config(use_cache=False))
    model = ORTModule(module, Options("error", ("cuda", "aten", "cpu")))
    steps = []
    for batch in (8, 4):
        before, begin, used = cuda_double.compiled(), time.perf_counter(), time.process_time()
        ids = torch.randint(0, 50257, (batch, 512))
        model(input_ids=ids, labels=ids).loss.backward()
        seconds, cpu = time.perf_counter() - begin, time.process_time() - used
        compiled = cuda_double.compiled() - before
        steps.append({"compiled": compiled, "seconds": round(seconds, 2), "cpu": round(cpu, 2)})
    print(json.dumps({"steps": steps, "providers": model.explain().providers}))


if __name__ == "__main__":
    main()
