"""Dynamo, set up for parts: what of torch.compile's machinery is used, and with which settings.

parts.py says what is done with each graph. Bytecode analysis, guards and resumption are torch's
own; its guards on hooks and on tensors that share memory, which torch.compile leaves out, are on.
"""

import contextlib
import functools
import inspect
import itertools
import os
import re
import threading
import types
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from torch import fx, nn

from ..errors import NotCapturable, let_go
from ..explain import Break
from ..fork import guarded
from ..places import PACKAGE, TORCH, traced_place, user_place
from ..python_ops.contexts import autocast_kept
from ..python_ops.floats import constants_after_one
from ..side_effects.told_warnings import told_stays_told
from ..torch_internals.dynamo import (
    ConvertFrameReturn,
    DeletedGuardManagerWrapper,
    DynamoContext,
    DynamoHooks,
    FrameAction,
    FrameExecStrategy,
    cache_entries,
    convert_frame,
    dynamo_config,
    dynamo_guards,
    dynamo_utils,
    reset_code,
    set_code_exec_strategy,
)
from ..torch_internals.replace import LOCK, replaced
from .breaks import (
    asked_of_the_trace,
    asks_of_tensors,
    autocast_set,
    cut_at_checkpoints,
    cut_at_collectives,
    cut_at_hooks,
    cut_at_largest,
    cut_at_rounding,
    functions_as_they_are,
    inlined,
    reads_of_objects,
    subclasses_made,
    text_as_it_is,
    texts_compared,
)
from .containers import lists_written_in_place, sets_as_they_are
from .held_objects import (
    contents_as_they_are,
    identities_as_they_are,
    looked_up_attributes_guarded,
    methods_in_c_guarded,
    missing_attributes_as_they_are,
    missing_keys_guarded,
    setattr_gives_none,
    truth_of_objects,
    tuples_as_made,
)
from .outside import inside, leave
from .told_apart import (
    aliases_guarded,
    arrays_as_they_are,
    guards_as_exact,
    identities_of_values,
    large_integers_as_they_are,
    numpy_scalars_as_they_are,
    slices_as_they_are,
)

# So often a function is looked at for one module, or for none.
_LIMIT, _LIMIT_OF_NONE = 16, 32
_SETTINGS = {
    "skip_nnmodule_hook_guards": False,
    "skip_no_tensor_aliasing_guards_on_parameters": False,
    "skip_guards_on_constant_func_defaults": False,
    "skip_tensor_guards_with_matching_dict_tags": False,
    "use_recursive_dict_tags_for_guards": False,
    "recompile_limit": 1 << 30,  # of all modules; each has a limit of its own
    "accumulated_recompile_limit": 1 << 30,
    "optimize_ddp": False,
    "allow_unspec_int_on_nn_module": True,
    "record_runtime_overhead": False,
    "allow_rnn": True,
    "trace_numpy": False,  # its scalars would be arrays, of other dtypes beside tensors
}
_NUMBER = re.compile(r"^\d+/\d+: ")
_LAYERS = os.path.join(TORCH, "nn", "modules", "")
_AWAITED = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_AS_IT_IS = FrameExecStrategy(FrameAction.SKIP, FrameAction.DEFAULT)
_NOTHING = FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP)
_UNKNOWN = FrameExecStrategy(FrameAction.DEFAULT, FrameAction.DEFAULT)
_USES: Counter[types.CodeType] = Counter()


class Listener(Protocol):
    """What Dynamo's findings are told to. `refusal`: not None once nothing more is to be cut;
    `strict`: it is raised then, before anything of the function has run."""

    refusal: Exception | None
    strict: bool

    def looked_at(self, code: types.CodeType) -> None:
        """Dynamo traces this function."""

    def entered(
        self, code: types.CodeType, scope: dict, function: types.FunctionType | None
    ) -> None:  # fmt: skip
        """A function with these globals is looked at, None: it is not known which; raises where it
        is nothing for parts."""

    def asked(self, refusal: NotCapturable) -> None:
        """What only eager answers is asked; raises it."""

    def undone(self, functions: list) -> contextlib.AbstractContextManager:
        """Within, these functions may run: what they write is put back."""

    def made(self, graph: fx.GraphModule) -> Callable:
        """What runs this graph."""

    def broke(self, found: Break) -> None:
        """A graph ends."""

    def missed(self, guard: str) -> None:
        """A function is looked at again, as this does not hold."""


