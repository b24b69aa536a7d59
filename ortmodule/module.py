"""ORTModule: the wrapper that a user's training loop calls.

It keeps the captures of its module, picks the one that fits each call, makes one where none does,
and runs the module eagerly, with a report, where a capture cannot be had.
"""

import collections
import functools
import os
import threading
import warnings
from typing import Any, NamedTuple

from torch import nn

from . import _native, tree
from .capture import Capture, capture
from .errors import NotCapturable
from .explain import Fallback, Report, Step
from .export import export
from .guards import Snapshot, call_key
from .options import Options
from .rehearse import eager_error

# Captures kept for one module, least recently used dropped.
_KEPT = 16
# A call that was refused is tried again when the module changed, this many times.
_TRIES = 3
# Where this many captures in a row served fewer calls each, something changes all the time: the
# module runs in eager until it has been the same for as many calls as that.
_UNSETTLED, _FEW = 8, 4
_OWN = ("explain", "export_onnx", "module")


class ORTModule(nn.Module):
    """Runs `module` through the engine: same call, parameters, state_dict and forward signature.

    `model = ORTModule(model)` is all that a training loop needs; `model.explain()` says what ran.
    Parameters are shared, not copied. Raises TypeError when `module` is no nn.Module.
    """

    def __init__(self, module: nn.Module, options: Options | None = None):
        if not isinstance(module, nn.Module):
            raise TypeError(f"ORTModule wraps an nn.Module, got {type(module).__name__}")
        super().__init__()
        _native.torch_bridge()
        state = self.__dict__
        state["_wrapped"] = module
        state["_options"] = options or Options()
        for shared in ("_parameters", "_buffers", "_modules"):
            state[shared] = module.__dict__[shared]
        state["_kept"] = collections.OrderedDict()
        state["_refused"] = {}
        state["_unsettled"] = {}
        state["_fallbacks"] = {}
        state["_on_aten"] = {}
        state["_captures"] = state["_dropped_plans"] = 0
        state["_latest"] = None
        state["_repeat"] = None
        state["_last_call"] = None
        state["_lock"] = threading.RLock()
        state["forward"] = _with_signature_of(module, self)
        taken = [name for name in _OWN if hasattr(module, name)]
        if taken:
            warnings.warn(
                f"{type(module).__name__} has its own {', '.join(taken)}; ORTModule's win. "
                "The module's are at model.module",
                stacklevel=2,
            )

    def __new__(cls, module: nn.Module | None = None, _options: Options | None = None):
        """Of a class that has the special methods of `module`'s: a Sequential's items, its len."""
        return super().__new__(_class_for(cls, type(module)))

    # --- the wrapped module shows through ---------------------------------------------------

    @property
    def module(self) -> nn.Module:
        """The wrapped module itself."""
        return self._wrapped

    @property
    def training(self) -> bool:
        return self._wrapped.training

    @training.setter
    def training(self, mode: bool) -> None:
        if "_wrapped" in self.__dict__:  # nn.Module.__init__ sets it before
            self._wrapped.training = mode

    def train(self, mode: bool = True) -> "ORTModule":
        self._wrapped.train(mode)
        return self

    def __getattr__(self, name: str) -> Any:
        wrapped = self.__dict__.get("_wrapped")
        if wrapped is None:
            raise AttributeError(name)
        return getattr(wrapped, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ or isinstance(getattr(type(self), name, None), property):
            object.__setattr__(self, name, value)
        else:
            setattr(self._wrapped, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._wrapped, name)

    def state_dict(self, *args, **kwargs):
        return self._wrapped.state_dict(*args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        return self._wrapped.load_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args, **kwargs):
        return self._wrapped._load_from_state_dict(*args, **kwargs)

    def __reduce__(self):
        return ORTModule, (self._wrapped, self._options)

    def __repr__(self) -> str:
        return f"ORTModule({self._wrapped!r})"

    # --- a call -----------------------------------------------------------------------------

    def _call(self, *args, **kwargs):
        self.__dict__["_last_call"] = (args, kwargs)
        repeat = self._repeat
        if repeat is not None:
            tensors = repeat.call.match(args, kwargs)
            if tensors is not None and repeat.kept.capture.snapshot.changed() is None:
                return self._run(repeat.kept, tensors, repeat.binding, args, kwargs)
        try:
            tensors, spec = tree.flatten([args, kwargs], "arguments")
        except tree.UnknownLeaf as error:
            return self._fall_back(NotCapturable(str(error)), None, args, kwargs)
        key = call_key(spec, tensors)
        with self._lock:
            found = self._find(key, tensors)
            if found is None:
                found = self._capture(key, tensors, args, kwargs)
        if isinstance(found, NotCapturable):
            return self._fall_back(found, key, args, kwargs)
        kept, binding = found
        self.__dict__["_latest"] = kept
        call = _native.torch_bridge().Repeat.of(args, kwargs)
        self.__dict__["_repeat"] = _Repeat(call, kept, binding) if call is not None else None
        return self._run(kept, tensors, binding, args, kwargs)

    def _run(self, kept: "_Kept", tensors: list, binding: dict, args: tuple, kwargs: dict):
        try:
            outputs = kept.run(tensors, self._options.profile)
        except _native.torch_bridge().Error as error:  # as an index out of range: eager's own error
            return self._fall_back(NotCapturable(f"the engine: {error}"), None, args, kwargs)
        kept.calls += 1
        if not kept.ran:  # before that it may be a call that eager refuses too
            self._note(kept)
        return kept.capture.result(outputs, tensors, binding)

    def _note(self, kept: "_Kept") -> None:
        kept.ran = True
        self.__dict__["_captures"] += 1
        self._on_aten.update(dict.fromkeys(kept.operators()))

    def _find(self, key: tuple, tensors: list):
        refused = self._refused.get(key)
        if refused is not None and refused.still_holds():
            return refused.error
        for index in range(len(self._kept.get(key, ()))):
            kept = self._kept[key][index]
            if kept.capture.snapshot.changed() is not None:
                continue
            binding = kept.capture.bind(tensors)
            if binding is not None:
                self._kept.move_to_end(key)
                self._unsettled.pop(key, None)
                return kept, binding
        return self._wait_until_settled(key)

    def _wait_until_settled(self, key: tuple) -> NotCapturable | None:
        """Why this call runs in eager although it could be captured; None when it is captured."""
        newest = self._kept.get(key, ())[:_UNSETTLED]
        if len(newest) < _UNSETTLED or sum(kept.calls for kept in newest) >= _UNSETTLED * _FEW:
            return None
        change = newest[0].capture.snapshot.changed()
        if change is None:  # other sizes, not another state
            return None
        waiting = self._unsettled.get(key)
        if waiting is None or waiting.snapshot.changed() is not None:
            reason = f"{change.partition(' was ')[0]} changes from call to call"
            waiting = self._unsettled[key] = _Unsettled(
                NotCapturable(reason), Snapshot(self._wrapped)
            )
        waiting.calls += 1
        return waiting.error if waiting.calls <= _UNSETTLED * _FEW else None

    def _capture(self, key: tuple, tensors: list, args: tuple, kwargs: dict):
        try:
            captured = capture(self._wrapped, args, kwargs, _native.core().Graph)
            kept = _Kept(captured, self._options)
            kept.compile(tensors)
        except NotCapturable as error:
            tries = self._refused[key].tries + 1 if key in self._refused else 1
            self._refused[key] = _Refused(error, Snapshot(self._wrapped), tries)
            return error
        self._kept.setdefault(key, []).insert(0, kept)
        dropped = self._kept[key][_KEPT:]
        del self._kept[key][_KEPT:]
        while len(self._kept) > _KEPT:
            dropped += self._kept.popitem(last=False)[1]
        self.__dict__["_dropped_plans"] += sum(old.runner.plans() for old in dropped)
        return kept, captured.bind(tensors)

    def _fall_back(self, error: NotCapturable, key: tuple | None, args: tuple, kwargs: dict):
        """Runs eagerly; what eager refuses too is the caller's mistake: nothing to report."""
        if self._options.fallback == "error":
            mistake = eager_error(self._wrapped, args, kwargs)
            if mistake is not None:
                self._refused.pop(key, None)
            raise mistake or error
        try:
            result = self._wrapped(*args, **kwargs)
        except Exception:
            self._refused.pop(key, None)
            raise
        fallback = Fallback(error.op, error.module, error.file, error.line, error.reason)
        if not self._fallbacks:
            warnings.warn(f"ORTModule runs this module in eager PyTorch: {fallback}", stacklevel=4)
        self._fallbacks.setdefault(fallback, None)
        return result

    # --- the truth about what ran -----------------------------------------------------------

    def explain(self) -> Report:
        """What ran so far: steps by provider, fallbacks with their reasons, captures and plans."""
        fallbacks = [*self._fallbacks, *self._on_aten]
        plans = sum(k.runner.plans() for group in self._kept.values() for k in group)
        plans += self._dropped_plans
        kept = self._latest
        if kept is None:
            return Report({}, fallbacks, self._captures, plans, [])
        steps, runner = kept.steps(), kept.runner
        providers = collections.Counter(step.provider for step in steps)
        stash, arena = runner.memory()
        return Report(
            dict(providers), fallbacks, self._captures, plans, steps,
            runner.planned_us() / 1e3, stash, arena, runner.trace(),
        )  # fmt: skip

    def export_onnx(self, path: str | os.PathLike, inputs: tuple | dict | None = None) -> None:
        """Writes the module in eval mode as an ONNX file of standard ops (opset 26, IR 13).

        inputs: arguments of the call to capture, a tuple or a dict of keywords; None: those of the
        last call. Input names are forward's parameter names, symbolic sizes stay symbolic, the
        parameters are inside. Raises NotCapturable, or Error naming the op and module that has no
        standard form.
        """
        if inputs is None:
            if self._last_call is None:
                raise ValueError("export_onnx needs inputs: the module has not been called yet")
            args, kwargs = self._last_call
        else:
            args, kwargs = ((), inputs) if isinstance(inputs, dict) else (tuple(inputs), {})
        export(self._wrapped, args, kwargs, os.fspath(path))


class _Kept:
    """A capture with the runner that executes it."""

    def __init__(self, captured: Capture, options: Options):
        self.capture = captured
        self.ran = False
        self.calls = 0
        sources = [i.index if i.role == "user" else i.tensor for i in captured.inputs]
        wrt = [k for k, i in enumerate(captured.inputs) if i.requires_grad]
        n_outputs = len({o.output for o in captured.outputs} - {None})
        writes = [(w.output, w.target) for w in captured.write_backs]
        self.runner = _native.torch_bridge().Runner(
            captured.graph.capsule(), sources, n_outputs, writes, wrt, captured.saved,
            options.resolved(),
        )  # fmt: skip

    def compile(self, tensors: list) -> None:
        """Builds the plan for these tensors; what the engine refuses is a NotCapturable."""
        try:
            self.runner.compile(tensors)
        except _native.torch_bridge().Error as error:
            raise NotCapturable(f"the engine: {error}") from None

    def run(self, tensors: list, profile: bool) -> list:
        if profile:
            self.runner.start_profile()
        return self.runner.call(tensors)

    def operators(self) -> list[Fallback]:
        """The steps that torch's own operators run, for want of an op of the engine's."""
        reason = "the engine has no op for it: torch's own runs as a step of the plan"
        return [
            Fallback(op, module or None, file or None, line or None, reason)
            for op, module, file, line in self.runner.operators()
        ]

    def steps(self) -> list[Step]:
        return [Step(*step) for step in self.runner.steps()]


class _Repeat(NamedTuple):
    """The latest call that was served, and by what: one like it needs no second look."""

    call: Any
    kept: _Kept
    binding: dict[str, int]


class _Refused:
    """Why a call was not captured, and the module's state in which that is known."""

    def __init__(self, error: NotCapturable, snapshot: Snapshot, tries: int):
        self.error, self.snapshot, self.tries = error, snapshot, tries

    def still_holds(self) -> bool:
        return self.tries >= _TRIES or self.snapshot.changed() is None


class _Unsettled:
    """The state of a module that changes all the time, and for how many calls it has held."""

    def __init__(self, error: NotCapturable, snapshot: Snapshot):
        self.error, self.snapshot, self.calls = error, snapshot, 0


@functools.cache
def _class_for(wrapper: type, wrapped: type) -> type:
    """A subclass of `wrapper` with the special methods that `wrapped` adds to nn.Module's."""
    names = [n for n in dir(wrapped) if n[:2] == n[-2:] == "__" and not hasattr(nn.Module, n)]
    methods = {n: _forwarded(n) for n in names if callable(getattr(wrapped, n))}
    return type(wrapper.__name__, (wrapper,), methods) if methods else wrapper


def _forwarded(name: str):
    def method(self, *args, **kwargs):
        result = getattr(self._wrapped, name)(*args, **kwargs)
        return self if result is self._wrapped else result

    method.__name__ = name
    return method


def _with_signature_of(module: nn.Module, wrapper: ORTModule):
    """A forward that tools may inspect: the module's name, documentation and signature."""

    @functools.wraps(module.forward)
    def forward(*args, **kwargs):
        return wrapper._call(*args, **kwargs)

    return forward
