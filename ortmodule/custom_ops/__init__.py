"""Ops of ONNX files that a Python function computes: a user's, and those that are so here.

In: functions over numpy arrays; out: entries in the set of ops that files may have, which a session
takes as it is when it is opened.
Imports nothing of the other packages.
"""

from .image_decoder import image_decoder
from .registration import TensorType, custom_op

__all__ = ["TensorType", "custom_op", "image_decoder"]
