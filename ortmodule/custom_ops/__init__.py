"""Ops of ONNX files that a Python function of a user's computes.

In: functions over numpy arrays; out: entries in the set of ops that files may have, which a session
takes as it is when it is opened.
Imports nothing of the other packages.
"""

from .registration import TensorType, custom_op

__all__ = ["TensorType", "custom_op"]
