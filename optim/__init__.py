"""Fused optimizers. `from ortmodule.optim import AdamW`; torch is loaded with the first use."""

__all__ = ["AdamW"]


def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"module 'ortmodule.optim' has no attribute {name!r}")
    from .adamw import AdamW

    globals()[name] = AdamW
    return AdamW
