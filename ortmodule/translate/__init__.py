"""ATen graphs of torch.export to our Graph: one file a family of ops, one table of all rules.

capture.py calls `translate`. A rule is a function `rule(t, x, ...)` that takes the op's arguments,
tensors as Values, and returns its results; `t` (context.py) emits nodes.
"""

from . import (  # noqa: F401  each file adds its rules to the table
    activation,
    attention,
    collective,
    control,
    conv,
    create,
    elementwise,
    index,
    late,
    loss,
    matmul,
    norm,
    pool,
    quantized,
    random,
    reduce,
    rnn,
    scatter,
    shape,
    softmax,
    strided,
)
from .translator import Translated, translate

__all__ = ["Translated", "translate"]
