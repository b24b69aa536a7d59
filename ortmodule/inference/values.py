"""OrtValue: a value of a run that arrays share memory with, in both directions."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import _native
from . import elements
from .devices import require_cpu

Value = np.ndarray | list["Value"] | dict[int, "Value"] | dict[str, "Value"] | None


class OrtValue:
    """A tensor, sequence, map or nothing; a tensor is in the memory of the array it was made of."""

    __slots__ = ("_value",)

    def __init__(self, ortvalue: Any, numpy_obj: Any = None):
        self._value = ortvalue._value if isinstance(ortvalue, OrtValue) else ortvalue

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: np.ndarray, device_type: str = "cpu", device_id: int = 0, vendor_id: int = 0
    ) -> "OrtValue":
        """A tensor in the array's memory, or in a copy where its elements do not lie in rows."""
        if device_type.__class__ is str:
            require_cpu(device_type)
        if not isinstance(numpy_obj, np.ndarray) or numpy_obj.dtype.kind in "OUS":
            kind = getattr(numpy_obj, "dtype", type(numpy_obj).__name__)
            raise RuntimeError(f"an OrtValue is made of an array of numbers, not of {kind}")
        elements.number_of_dtype(numpy_obj.dtype)
        return cls(np.ascontiguousarray(numpy_obj).reshape(numpy_obj.shape))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(
        cls, data: np.ndarray, /, onnx_element_type: int
    ) -> "OrtValue":
        """The array's bytes as elements of another type of the same width: uint16 as bfloat16."""
        dtype = elements.dtype_of_number(int(onnx_element_type))
        if dtype.itemsize != data.dtype.itemsize:
            raise RuntimeError(f"elements of {data.dtype} are not as wide as {dtype}'s")
        return cls(np.ascontiguousarray(data).view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        mem_type: Any = None,
    ) -> "OrtValue":
        """A tensor that nothing was written to; element_type: numpy's dtype or ONNX's number."""
        require_cpu(device_type)
        dtype = elements.dtype_given(element_type)
        try:
            return cls(np.empty(tuple(shape), dtype))
        except (ValueError, MemoryError) as error:
            raise RuntimeError(f"no value has shape {list(shape)}: {error}") from None

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: Any) -> "OrtValue":
        """A RuntimeError: values are dense."""
        raise RuntimeError("a sparse value as an OrtValue is not supported")

    def as_sparse_tensor(self) -> Any:
        """A RuntimeError: values are dense."""
        raise RuntimeError("a sparse value of an OrtValue is not supported")

    @classmethod
    def from_dlpack(cls, data: Any, /) -> "OrtValue":
        """A tensor in the memory of what has `__dlpack__`, on the host."""
        return cls(_native.core().array_over(data))

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        return self._array().__dlpack__(stream=None, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self._array(), dtype=dtype, copy=copy)

    def _array(self) -> np.ndarray:
        if not self.is_tensor():
            raise RuntimeError(f"the value is no tensor but {self.data_type()}")
        return self._value

    def _get_c_value(self) -> "OrtValue":
        return self

    @property
    def _ortvalue(self) -> "OrtValue":
        return self

    def numpy(self) -> np.ndarray:
        """The tensor in its own memory; a RuntimeError where the value is none."""
        return self._array()

    def shape(self) -> list[int]:
        """The tensor's sizes."""
        return list(self._array().shape)

    def element_type(self) -> int:
        """ONNX's number of the type of its elements, or of those of its items."""
        return _element_of(self._value)

    def data_type(self) -> str:
        """As ONNX writes it: tensor(float)."""
        return _type_of(self._value)

    def data_ptr(self) -> int:
        """The address of the tensor's memory."""
        return self._array().ctypes.data

    def device_name(self) -> str:
        """Where it lies."""
        return "cpu"

    def tensor_size_in_bytes(self) -> int:
        """Of the tensor's elements."""
        return self._array().nbytes

    def has_value(self) -> bool:
        """Whether it is not an optional that holds nothing."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return isinstance(self._value, np.ndarray)

    def is_sparse_tensor(self) -> bool:
        """Never."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Whether it is a sequence of tensors."""
        return isinstance(self._value, list) and not any(isinstance(x, dict) for x in self._value)

    def update_inplace(self, data: Any) -> None:
        """Writes an array or tensor of the same sizes and dtype into the tensor's memory."""
        if not isinstance(data, np.ndarray | OrtValue):
            raise TypeError(f"data is of type {type(data).__name__}, expected an array or OrtValue")
        given = data._array() if isinstance(data, OrtValue) else data
        mine = self._array()
        if given.shape != mine.shape or given.dtype != mine.dtype:
            raise RuntimeError(
                f"data is {given.dtype} of shape {list(given.shape)}, the value has {mine.dtype} "
                f"of shape {list(mine.shape)}"
            )
        np.copyto(mine, given)


def _element_of(value: Value) -> int:
    if isinstance(value, np.ndarray):
        return elements.number_of_dtype(value.dtype)
    if isinstance(value, list) and value:
        return _element_of(value[0])
    raise RuntimeError("the value has no elements of one type")


def _type_of(value: Value) -> str:
    if isinstance(value, list):
        return f"seq({_type_of(value[0])})" if value else "seq()"
    if isinstance(value, dict):
        keys = "string" if any(isinstance(key, str) for key in value) else "int64"
        return f"map({keys},{_type_of(np.asarray(next(iter(value.values()), 0.0)))})"
    if value is None:
        return "optional()"
    return f"tensor({elements.name_of_number(_element_of(value))})"


class OrtValueVector(list[OrtValue]):
    """A list of values, with the names of a C++ vector's members."""

    def push_back(self, value: OrtValue) -> None:
        """Appends a value."""
        self.append(value)

    def reserve(self, count: int) -> None:
        """Without effect."""

    def shrink_to_fit(self) -> None:
        """Without effect."""

    def element_type_at(self, index: int) -> int:
        """ONNX's number of the element type of one value."""
        return self[index].element_type()

    def dlpack_at(self, index: int) -> Any:
        """One value as a DLPack capsule."""
        return self[index].__dlpack__()

    def to_dlpacks(self, to_tensor: Callable | None = None) -> list:
        """All as DLPack capsules, or what `to_tensor` makes of each."""
        return [to_tensor(x.__dlpack__()) if to_tensor else x.__dlpack__() for x in self]


def unwrapped(value: Any) -> Any:
    """What an OrtValue holds; anything else as it is."""
    return value._value if value.__class__ is OrtValue else value


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Writes each tensor of `src` into that of `dst` at its place."""
    if len(src) != len(dst):
        raise ValueError(f"src has {len(src)} values and dst {len(dst)}")
    for given, to in zip(src, dst, strict=True):
        to.update_inplace(given)
