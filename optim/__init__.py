"""Fused optimizers, and `fuse`, which makes one of torch's ours.

`from ortmodule.optim import AdamW`; torch is loaded with the first use.
"""

import importlib

_HOMES = {
    "Adafactor": "adafactor",
    "Adam": "adam",
    "AdamW": "adamw",
    "GradScaler": "scaler",
    "LAMB": "lamb",
    "Lion": "lion",
    "Muon": "muon",
    "SGD": "sgd",
    "fuse": "fusion",
}
__all__ = list(_HOMES)


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module 'ortmodule.optim' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value
