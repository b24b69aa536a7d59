"""InferenceSession: any ONNX file in our engine, without torch."""

import dataclasses
import os

import numpy as np

from . import _native
from .options import Options

Value = np.ndarray | list["Value"] | dict[int, "Value"] | dict[str, "Value"] | None


@dataclasses.dataclass(frozen=True)
class Port:
    """An input or output: `shape` has ints and names of symbolic sizes, None where unknown."""

    name: str
    shape: list[int | str] | None
    type: str

    def __str__(self) -> str:
        shape = "" if self.shape is None else f"[{', '.join(map(str, self.shape))}]"
        return f"{self.name}: {self.type}{shape}"


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

    Arrays are of the model's dtypes: numpy's, and ml_dtypes' for what numpy lacks.

    providers: claim order; None: ORTMODULE_PROVIDERS or ("cpu", "reference"). The other ORTMODULE_*
    variables (CHECK, FUEL, OFF, DUMP) hold here as for ORTModule. Names of sizes are hints: a feed
    that contradicts them runs too. trusted: the files are mapped into memory, not read, so nobody
    may shorten them meanwhile. max_bytes, max_operations: a run that needs more memory at once
    (inputs, outputs and what lies between), or more operations by estimate, is refused: before it
    starts, or where only its loops and sequences tell, when they come to it. Raises ortmodule's
    Error, one sentence naming what and where, when the file is broken, an op is not known or sizes
    do not fit.
    """

    def __init__(
        self,
        model: str | os.PathLike | bytes,
        providers: tuple[str, ...] | None = None,
        *,
        trusted: bool = False,
        max_bytes: int | None = None,
        max_operations: float | None = None,
    ):
        core = _native.core()
        self._of = f"{len(model)} bytes" if isinstance(model, bytes) else os.fspath(model)
        options = Options(providers=providers).for_engine(("cpu", "reference"))
        limits = core.SessionLimits(max_bytes, max_operations)
        if isinstance(model, bytes):
            self._session = core.session_of_bytes(model, options, limits)
        else:
            self._session = core.session_of_file(os.fsencode(model), options, trusted, limits)

    def run(self, names: list[str] | None, feed: dict[str, Value]) -> list[Value]:
        """The outputs named (None: all), in that order, for a feed of every input by name.

        A list is a sequence, a dict with keys of int or str a map, None an empty optional. What
        only other outputs need is not computed. Each result is in memory of its own; an array
        of the feed is read where it lies, so nothing may write to it before the run has ended.
        Tensors of torch and of whatever else has `__dlpack__` are taken as arrays are.
        """
        return self._session.run(names, feed)

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
        def listed(ports: list[Port]) -> str:
            return ", ".join(map(str, ports)) or "nothing"

        takes, gives = listed(self.get_inputs()), listed(self.get_outputs())
        return f"<InferenceSession of {self._of}: takes {takes}; gives {gives}>"

    def terminate(self) -> None:
        """Ends the runs that are under way, with an error, before their next stage or trip."""
        self._session.terminate()

    def get_inputs(self) -> list[Port]:
        """The model's inputs in order."""
        return [Port(*port) for port in self._session.inputs()]

    def get_outputs(self) -> list[Port]:
        """The model's outputs in order."""
        return [Port(*port) for port in self._session.outputs()]
