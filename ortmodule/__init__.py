"""PyTorch training and ONNX inference in one C++ engine.

`import ortmodule` loads neither torch nor the engine: each name below loads its module at first
use, so that InferenceSession works without torch installed. `import ortmodule as ort` serves what
was written for onnxruntime: ortmodule.inference has its names.
"""

from . import inference
from ._lazy import lazily

__version__ = "0.1.0"

# public name -> module that defines it
_PUBLIC = {
    "ORTModule": "module",
    "Options": "options",
    "Report": "explain",
    "Fallback": "explain",
    "Step": "explain",
    "custom_op": "custom_ops",
    "TensorType": "custom_ops",
    **dict.fromkeys(inference.PUBLIC, "inference"),
}

__all__ = list(_PUBLIC)

__getattr__, __dir__ = lazily(__name__, _PUBLIC)
