"""PyTorch training and ONNX inference in one C++ engine.

`import ortmodule` loads neither torch nor the engine: each name below loads its module at first
use, so that InferenceSession works without torch installed.
"""

import importlib

__version__ = "0.1.0"

# public name -> module that defines it
_PUBLIC = {
    "ORTModule": "module",
    "Options": "options",
    "Report": "explain",
    "Fallback": "explain",
    "Step": "explain",
    "InferenceSession": "inference",
}

__all__ = list(_PUBLIC)


def __getattr__(name):
    if name not in _PUBLIC:
        raise AttributeError(f"module 'ortmodule' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"ortmodule.{_PUBLIC[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted([*globals(), *_PUBLIC])
