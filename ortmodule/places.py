"""Places in the user's code, for the words of a refusal."""

import functools
import inspect
import os
import re
import sys
from typing import Any

import torch
from torch import nn

# Files of this package and of torch are no user's code; the separator, as torchvision is not torch.
PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")
TORCH = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def place_of(function: Any) -> dict[str, Any]:
    """The file and first line of a function, partial, bound method or callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)
    code = code or getattr(type(function).__call__, "__code__", None)
    return {"file": code.co_filename, "line": code.co_firstlineno} if code else {}


def user_place(frames: list[tuple[str, int]]) -> dict[str, Any]:
    """The last of (file, line) neither in torch nor here; the last of all if there is none."""
    own = [f for f in frames if not f[0].startswith((PACKAGE, TORCH)) and f[0][:1] != "<"]
    found = own or frames
    return {"file": found[-1][0], "line": found[-1][1]} if found else {}


@functools.lru_cache(maxsize=4096)
def traced_place(trace: str) -> dict[str, Any]:
    """The line of the user's code in the text of a stack."""
    return user_place([(file, int(line)) for file, line in _FRAME.findall(trace)])


def caller_place() -> dict[str, Any]:
    """Where in the user's code the running call comes from. (inspect.stack would look through all
    modules, and so run code of theirs.)"""
    frames, frame = [], sys._getframe(1)
    while frame is not None:
        frames.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return user_place(frames[::-1])


def callers_level() -> int:
    """The stacklevel that warns for the caller's line in the user's code."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith((PACKAGE, TORCH)):
        frame, level = frame.f_back, level + 1
    return level


def error_place(error: BaseException) -> dict[str, Any]:
    """The deepest line of the user's code in an error's traceback."""
    frames, trace = [], error.__traceback__
    while trace is not None:
        frames.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    return user_place(frames)


def place_of_forward(module: nn.Module) -> dict[str, Any]:
    """The module's class, and where its forward begins."""
    return {"module": type(module).__name__, **place_of(type(module).forward)}
