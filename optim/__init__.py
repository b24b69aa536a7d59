"""Fused optimizers, and `fuse`, which makes one of torch's ours.

`from ortmodule.optim import AdamW`; torch is loaded with the first use.
"""

from .._lazy import lazily

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

__getattr__, __dir__ = lazily(__name__, _HOMES)
