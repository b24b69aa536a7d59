"""Element types by ONNX's numbers: ONNX's names for them and numpy's dtypes."""

import functools

import numpy as np

from .. import _native


@functools.cache
def _names() -> dict[int, tuple[str, str]]:
    return _native.core().dtypes()


@functools.cache
def dtype_of_number(number: int) -> np.dtype:
    """numpy's dtype, ml_dtypes' where numpy has none; a RuntimeError of an unknown number."""
    if number not in _names():
        raise RuntimeError(f"element type {number} is not known: ONNX has 1 to {max(_names())}")
    name = _names()[number][1]
    if name == "string":
        return np.dtype(object)
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


@functools.cache
def number_of_dtype(dtype: np.dtype) -> int:
    """ONNX's number; a RuntimeError of a dtype that ONNX does not have."""
    if dtype.kind in "OUS":
        return next(n for n, (name, _) in _names().items() if name == "string")
    for number, (_, name) in _names().items():
        if name == dtype.name:
            return number
    raise RuntimeError(f"ONNX has no elements of dtype {dtype}")


def name_of_number(number: int) -> str:
    """ONNX's name, as in tensor(float)."""
    return _names()[number][0]


def dtype_given(element_type) -> np.dtype:
    """Of a numpy dtype or class, or of ONNX's number."""
    if isinstance(element_type, int):
        return dtype_of_number(int(element_type))
    try:
        dtype = np.dtype(element_type)
    except TypeError as error:
        raise RuntimeError(f"{element_type!r} is no numpy dtype and no ONNX number") from error
    number_of_dtype(dtype)
    return dtype
