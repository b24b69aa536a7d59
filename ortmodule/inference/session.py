"""InferenceSession: any ONNX file in our engine, without torch."""

import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from .. import _native, custom_ops  # noqa: F401  (whose ops files may have)
from ..options import Options
from . import providers as _providers
from .binding import IOBinding
from .devices import OrtEpAssignedNode, OrtEpAssignedSubgraph, OrtEpDevice, OrtMemoryInfo
from .enums import GraphOptimizationLevel
from .errors import (
    Error,
    Fail,
    InvalidArgument,
    InvalidProtobuf,
    MissingInput,
    ModelLoadCanceled,
    NoSuchFile,
    by_kind,
    kinded,
)
from .opened import Opened
from .options import RunOptions, SessionOptions
from .ports import ModelMetadata, NodeArg, metadata_of
from .profiling import Profiling
from .values import OrtValue, Value, unwrapped


class BoundRun:
    """A run of a session whose feed and results are bound: see InferenceSession.bind."""

    def __init__(self, session, feed: dict[str, Value], outputs: list[str] | dict[str, Value]):
        self._run = _native.core().BoundRun(session, feed, outputs)

    def run(self) -> list[Value]:
        """The outputs, from what the arrays of the feed hold now.

        They are in the memory given for them, or, where one plan serves all runs (ranks are known,
        no size depends on data, there are no limits), in the same memory each time.
        """
        return self._run.run()


