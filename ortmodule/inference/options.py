"""SessionOptions and RunOptions: what a session and a run are told."""

import posixpath
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import _native
from .enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel
from .errors import Fail
from .values import OrtValue

# field -> (type, value at first)
_SESSION = {
    "enable_cpu_mem_arena": (bool, True),
    "enable_mem_pattern": (bool, True),
    "enable_mem_reuse": (bool, True),
    "enable_profiling": (bool, False),
    "execution_mode": (ExecutionMode, ExecutionMode.ORT_SEQUENTIAL),
    "execution_order": (ExecutionOrder, ExecutionOrder.DEFAULT),
    "graph_optimization_level": (GraphOptimizationLevel, GraphOptimizationLevel.ORT_ENABLE_ALL),
    "inter_op_num_threads": (int, 0),
    "intra_op_num_threads": (int, 0),
    "log_severity_level": (int, -1),
    "log_verbosity_level": (int, 0),
    "logid": (str, ""),
    "optimized_model_filepath": (str, ""),
    "profile_file_prefix": (str, "onnxruntime_profile_"),
    "use_deterministic_compute": (bool, False),
    "use_per_session_threads": (bool, True),
}
_RUN = {
    "log_severity_level": (int, -1),
    "log_verbosity_level": (int, 0),
    "logid": (str, ""),
    "only_execute_path_to_fetches": (bool, False),
}
_LONGEST_KEY, _LONGEST_VALUE = 1024, 8192
_MOST = 2**31  # of a whole number


class _Fields:
    """Attributes of given types and no others, and entries of text by key."""

    _fields: dict[str, tuple[type, Any]]

    def __init__(self) -> None:
        for name, (_, first) in self._fields.items():
            object.__setattr__(self, name, first)
        object.__setattr__(self, "_entries", {})

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._fields:
            if name.startswith("_"):
                object.__setattr__(self, name, value)
                return
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        object.__setattr__(self, name, _of_type(name, value, self._fields[name][0]))

    def _add(self, key: str, value: str) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"entry {key!r} is {value!r}, expected str for both")
        if not 0 < len(key) <= _LONGEST_KEY or len(value) > _LONGEST_VALUE:
            raise RuntimeError(
                f"an entry has a key of {len(key)} letters and a value of {len(value)}, expected "
                f"1 to {_LONGEST_KEY} and up to {_LONGEST_VALUE}"
            )
        self._entries[key] = value

    def _get(self, key: str) -> str:
        if key not in self._entries:
            raise RuntimeError(f"{type(self).__name__} has no entry with key {key!r}")
        return self._entries[key]


