"""custom_op: a Python function as an op of ONNX files, with its types and its gradient."""

import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _native

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class TensorType:
    """What is known of a tensor before a run.

    dtype: numpy's, or its name; ml_dtypes' too ("bfloat16"); "string" or object of strings.
    shape: a size for each axis, or None where not even the rank is known. A size is an int; where
    it has a name, a size to count with (n + 1, 2 * n, n // 2, n % 2); None where a run alone tells.
    """

    dtype: Any
    shape: tuple[Any, ...] | None = None


# A sequence of tensors is [TensorType], a map {"int64" or "string": TensorType}.
Type = TensorType | list | dict
Types = str | Type | tuple[Any, ...] | Callable[..., Any]


def custom_op(
    name: str, *, types: Types | None = None, gradient: Callable | None = None, since: int = 1
) -> Callable[[Callable], Callable]:
    """The decorated function computes an op of the files that are opened from now on.

    name: "my.domain::Op", or "Op" for one of ai.onnx that the engine does not know.
    The function's positional parameters are the op's inputs, in order: one with a default may be
    absent, `*inputs` are any number. Its keyword parameters are the attributes; a default serves
    where a node leaves one out. It is given numpy arrays that it may read and keep (strings as
    arrays of objects, sequences as lists, maps as dicts), and gives the result, or a tuple of them.

    types: of the results, as a dtype or a TensorType, a tuple where there are several, or a
    function of the inputs' types and the attributes that gives these. None: one result with the
    dtype of the first input. Where sizes are told in those of the inputs the node is a step of the
    plan; where they are not, what follows it is planned when it has run.

    gradient: gradient(*dys, *inputs, **attributes) gives that of each input, a tuple where there
    are several, None where it is zero. dys are those of the results; None, of one that nobody asks
    for. Without it a file with the op runs, and is not differentiated; with it, `types` must tell
    the ranks.

    since: the first opset of the domain whose nodes these are, up to the next `since` that is
    given. A later function of the same name and opset takes the place of an earlier one: sessions
    that are open keep theirs. An op is what ONNX says it is, a function of its inputs and
    attributes: two equal nodes may be run as one, and a node whose results nobody asks for is not
    run.

    What the function raises ends the run with one Error that names node, op and exception, which is
    its __cause__; KeyboardInterrupt and SystemExit go through.
    Raises Error where the engine has the op, or the domain is its own.
    """
    domain, _, op = name.rpartition("::")
    if not op or not isinstance(since, int) or since < 1:
        raise ValueError(f"op {name!r}, since {since!r}: expected 'domain::Op' and an int from 1")

    def register(function: Callable) -> Callable:
        entry = _Op(function, types, gradient)
        _native.core().add_op("" if domain == "ai.onnx" else domain, op, since, entry)
        return function

    return register


class _Op:
    """What the engine calls: by position and name, a tuple for every result."""

    def __init__(self, function: Callable, types: Types | None, gradient: Callable | None):
        self._function = function
        self._types = types if callable(types) or types is None else _tuple(types)
        self.gradient = gradient
        self._signature = inspect.signature(function)
        parameters = self._signature.parameters.values()
        self._inputs = [each for each in parameters if each.kind in _POSITIONAL]
        if isinstance(self._types, tuple):
            self._types = tuple(map(_described, self._types))

    def types_of(self, inputs: Sequence[Any], attributes: dict[str, Any]) -> tuple:
        self._check(inputs, attributes)
        if isinstance(self._types, tuple):
            return self._types
        if self._types is not None:
            given = self._filled([_type_of(each) for each in inputs])
            return tuple(map(_described, _tuple(self._types(*given, **attributes))))
        if not inputs or not isinstance(inputs[0], tuple):
            _refuse("it has no first input whose dtype its result could have: give `types`")
        return ((inputs[0][0], None),)

    def compute(self, inputs: Sequence[Any], attributes: dict[str, Any], asked: int) -> tuple:
        results = _tuple(self._function(*self._filled(inputs), **attributes))
        fixed = len(self._types) if isinstance(self._types, tuple) else asked
        if len(results) < asked or (not callable(self._types) and len(results) != fixed):
            _refuse(f"its function gave {len(results)} results, expected {fixed}")
        return results

    def differentiate(
        self, dys: Sequence[Any], inputs: Sequence[Any], attributes: dict[str, Any]
    ) -> tuple:
        given = self._filled(inputs)
        results = _tuple(self.gradient(*dys, *given, **attributes))
        if len(results) not in (len(given), len(self._inputs)):
            _refuse(
                f"its gradient gave {len(results)} results, expected one for each of "
                f"{len(given)} inputs"
            )
        return results[: len(given)]

    def _check(self, inputs: Sequence[Any], attributes: dict[str, Any]) -> None:
        try:
            self._signature.bind(*inputs, **attributes)
        except TypeError as error:
            _refuse(f"its function takes {self._signature}: {error}")
        for parameter, given in zip(self._inputs, inputs, strict=False):
            if given is None and parameter.default is parameter.empty:
                _refuse(f"input '{parameter.name}' is missing")

    def _filled(self, inputs: Sequence[Any]) -> list:
        """With the defaults of those that are absent before others."""
        defaults = [each.default for each in self._inputs[: len(inputs)]]
        named = [default if x is None else x for x, default in zip(inputs, defaults, strict=False)]
        return [*named, *inputs[len(named) :]]


def _refuse(text: str) -> None:
    raise _native.core().Error(text)


def _tuple(value: Any) -> tuple:
    return value if isinstance(value, tuple) else (value,)


def _type_of(described: Any) -> Any:
    """As a rule of types sees it."""
    if isinstance(described, tuple):
        return TensorType(_dtype(described[0]), described[1])
    if isinstance(described, list):
        return [_type_of(each) for each in described]
    if isinstance(described, dict):
        return {keys: _type_of(each) for keys, each in described.items()}
    return None


def _described(given: Any) -> Any:
    """As the engine reads it: (name of the dtype, sizes)."""
    if isinstance(given, list) and len(given) == 1:
        return [_described(given[0])]
    if isinstance(given, dict) and list(given) in (["int64"], ["string"]):
        return {keys: _described(each) for keys, each in given.items()}
    if isinstance(given, TensorType):
        return _name(given.dtype), None if given.shape is None else tuple(map(_size, given.shape))
    if isinstance(given, str | type | np.dtype):
        return _name(given), None
    raise TypeError(f"a result's type is {given!r}, expected a dtype or a TensorType")


def _size(given: Any) -> Any:
    if given is None or isinstance(given, _native.core().Dim):
        return given
    size = operator.index(given)
    if not 0 <= size < 2**63:
        raise ValueError(f"a size is {size}, expected 0 to 2**63 - 1")
    return size


def _dtype(name: str) -> np.dtype | None:
    if name == "undefined":
        return None
    if name == "string":
        return np.dtype(object)
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        if not hasattr(ml_dtypes, name):
            raise
        return np.dtype(getattr(ml_dtypes, name))


def _name(dtype: Any) -> str:
    if isinstance(dtype, str):
        dtype = _dtype(dtype)
    dtype = np.dtype(dtype)
    return "string" if dtype.kind in "OUST" else dtype.name