class InferenceSession:
    """Runs an ONNX model (opset 1 to 28) given as a path or as bytes.

    Arrays are of the model's dtypes: numpy's, and ml_dtypes' for what numpy lacks. Arguments,
    methods and errors are those of onnxruntime's class of this name, and others by keyword.

    providers: onnxruntime's names, of which the cpu's is here, or the engine's in claim order;
    None: ORTMODULE_PROVIDERS or ("cpu", "reference"). The other ORTMODULE_* variables (CHECK, FUEL,
    OFF, DUMP) hold here as for ORTModule. Names of sizes are hints: a feed that contradicts them
    runs too. trusted: the files are mapped into memory, not read, so nobody may shorten them
    meanwhile. max_bytes, max_operations: a run that needs more memory at once (inputs, outputs and
    what lies between), or more operations by estimate, is refused: before it starts, or where only
    its loops and sequences tell, when they come to it. Keywords that are not known are ignored.
    Raises ortmodule's Error, one sentence naming what and where, when the file is broken, an op is
    not known or sizes do not fit; its class is onnxruntime's for the kind of error.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike | bytes,
        sess_options: SessionOptions | None = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[dict] | None = None,
        *,
        trusted: bool = False,
        max_bytes: int | None = None,
        max_operations: float | None = None,
        **_kwargs: Any,
    ):
        if not isinstance(path_or_bytes, str | os.PathLike | bytes):
            raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            got = type(sess_options).__name__
            raise TypeError(f"sess_options is of type {got}, expected SessionOptions")
        from_bytes = isinstance(path_or_bytes, bytes)
        self._model_path = None if from_bytes else os.fspath(path_or_bytes)
        self._model_bytes = path_or_bytes if from_bytes else None
        self._sess_options = sess_options._copy() if sess_options else SessionOptions()
        self._trusted = trusted
        self._limits = _native.core().SessionLimits(max_bytes, max_operations)
        if providers is None and self._sess_options._providers:
            providers = [name for name, _ in self._sess_options._providers]
        self._claimants, self._names = _providers.chosen(providers, provider_options)
        options = self._sess_options
        timed = options.enable_profiling
        self._profiling = Profiling(options.profile_file_prefix) if timed else None
        self._open()
        if self._profiling:  # written without end_profiling too
            self._unended = weakref.finalize(self, self._profiling.write)
        if options.optimized_model_filepath:
            self._save_optimized(options.optimized_model_filepath)

    def _save_optimized(self, path: str) -> None:
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            raise InvalidArgument(f"optimized_model_filepath is {path!r}: there is no {folder!r}")
        with by_kind():
            _native.core().write_simplified(self._session, path)

    def _open(self) -> None:
        self._session, self._head = self._opened(())
        self._overridable = {name for name, *_ in self._head.overridable()}
        self._with_open = Opened()

    def _opened(self, open_: Collection[str]) -> tuple[Any, Any]:
        """A session of the engine's to which these initializers are fed, and the file's head."""
        core, given = _native.core(), self._sess_options
        if given._cancelled:
            raise ModelLoadCanceled("opening the model was cancelled")
        plain = given.graph_optimization_level == GraphOptimizationLevel.ORT_DISABLE_ALL
        options = Options(providers=self._claimants, fuel=0 if plain else None)
        compiled = options.for_engine(("cpu", "reference"))
        values = {name: unwrapped(value) for name, value in given._initializers.items()}
        as_ = core.ReadAs(
            sizes=given._sizes,
            denoted=given._denoted,
            initializers=values,
            external=set(given._external),
            files=given._files,
            open=set(open_),
        )
        try:
            if self._model_bytes is not None:
                opened = core.open_bytes(self._model_bytes, compiled, self._limits, as_)
            else:
                path = os.fsencode(self._model_path)
                opened = core.open_file(path, compiled, self._trusted, self._limits, as_)
        except Error as error:
            if self._model_path is not None and not os.path.lexists(self._model_path):
                raise NoSuchFile(*error.args) from None
            if self._model_path is not None and os.path.isdir(self._model_path):
                raise InvalidProtobuf(*error.args) from None
            raise kinded(error) from error.__cause__
        opened[0].set_threads(given.intra_op_num_threads)
        return opened

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: dict[str, Value],
        run_options: RunOptions | None = None,
    ) -> list[Value]:
        """The outputs named (None: all), in that order, for a feed of every input by name.

        A list is a sequence, or a tensor where one is asked for, a dict with keys of int or str a
        map (with numbers and texts of Python's in a result), None an empty optional. What only
        other outputs need is not computed. Each result is in memory of its own; an array of the
        feed is read where it lies, so nothing may write to it before the run has ended. OrtValues,
        tensors of torch and whatever else has `__dlpack__` are taken as arrays are. An input that
        has an initializer may be left out.
        """
        if not isinstance(input_feed, dict):
            input_feed = _dict_of(input_feed)
        try:
            for value in input_feed.values():
                if value.__class__ is OrtValue:
                    input_feed = {name: unwrapped(x) for name, x in input_feed.items()}
                    break
            session = self._session_for(input_feed) if self._overridable else self._session
            if run_options is None and self._profiling is None:
                return session.run(output_names, input_feed)
            return self._run_with(session, output_names, input_feed, run_options)
        except Error as error:
            self._refuse_missing(input_feed, error)
            raise kinded(error) from error.__cause__

    def _run_with(self, session, names, feed, options: RunOptions | None) -> list[Value]:
        started = time.monotonic_ns()
        end = _end_of(options)
        try:
            steps = self._profiling.steps if self._profiling else None
            return _native.core().run_with(session, names, feed, end, steps)
        finally:
            if self._profiling:
                self._profiling.ran(started)

    def _refuse_missing(self, feed: dict[str, Value], error: Error) -> None:
        lacking = [port.name for port in self.get_inputs() if port.name not in feed]
        if lacking:
            raise MissingInput(*error.args) from None

    def _session_for(self, feed: dict[str, Value]) -> Any:
        """The session to which the initializers of the feed are inputs."""
        fed = frozenset(self._overridable & feed.keys())
        if not fed:
            return self._session
        return self._with_open.get(fed, lambda names: self._opened(names)[0])

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: dict[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """As `run`, with values in and out."""
        feed = {name: x._get_c_value()._value for name, x in input_dict_ort_values.items()}
        return [OrtValue(x) for x in self.run(output_names, feed, run_options)]

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: Sequence[OrtValue],
        fetch_names: Sequence[str],
        fetches: list[OrtValue],
        fetch_devices: Sequence[Any],
    ) -> None:
        """As `run`, with names and values apart; results are put into `fetches`."""
        feed = dict(zip(feed_names, map(unwrapped, feeds), strict=True))
        fetches[:] = [OrtValue(x) for x in self.run(list(fetch_names), feed, run_options)]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: dict[str, Value],
        callback: Callable[[list[Value], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Runs on another thread, which calls callback(outputs, user_data, error or '') then."""
        lacking = [port.name for port in self.get_inputs() if port.name not in input_feed]
        if lacking:
            raise MissingInput(f"inputs {lacking} are missing")

        def work() -> None:
            try:
                outputs, error = self.run(output_names, input_feed, run_options), ""
            except Exception as raised:
                outputs, error = [], str(raised)
            callback(outputs, user_data, error)

        threading.Thread(target=work, daemon=True).start()

    def io_binding(self) -> IOBinding:
        """Nothing bound yet."""
        return IOBinding(self)

    def run_with_iobinding(
        self, iobinding: IOBinding, run_options: RunOptions | None = None
    ) -> None:
        """A run of what is bound, from what its memory holds now."""
        if iobinding._session is not self:
            raise ValueError("the binding is another session's")
        started = time.monotonic_ns()
        with by_kind():
            iobinding._run(_end_of(run_options))
        if self._profiling:
            self._profiling.ran(started)

    def _takes(self, name: str) -> bool:
        return name in self._overridable or any(port.name == name for port in self.get_inputs())

    def _bound_run(self, feed: dict[str, Value], outputs: dict[str, Value]) -> Any:
        return _native.core().BoundRun(self._session_for(feed), feed, outputs)

    def bind(
        self, feed: dict[str, Value], outputs: list[str] | dict[str, Value] | None = None
    ) -> BoundRun:
        """A run to be made again and again: each reads `feed` where it lies, as it is by then.

        outputs: names (None: all), or a dict from names to the arrays that are written, None for
        memory of its own. Arrays and tensors (numpy, torch, whatever has `__dlpack__`) are neither
        copied nor given new memory, so they must be of the outputs' shapes and dtypes and lie in
        rows; the results of the run before are overwritten. Where no size depends on data, a run
        after the first allocates nothing but the list it returns. What is no array of numbers (a
        number, a list, strings) is read once.
        """
        return BoundRun(self._session, feed, outputs)

    def __repr__(self) -> str:
        def listed(ports: list[NodeArg]) -> str:
            texts = (f"{x.name}: {x.type}[{', '.join(map(_size_text, x.shape))}]" for x in ports)
            return ", ".join(texts) or "nothing"

        of = self._model_path or f"{len(self._model_bytes)} bytes"
        takes, gives = listed(self.get_inputs()), listed(self.get_outputs())
        return f"<InferenceSession of {of}: takes {takes}; gives {gives}>"

    def terminate(self) -> None:
        """Ends the runs that are under way, with an error, before their next step."""
        self._session.terminate()
        self._with_open.terminate()

    def get_inputs(self) -> list[NodeArg]:
        """The model's inputs in order."""
        return [NodeArg(*port) for port in self._head.inputs()]

    def get_outputs(self) -> list[NodeArg]:
        """The model's outputs in order."""
        return [NodeArg(*port) for port in self._head.outputs()]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """The inputs that have an initializer: a run may feed them."""
        return [NodeArg(*port) for port in self._head.overridable()]

    def get_modelmeta(self) -> ModelMetadata:
        """What the file says of itself."""
        return metadata_of(self._head)

    def get_session_options(self) -> SessionOptions:
        """A copy of what the session was opened with."""
        return self._sess_options

    def get_providers(self) -> list[str]:
        """["CPUExecutionProvider"], or the engine's names where they were given."""
        return list(self._names)

    def get_provider_options(self) -> dict[str, dict]:
        """Empty for each provider."""
        return {name: {} for name in self._names}

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Sequence[dict] | None = None
    ) -> None:
        """Opens the model anew for these; a RuntimeError where one is not known."""
        _providers.check_known(providers or ())
        self._claimants, self._names = _providers.chosen(providers, provider_options)
        self._open()

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """The latest plan's steps: for each of the engine's providers a part, an entry a step."""
        return [
            OrtEpAssignedSubgraph(self._names[0], [OrtEpAssignedNode(name, "", "")] * count)
            for name, count in self._session.providers().items()
        ]

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where inputs are read: the host's memory."""
        return [OrtMemoryInfo() for _ in self.get_inputs()]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Where outputs are written: the host's memory."""
        return [OrtMemoryInfo() for _ in self.get_outputs()]

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """The cpu for each input."""
        return [OrtEpDevice() for _ in self.get_inputs()]

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, device_type: str, device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:  # fmt: skip
        """As OrtValue.ortvalue_from_shape_and_type."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id)

    def end_profiling(self) -> str:
        """The path of a file with the times of all runs and steps; '' where none were taken.

        A session that is gone without it writes the file then.
        """
        profiling, self._profiling = self._profiling, None
        if profiling is None:
            return ""
        self._unended.detach()
        return profiling.write()

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, by time.monotonic_ns; 0 where it is off."""
        return self._profiling.started_ns if self._profiling else 0

    def enable_fallback(self) -> None:
        """Without effect: there is nothing to fall back to."""

    def disable_fallback(self) -> None:
        """Without effect: there is nothing to fall back to."""

    def set_ep_dynamic_options(self, options: dict[str, str]) -> None:
        """Without effect: the cpu has none."""

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Without effect: nothing is captured on the cpu."""

    def get_tuning_results(self) -> list:
        """Empty: nothing is tuned."""
        return []

    def set_tuning_results(self, results: list, *, error_on_invalid: bool = False) -> None:
        """A Fail where there are any: nothing is tuned."""
        if results:
            raise Fail("results of tuning are not supported: nothing is tuned")

    # What libraries read of onnxruntime's own, beside `_model_path`.
    @property
    def _sess(self) -> "InferenceSession":
        return self

    @property
    def _providers(self) -> list[str]:
        return self.get_providers()

    @property
    def _provider_options(self) -> dict[str, dict]:
        return self.get_provider_options()


def _end_of(options: RunOptions | None) -> Any:
    """What ends a run with these options; a Fail where it is ended before it begins."""
    if options is None:
        return None
    if not isinstance(options, RunOptions):
        got = type(options).__name__
        raise TypeError(f"run_options is of type {got}, expected RunOptions")
    if options.terminate:
        raise Fail("the run was terminated before it began")
    return options._end


def _dict_of(feed: Any) -> dict:
    if isinstance(feed, Mapping):
        return dict(feed)
    raise TypeError(f"feed is of type {type(feed).__name__}, expected a dict of inputs by name")


def _size_text(size: int | str | None) -> str:
    return "?" if size is None else str(size)
