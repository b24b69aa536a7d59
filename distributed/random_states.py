"""The random states of a process: Python's, numpy's, torch's and its GPU's. For checkpointer.py."""

import random
from typing import Any

import numpy as np
import torch


def take() -> dict[str, Any]:
    kind, keys, *rest = np.random.get_state()
    found = {
        "python": random.getstate(),
        "numpy": (kind, torch.from_numpy(keys.astype(np.int64)), *rest),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_rng_state()
    return found


def put(found: dict[str, Any]) -> None:
    random.setstate(found["python"])
    kind, keys, *rest = found["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(found["torch"])
    if "cuda" in found and torch.cuda.is_available():
        torch.cuda.set_rng_state(found["cuda"])
