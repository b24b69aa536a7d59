"""IOBinding: inputs and outputs of a session that are bound to memory, by name."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import elements
from .devices import memory_at, require_cpu
from .values import OrtValue, OrtValueVector, unwrapped


class IOBinding:
    """What runs of one session read and write, where it lies: nothing is copied.

    An output that is bound without memory is given some at the first run, which later ones write
    again until something is bound anew.
    """

    def __init__(self, session: Any):
        self._session = session
        self._inputs: dict[str, Any] = {}
        self._outputs: dict[str, np.ndarray | None] = {}
        self._bound: Any = None  # the engine's run of what is bound; None: it is to be made
        self._results: list[Any] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """An array that each run reads; one whose elements do not lie in rows is copied here."""
        if not isinstance(arr_on_cpu, np.ndarray):
            got = type(arr_on_cpu).__name__
            raise RuntimeError(f"input '{name}' is of type {got}, expected an array")
        self._bind_input(name, np.ascontiguousarray(arr_on_cpu).reshape(arr_on_cpu.shape))

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Memory at an address that each run reads; whoever binds it keeps it."""
        require_cpu(device_type)
        self._bind_input(name, _array_at(buffer_ptr, element_type, shape))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """A value that each run reads."""
        self._bind_input(name, ortvalue._get_c_value()._value)

    def _bind_input(self, name: str, value: Any) -> None:
        if not self._session._takes(name):
            raise RuntimeError(f"'{name}' is no input of the model")
        self._inputs[name] = value
        self._bound = None

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Memory at an address that each run writes, or memory of the run's own."""
        require_cpu(device_type)
        if buffer_ptr is None:
            self._bind_output(name, None)
        elif element_type is None or shape is None:
            raise ValueError(f"output '{name}' is bound to memory without element_type and shape")
        else:
            self._bind_output(name, _array_at(buffer_ptr, element_type, shape))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """A tensor that each run writes."""
        self._bind_output(name, ortvalue._get_c_value().numpy())

    def _bind_output(self, name: str, memory: np.ndarray | None) -> None:
        self._outputs[name] = memory
        self._bound = None

    def clear_binding_inputs(self) -> None:
        """No input is bound."""
        self._inputs.clear()
        self._bound = None

    def clear_binding_outputs(self) -> None:
        """No output is bound."""
        self._outputs.clear()
        self._bound, self._results = None, []

    def synchronize_inputs(self) -> None:
        """Without effect: the cpu has no queues."""

    def synchronize_outputs(self) -> None:
        """Without effect: the cpu has no queues."""

    def get_outputs(self) -> list[OrtValue]:
        """What the latest run wrote, in the order in which outputs were bound."""
        return [OrtValue(result) for result in self._results]

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """The same."""
        return OrtValueVector(self.get_outputs())

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Copies of what the latest run wrote."""
        return [x.copy() if isinstance(x, np.ndarray) else x for x in self._results]

    @property
    def _iobinding(self) -> "IOBinding":
        return self

    def _run(self, end: Any) -> None:
        if not self._outputs:
            raise RuntimeError("no output is bound, expected one or more")
        if self._bound is None:
            self._bound = self._session._bound_run(self._inputs, self._outputs)
        self._results = self._bound.run(end)


class SessionIOBinding(IOBinding):
    """IOBinding by the name of its part in C++, whose methods also take values."""

    def bind_input(self, name: str, *memory: Any) -> None:
        """An array, a value, or memory as IOBinding.bind_input has it."""
        if len(memory) == 1:
            self._bind_input(name, unwrapped(memory[0]))
        else:
            super().bind_input(name, *memory)


def _array_at(address: int, element_type: Any, shape: Sequence[int]) -> np.ndarray:
    dtype = elements.dtype_given(element_type)
    count = math.prod(shape)
    if not count:
        return np.empty(tuple(shape), dtype)
    return np.frombuffer(memory_at(address, count * dtype.itemsize), dtype).reshape(tuple(shape))
