"""The same function run with onnxruntime and with ortmodule in its place. Used by this folder."""

import builtins
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from onnx import parser

import ortmodule
from ortmodule.inference import errors

onnxruntime.set_default_logger_severity(4)
HEAD = '<ir_version: 9, opset_import: ["" : 17]> g '


def model(text: str, head: str = HEAD) -> bytes:
    return parser.parse_model(head + text).SerializeToString()


TWICE = model("(float[n, 3] x) => (float[n, 3] y) { y = Add(x, x) }")
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def plain(value: Any) -> Any:
    """A value that compares: enumerations as numbers, arrays with their dtype."""
    if isinstance(value, np.ndarray):
        return "array", value.dtype.name, value.shape, value.tolist()
    if isinstance(value, list | tuple):
        return [plain(x) for x in value]
    if isinstance(value, dict):
        return {key: plain(x) for key, x in value.items()}
    if hasattr(value, "value") and hasattr(value, "name"):
        return value.name, int(value)
    return value


def outcome(script: Callable, ort: Any) -> tuple[str, Any]:
    """What the script gives or raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return "gives", plain(script(ort))
        except Exception as error:
            return "raises", error


def is_of_kind(error: Exception, name: str) -> bool:
    """Whether a handler that names the class `name` catches it."""
    expected = getattr(errors, name, None) or getattr(builtins, name)
    return isinstance(error, expected)


def check_alike(script: Callable) -> None:
    """Both give the same, or raise what the same handler catches."""
    how, theirs = outcome(script, onnxruntime)
    mine, ours = outcome(script, ortmodule)
    assert mine == how, (theirs, ours)
    if how == "gives":
        assert ours == theirs
    else:
        assert is_of_kind(ours, type(theirs).__name__), (theirs, ours)
        assert "\n" not in str(ours)


def ports(arguments: Any) -> list[tuple]:
    return [(given.name, given.type, list(given.shape)) for given in arguments]