class SessionOptions(_Fields):
    """What a session is told when it is opened; it keeps a copy.

    Of effect: intra_op_num_threads (of each run's kernels; 0: OpenMP's), graph_optimization_level
    (ORT_DISABLE_ALL: no rewrites), optimized_model_filepath (the simplified model in standard ops),
    enable_profiling with profile_file_prefix, initializers and free dimensions. The rest is taken
    and has none: memory is planned, steps run in order, sums are the same each time.
    """

    _fields = _SESSION

    def __init__(self) -> None:
        super().__init__()
        self._initializers: dict[str, OrtValue] = {}
        self._external: list[str] = []
        self._files: dict[str, np.ndarray] = {}
        self._sizes: dict[str, int] = {}
        self._denoted: dict[str, int] = {}
        self._providers: list[tuple[str, dict]] = []
        self._cancelled = False

    def _copy(self) -> "SessionOptions":
        copy = SessionOptions()
        for name, value in vars(self).items():
            held = value.copy() if isinstance(value, dict | list) else value
            object.__setattr__(copy, name, held)
        return copy

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps a text; none has an effect."""
        self._add(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """A text that was kept; a RuntimeError where none was."""
        return self._get(key)

    def add_initializer(self, name: str, value: OrtValue) -> None:
        """In the place of the file's initializer of that name, in its own memory."""
        if not isinstance(value, OrtValue):
            got = type(value).__name__
            raise RuntimeError(f"initializer {name!r} is of type {got}, expected OrtValue")
        self._initializers[name] = value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[OrtValue]) -> None:
        """In the place of those that the file has in other files."""
        if len(names) != len(values):
            raise RuntimeError(f"got {len(names)} names of initializers and {len(values)} values")
        for name, value in zip(names, values, strict=True):
            if name in self._external:
                raise RuntimeError(f"initializer {name!r} was given already")
            self.add_initializer(name, value)
            self._external.append(name)

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int], /
    ) -> None:
        """The bytes of all files in which the model has weights, by the locations it names.

        lengths: how many bytes of each buffer are the file. They are copied as a session is opened.
        """
        if not len(names) == len(buffers) == len(lengths):
            raise RuntimeError(
                f"got {len(names)} files' names, {len(buffers)} buffers and {len(lengths)} lengths"
            )
        for name, buffer, length in zip(names, buffers, lengths, strict=True):
            if not isinstance(name, str):
                raise TypeError(f"a file's name is of type {type(name).__name__}, expected str")
            location = posixpath.normpath(name)
            if location in self._files:
                raise RuntimeError(f"file {name!r} was given already")
            self._files[location] = _bytes_of(name, buffer, length)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """The size of every dimension that the file calls so: what is fed must have it.

        The first one that is given holds.
        """
        self._sizes.setdefault(name, _size(name, size))

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """The size of every free dimension that the file gives this denotation."""
        self._denoted.setdefault(denotation, _size(denotation, size))

    def has_providers(self) -> bool:
        """Whether add_provider was called."""
        return bool(self._providers)

    def add_provider(self, provider_name: str, provider_options: dict) -> None:
        """CPUExecutionProvider; a RuntimeError of any other."""
        if provider_name != "CPUExecutionProvider":
            raise RuntimeError(f"provider {provider_name!r} is not known, expected the cpu's")
        self._providers.append((provider_name, dict(provider_options)))

    def add_provider_for_devices(self, devices: Sequence[Any], provider_options: dict) -> None:
        """Of get_ep_devices()."""
        for device in devices:
            self.add_provider(device.ep_name, provider_options)

    def register_custom_ops_library(self, path: str) -> None:
        """A Fail: such a library is built against onnxruntime."""
        raise Fail(
            f"custom ops of library {path!r} are not supported: they need onnxruntime's ABI; "
            "ortmodule.custom_op gives an op a Python function"
        )

    def set_load_cancellation_flag(self, is_cancelled: bool) -> None:
        """A session that is opened with these options raises ModelLoadCanceled."""
        self._cancelled = bool(is_cancelled)

    def set_provider_selection_policy(self, policy: Any) -> None:
        """Without effect: there is one device."""

    def set_provider_selection_policy_delegate(self, delegate: Callable) -> None:
        """Without effect: there is one device."""

    def set_ep_context_data_read_func(self, function: Callable) -> None:
        """Without effect: there are no compiled parts."""

    def clear_ep_context_data_read_func(self) -> None:
        """Without effect: there are no compiled parts."""


class RunOptions(_Fields):
    """What a run is told. `terminate`, set by any thread, ends the runs that have these options."""

    _fields = _RUN

    def __init__(self) -> None:
        super().__init__()
        self._end = _native.core().RunEnd()

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "terminate":
            self._end.ended = _of_type(name, value, bool)
        else:
            super().__setattr__(name, value)

    @property
    def terminate(self) -> bool:
        """Whether runs with these options end, with a Fail, before their next step."""
        return self._end.ended

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keeps a text; none has an effect."""
        self._add(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """A text that was kept; a RuntimeError where none was."""
        return self._get(key)

    def add_active_adapter(self, adapter: Any) -> None:
        """A Fail: adapters are merged while a model is trained."""
        raise Fail("an adapter in onnxruntime's format is not supported")


def _of_type(name: str, value: Any, expected: type) -> Any:
    """The value of a field; True and False may be numbers or None, as they may there."""
    if expected is bool and (value is None or hasattr(value, "__bool__")):
        return bool(value)
    if expected is int and hasattr(value, "__index__") and -_MOST <= int(value) < _MOST:
        return int(value)
    if expected is int or not isinstance(value, expected):
        got = f"is {value}" if isinstance(value, int) else f"is of type {type(value).__name__}"
        raise TypeError(f"{name} {got}, expected {expected.__name__}")
    return value


def _bytes_of(name: str, buffer: Any, length: Any) -> np.ndarray:
    """The first `length` bytes of what has a buffer."""
    view = memoryview(buffer)
    size = _size(name, length)
    if not view.c_contiguous or not 0 <= size <= view.nbytes:
        raise RuntimeError(
            f"file {name!r} has {size} bytes, the buffer given for it {view.nbytes} in rows"
        )
    return np.frombuffer(view.cast("B") if view.nbytes else b"", np.uint8)[:size]


def _size(name: str, size: Any) -> int:
    if not hasattr(size, "__index__"):
        raise TypeError(f"dimension {name!r} is {size!r}, expected an int")
    return int(size)
