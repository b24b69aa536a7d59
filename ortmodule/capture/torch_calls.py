"""The calls of torch that a forward makes, with their numbers: does a trace do what eager does?

fake_run.py and flat_module.py run forward under a Calls each; where the two differ, forward looked
at something that is another while it is traced, as torch.compiler.is_exporting() or a size's text.
"""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from ..errors import NeedsCut, NotCapturable
from ..guards import observation
from ..guards.tensor_questions import THROUGH_DATA
from ..python_ops.collectives import check_in_place
from ..python_ops.control_flow import calls_are_forwards
from ..python_ops.markers import stands_for
from ..records.autograd_history import storage_key
from ..torch_internals.autograd import set_version_counter
from ..torch_internals.tracing import FakeTensor
from .array_memory import ArrayMemory

# Asked of a tensor, or by the arithmetic of symbols; what forward makes of the answer shows later.
_ANSWERED_LATER = (
    "__get__", "__repr__", "__str__", "__format__", "__len__", "__bool__", "size", "dim",
    "sym_float",
)  # fmt: skip
_NAMES_AXES = {"rename", "rename_", "refine_names", "align_to", "align_as"}
_ASKS_STRIDES = {torch.Tensor.stride, torch.Tensor.dim_order}

# What follows "__i" in the names of augmented assignments.
_AUGMENTED = {
    f"{name}__" for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift",
        "rshift",
    )
}  # fmt: skip


class _Any:
    """A number that only a run tells."""

    def __eq__(self, _other):
        return True

    __hash__ = None


_ANY = _Any()


class Calls(TorchFunctionMode):
    """`made`: of each call the function, the numbers among its arguments, and whose code called.

    `real`: tensors with data among the arguments, by id. `asks_strides`: how a tensor lies in
    memory is asked for. `plainly`, `through_data`: the memory of what is written in place, as
    itself and as another tensor's `data`, of which that one's version does not tell. `look`:
    told of each call before it is made. `array_memory`: told of its result.
    """

    def __init__(self):
        super().__init__()
        self.asks_strides = False
        self.made: list[tuple[Any, tuple, int, str, int]] = []
        self.real: dict[int, torch.Tensor] = {}
        self._versions: dict[int, int] = {}  # of these, as they were
        self.plainly: set[int | None] = set()
        self.through_data: set[int | None] = set()
        self.array_memory: ArrayMemory | None = None
        self.look: Callable[[int], None] | None = None

    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not calls_are_forwards():
            return function(*args, **kwargs)
        if self.look is not None:
            self.look(len(self.made))
        self.asks_strides |= function in _ASKS_STRIDES
        if getattr(function, "__name__", "") in _NAMES_AXES or kwargs.get("names"):
            raise NotCapturable("forward names the axes of tensors")
        if getattr(function, "__name__", "") not in _ANSWERED_LATER:
            numbers = tuple(_numbers((args, tuple(kwargs.items()))))
            self.made.append((stands_for(function), numbers, *_caller()))
        tensors = list(_tensors((args, tuple(kwargs.values()))))
        check_in_place(function, tensors)
        for tensor in _tensors(_written(function, args, kwargs)):
            _check_history(tensor, tensors)
            by_data = any(hasattr(t, THROUGH_DATA) for t in (tensor, tensor._base))
            (self.through_data if by_data else self.plainly).add(storage_key(tensor))
        for tensor in tensors:
            if not isinstance(tensor, FakeTensor) and id(tensor) not in self.real:
                self.real[id(tensor)] = tensor
                if not tensor.is_inference():
                    self._versions[id(tensor)] = tensor._version
        result = function(*args, **kwargs)
        if function is torch.Tensor.detach and hasattr(tensors[0], THROUGH_DATA):
            setattr(result, THROUGH_DATA, True)
        if self.array_memory is not None:
            self.array_memory.note(function, args, kwargs, result)
        return result

    @contextlib.contextmanager
    def versions_kept(self) -> Iterator[None]:
        """A write in place within does not reach the data, but counts up the version."""
        try:
            yield
        finally:
            known = [(self.real[i], version) for i, version in self._versions.items()]
            changed = [(t, version) for t, version in known if t._version != version]
            if changed:
                set_version_counter(*zip(*changed, strict=True))

    def difference(self, other: "Calls", whole: bool) -> tuple[str, int, str, int] | None:
        """The first call of `other` that is not ours: (words, kind of code, file, line).

        whole: both ran to their end, so that one must not have more calls than the other.
        """
        for ours, theirs in zip(self.made, other.made, strict=False):
            if ours[:2] != theirs[:2]:
                return f"{_words(theirs)}, in eager {_words(ours)}", *theirs[2:]
        if whole and len(self.made) != len(other.made):
            longer = max(self, other, key=lambda calls: len(calls.made)).made
            extra = longer[min(len(self.made), len(other.made))]
            return f"{_words(extra)} {'never' if longer is self.made else 'only'} then", *extra[2:]
        return None


def _written(function: Any, args: tuple, kwargs: dict) -> Any:
    """The arguments that a call in place writes to."""
    name = getattr(function, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    place = _inplace_of(function)
    if place is not None:
        in_place |= bool(kwargs.get("inplace", args[place] if place < len(args) else False))
    if in_place or name == "__setitem__" or name.removeprefix("__i") in _AUGMENTED:
        return args[:1]
    return kwargs.get("out")


@functools.cache
def _inplace_of(function: Any) -> int | None:
    """Where a function of torch.nn.functional takes `inplace`."""
    if getattr(function, "__module__", None) != torch.nn.functional.__name__:
        return None
    names = list(inspect.signature(function).parameters)
    return names.index("inplace") if "inplace" in names else None


def _check_history(written: torch.Tensor, tensors: list[torch.Tensor]) -> None:
    """Refuses a write that would stay: data are put back, but not the history of a real tensor."""
    recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    own = (written, written._base)  # a view's write is its base's
    if recorded and any(t is not None and not isinstance(t, FakeTensor) for t in own):
        _, file, line = _caller()
        raise NeedsCut(
            "forward writes in place to a tensor that it was not given, and a gradient goes "
            "through that",
            file=file or None,
            line=line or None,
        )


def _caller() -> tuple[int, str, int]:
    """Whose code makes the running call: the innermost frame that is neither torch's nor ours."""
    frame = sys._getframe(2)
    while frame is not None:
        kind = observation.kind_of_file(frame.f_code.co_filename)
        if kind in (observation.PACKAGE, observation.OWN):
            return kind, frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return observation.PASSED, "", 0


def _numbers(value: Any):
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, dict):
        yield from _numbers(tuple(value.items()))
    elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        hint = value.node.hint
        yield from _numbers(_ANY if hint is None else hint)
    elif isinstance(value, float):
        yield value.hex()
    elif isinstance(value, (bool, int, str, torch.dtype, _Any)):
        yield value


def _tensors(value: Any):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)


def _words(call: tuple) -> str:
    name = resolve_name(call[0]) or getattr(call[0], "__name__", str(call[0]))
    return f"{name}{call[1]}" if call[1] else name