class _Running:
    """The calls that go on in any thread: Dynamo looks code up in a list from which nothing may be
    taken meanwhile. What waits for their end never waits for Dynamo's lock: it may be asked for by
    a thread that has it, as the garbage collector runs anywhere."""

    def __init__(self):
        self._lock = guarded(threading.RLock())
        self._calls = 0
        self._waiting: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        with self._lock:
            self._calls += 1

    def __exit__(self, *_: Any) -> None:
        with self._lock:
            self._calls -= 1
            self._flush()

    def afterwards(self, action: Callable[[], None]) -> None:
        """Calls it once nothing runs."""
        with self._lock:
            self._waiting.append(action)
            self._flush()

    def _flush(self) -> None:
        if not self._waiting or self._calls or not convert_frame.compile_lock.acquire(False):
            return  # a later call's end does it
        try:
            while self._waiting:
                self._waiting.pop()()
        finally:
            convert_frame.compile_lock.release()


_RUNNING = _Running()
guarded(convert_frame.compile_lock)


class DynamoRunner:
    """Calls functions of a module in parts, for a listener that is not kept alive."""

    def __init__(self, listener: Listener, module: nn.Module):
        _looked_at_again(module)
        codes: set[types.CodeType] = set()
        told = weakref.ref(listener)  # cached code holds the two functions here
        hooks = DynamoHooks(guard_fail_fn=lambda failed: _tell_missed(told(), failed))
        convert = _Convert(told, codes, hooks, lambda graph, _inputs: told().made(graph))
        convert.known(module)
        self._context = DynamoContext(convert, first_ctx=True, hooks=hooks)
        forget = functools.partial(_forget, codes, convert._torchdynamo_orig_backend)
        weakref.finalize(self, _RUNNING.afterwards, forget)

    def of(self, function: Callable) -> Callable:
        run = self._context(function)

        def call(*args: Any, **kwargs: Any) -> Any:
            with _RUNNING:
                return run(*args, **kwargs)

        return call


class _Convert:
    """Dynamo's callback for a frame, which never fails: what cannot be converted runs as it is.
    The settings and replacements within are the process's, so no other compile goes on beside it.

    What is passed over is remembered here: on the code itself it would hold for other modules too.
    """

    def __init__(
        self, told: Callable[[], Listener], codes: set, hooks: DynamoHooks, make: Callable
    ):
        self._codes, self._told, self._hooks = codes, told, hooks
        self._looks: Counter[tuple] = Counter()
        self._modules: frozenset[int] = frozenset()
        self._passed: dict[tuple, FrameExecStrategy] = {}
        self._inner = convert_frame.convert_frame_assert(make, one_graph=False)
        self._checked = convert_frame.catch_errors_wrapper(self._look_into, hooks)
        self._torchdynamo_orig_backend = make  # what cached code belongs to

    def __call__(self, frame: Any, cached: Any, state: dict) -> ConvertFrameReturn:
        if frame.f_code.co_filename.startswith(PACKAGE):  # as a second run, within a backward
            return _passed(_NOTHING)
        if frame.f_code.co_flags & _AWAITED:  # what Dynamo makes of it is no coroutine
            return _passed(_AS_IT_IS)
        if (key := self._key(frame)) in self._passed:
            return _passed(self._passed[key])
        changes = (
            dynamo_config.patch(_SETTINGS), cut_at_hooks(), constants_after_one(), autocast_kept(),
            functions_as_they_are(self._told().undone), cut_at_collectives(), cut_at_checkpoints(),
            text_as_it_is(), texts_compared(), contents_as_they_are(), truth_of_objects(),
            identities_as_they_are(), missing_keys_guarded(), missing_attributes_as_they_are(),
            inlined(self._told().entered), asks_of_tensors(self._told().asked),
            reads_of_objects(self._told().asked), subclasses_made(self._told().asked),
            autocast_set(self._told().asked), asked_of_the_trace(), slices_as_they_are(),
            guards_as_exact(),
            aliases_guarded(), large_integers_as_they_are(), numpy_scalars_as_they_are(),
            identities_of_values(self._told().asked), tuples_as_made(), cut_at_largest(),
            arrays_as_they_are(), looked_up_attributes_guarded(), _guards_untimed(),
            methods_in_c_guarded(), setattr_gives_none(), told_stays_told(),
            sets_as_they_are(self._told().asked), lists_written_in_place(), cut_at_rounding(),
        )  # fmt: skip
        with LOCK, convert_frame.compile_lock, inside(), contextlib.ExitStack() as stack:
            try:
                for change in changes:
                    stack.enter_context(change)
                result = self._looked(frame, cached, state)
            except NotCapturable as error:  # this torch lacks what is to be replaced
                self._told().asked(error)
                result = _passed(_NOTHING)
        listener = self._told()
        if listener.refusal is not None:
            leave()
            if listener.strict:
                raise listener.refusal
        return result

    def _looked(self, frame: Any, cached: Any, state: dict) -> ConvertFrameReturn:
        before = len(dynamo_utils.graph_break_reasons)
        if _is_layer(frame):
            result = self._look_into(frame, cached, self._hooks, state)
        else:
            result = self._checked(frame, cached, state)
        for found in dynamo_utils.graph_break_reasons[before:]:
            self._broke(found.reason, found.user_stack)
        del dynamo_utils.graph_break_reasons[before:]
        return result

    def known(self, module: nn.Module) -> None:
        """The modules that are there before forward runs."""
        self._modules = frozenset(map(id, module.modules()))

    def _key(self, frame: Any) -> tuple:
        """The function and, where it has one among its arguments, the module. One that forward has
        made is another at each call."""
        given = (id(value) for value in frame.f_locals.values() if isinstance(value, nn.Module))
        return frame.f_code, *itertools.islice((m for m in given if m in self._modules), 1)

    def _look_into(
        self, frame: Any, cached: Any, hooks: DynamoHooks, state: dict, skip: int = 0
    ) -> ConvertFrameReturn:
        code = frame.f_code
        if code not in self._codes:
            self._codes.add(code)
            _USES[code] += 1
        self._told().looked_at(code)
        key = self._key(frame)
        self._looks[key] += 1
        limit = _LIMIT if len(key) > 1 else _LIMIT_OF_NONE
        here = [(code.co_filename, code.co_firstlineno)]
        strategy = _AS_IT_IS
        if self._looks[key] > limit:
            self._broke(f"{code.co_name} was looked at {limit} times, no more", here)
        else:
            try:
                self._told().entered(code, frame.f_globals, None)
                found = self._inner(frame, cached, hooks, state, skip=skip + 1)
                if found.guarded_code is not None:
                    return found
                strategy = found.frame_exec_strategy
            except Exception as error:
                self._broke(_first_line(error), getattr(error, "real_stack", None) or here)
                strategy = getattr(error, "frame_exec_strategy", None) or strategy
                let_go(error)
        if self._told().refusal is not None:  # nor is what it calls looked into
            return _passed(_NOTHING)
        self._passed[key] = strategy
        return _passed(strategy)

    def _broke(self, reason: str, stack: Iterable) -> None:
        frames = [(f[0], f[1]) if isinstance(f, tuple) else (f.filename, f.lineno) for f in stack]
        self._told().broke(Break(reason.strip().partition("\n")[0], **_place(frames)))


