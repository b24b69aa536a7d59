"""ATen graphs of torch.export as graphs of ours: a file a family of ops, one table of all rules.

An exported program and its named inputs come in; a graph and where its results stand go out. A
rule is a function `rule(t, x, ...)` that takes the op's arguments, tensors as Values, and returns
its results; `t` (context.py) emits nodes.
Imports calls, records and side_effects.
"""

from . import rules  # noqa: F401  fills the table
from .translator import Translated, translate

__all__ = ["Translated", "translate"]
