"""The op table's vocabulary: an Op with its reference, samples and expected errors.

A float64 array in a sample stands for "the dtype under test"; every other array keeps its own.
"""

import dataclasses
import zlib
from collections.abc import Callable

import numpy as np

_drawn = 0  # arrays since the last sample


def _random(*what) -> np.random.Generator:
    """Numbers for the next array of a sample, by its place there and what it is: a sample's numbers
    stay as they are whatever stands before it."""
    global _drawn
    _drawn += 1
    return np.random.default_rng([_drawn, zlib.crc32(repr(what).encode())])


def _complete() -> None:
    """The next array is the first of another sample."""
    global _drawn
    _drawn = 0


def t(*shape, low=None, high=None) -> np.ndarray:
    """Normal numbers, or even ones between low and high."""
    random = _random("t", shape, low, high)
    if low is None:
        return np.asarray(random.standard_normal(shape))
    return np.asarray(random.uniform(low, high, shape))


def i(*shape, low=0, high=10, dtype="int64") -> np.ndarray:
    return np.asarray(_random("i", shape, low, high).integers(low, high, shape)).astype(dtype)


def b(*shape) -> np.ndarray:
    return np.asarray(_random("b", shape).integers(0, 2, shape)).astype(bool)


def special() -> np.ndarray:
    """Zeros of both signs, infinities, NaN, and numbers around one."""
    return np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -2.5])


@dataclasses.dataclass
class Const:
    """An input that is a constant of the graph: axes, shapes, bounds."""

    array: np.ndarray


def const(values, dtype="int64") -> Const:
    return Const(np.array(values, dtype))


@dataclasses.dataclass
class Sample:
    inputs: tuple
    attrs: dict
    gradient: bool = True  # False: torch has another one there, or none
    smooth: bool = True  # False: at a kink or an infinity; finite differences mean nothing
    symbolic: bool = True  # False: the shape rule needs the sizes themselves


def sample(*inputs, gradient=True, smooth=True, symbolic=True, **attrs) -> Sample:
    _complete()
    return Sample(inputs, attrs, gradient, smooth, symbolic)


@dataclasses.dataclass
class Bad:
    """Inputs that are refused, and a part of the message."""

    message: str
    inputs: tuple
    attrs: dict


def bad(message, *inputs, **attrs) -> Bad:
    _complete()
    return Bad(message, inputs, attrs)


# Relative and absolute, against the reference in float64 on the same rounded inputs.
TOLERANCE = {
    "float64": (1e-9, 1e-11),
    "float32": (1e-5, 1e-5),
    "float16": (2.0**-10, 0.0),  # of what is rounded once; else see test_halves.py
    "bfloat16": (2.0**-7, 0.0),
}


@dataclasses.dataclass
class Op:
    name: str
    reference: Callable  # (*tensors, **attrs) -> tensor or tuple: torch, in float64
    samples: list
    errors: list = dataclasses.field(default_factory=list)
    through: tuple | None = None  # outputs that gradients come back through; None: all
    wrt: tuple | None = None  # inputs that gradients are compared for; None: those under test
    tolerance: dict = dataclasses.field(default_factory=lambda: TOLERANCE)
    refused: list = dataclasses.field(default_factory=list)  # Bad: differentiating it is an error
    no_gradient: str = ""  # why a differentiable op has neither rule nor definition