def _looked_at_again(module: nn.Module) -> None:
    """What a torch.compile passes over it marks on the code, for whoever comes after it."""
    for code in {getattr(m.forward, "__code__", None) for m in module.modules()} - {None}:
        set_code_exec_strategy(code, _UNKNOWN)


def _guards_untimed() -> contextlib.AbstractContextManager:
    """For its log alone, torch empties the processor's caches and times the guards it has made."""
    if not hasattr(dynamo_guards, "profile_guard_manager"):
        return contextlib.nullcontext()
    return replaced(dynamo_guards, "profile_guard_manager", lambda _: lambda *_: 0.0)


def _passed(strategy: FrameExecStrategy) -> ConvertFrameReturn:
    return ConvertFrameReturn(strategy, apply_to_code=False)


def _is_layer(frame: Any) -> bool:
    """Whether it is a layer of torch's, which Dynamo passes over where no graph calls it."""
    return frame.f_code.co_name == "forward" and frame.f_code.co_filename.startswith(_LAYERS)


def _tell_missed(listener: Listener | None, failed: Any) -> None:
    if listener is not None:
        listener.missed(_guard_in(str(failed.reason)))


def _guard_in(reason: str) -> str:
    """The guard that did not hold, with the line of forward that asked: "0/0: x == 1  # y = x  #
    file:3 in forward" and a stack are what Dynamo says."""
    guard = _NUMBER.sub("", reason.partition("\n")[0]).partition("  # ")[0].strip()
    place = traced_place(reason)
    return f"{guard} at {place['file']}:{place['line']}" if place else guard


def _place(frames: list[tuple[str, int]]) -> dict:
    return {"file": None, "line": None, **user_place(frames)}


def _first_line(error: BaseException) -> str:
    line = (str(error).strip().splitlines() or [""])[0]
    return line if type(error).__name__ == "Unsupported" else f"{type(error).__name__}: {line}"


def _forget(codes: set[types.CodeType], make: Callable) -> None:
    """Drops what Dynamo keeps for a module that is gone."""
    with convert_frame.compile_lock:
        for code in codes:
            _USES[code] -= 1
            if not _USES[code]:
                del _USES[code]
                reset_code(code)
                continue
            for entry in cache_entries(code):
                if entry.backend is make:
                    gone = DeletedGuardManagerWrapper("the module is gone")
                    entry.guard_manager.extra_state.invalidate(entry, gone)
