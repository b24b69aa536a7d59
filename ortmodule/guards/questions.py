"""What forward may not ask while it is captured: the answer would be the trace's, not eager's.

observation.py's names are looked through by fake_run.py at each function that forward enters.
"""

import builtins
import collections
import sys
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import torch

from ..errors import NeedsCut, NotCapturable
from ..places import caller_place
from . import observation, standard_library, state_kinds, tensor_questions

# Of tensors, by functions that are no attributes of theirs; tensor_questions.py has the others.
_OF_TENSORS = {
    "register_multi_grad_hook": "for a hook on gradients",
    "__torch_function__": "for torch functions to be overridden",
    "has_torch_function": "for torch functions to be overridden",
    "initial_seed": "a generator's seed",
}  # fmt: skip
_CUT_AT = {"register_multi_grad_hook"}
# How code asks whether it is traced; and files whose functions pass a call on.
OF_THE_TRACE = frozenset({"is_compiling", "is_dynamo_compiling", "is_exporting"})
# By these it tells that tensors are fake, or that modes of a trace are active.
_OF_FAKES = {
    "FakeTensor", "FakeTensorMode", "detect_fake_mode", "_get_current_dispatch_mode",
    "_get_current_dispatch_mode_stack", "_get_current_function_mode",
    "_get_current_function_mode_stack", "_len_torch_dispatch_stack", "_len_torch_function_stack",
}  # fmt: skip
# Torch's own code that has hooks run when a layer raises, unless it is told of the trace.
CALL_OF_LAYER = "_call_impl"
_PASSING_ON = ("typing_extensions.py", "warnings.py")
# Called by name, of a context that Dynamo would forget how to leave.
_BY_HAND = frozenset({"__enter__", "__exit__"})
# Of tensors that are registered, as no tensor is that a step is given.
_CLASSES = {"Parameter", "Buffer", "UninitializedParameter", "UninitializedBuffer"}
# They set an attribute by a text.
_BY_TEXT = {"setattr", "delattr", "vars", "__dict__", "__setattr__", "__delattr__"}
# They change an order that Dynamo does not write back.
_OF_ORDER = frozenset({"move_to_end"})
# Of torch, by the user's own code: state of the process or the thread that is in no guard.
_OF_TORCH = {
    "get_num_threads", "get_num_interop_threads", "get_float32_matmul_precision",
    "is_warn_always_enabled", "get_default_device", "is_anomaly_enabled", "get_rng_state",
    "initial_seed", "default_generator", "get_overwrite_module_params_on_conversion",
    "get_swap_module_params_on_conversion",
    "get_printoptions", "set_printoptions", "set_default_dtype",
    "set_num_threads", "use_deterministic_algorithms", "set_default_device",
    "set_float32_matmul_precision", "set_flush_denormal", "backends", "swap_tensors",
    "set_detect_anomaly",
}  # fmt: skip
_OF_NUMPY = {"geterr", "seterr", "geterrcall", "seterrcall", "get_printoptions", "set_printoptions"}
_WITHOUT_GUARD = {"torch": _OF_TORCH, "numpy": _OF_NUMPY, "warnings": {"filters"}}
# Of a lock, which another thread may hold.
_OF_LOCKS = {"locked", "acquire", "_is_owned"}
# Dynamo cuts at these.
_CUT_AT_BUILTINS = {"print", "open", "input", "breakpoint", "eval", "exec", "compile"}
_BUILTINS = _CUT_AT_BUILTINS | {
    "globals", "locals", "__import__", "hash", "memoryview",
}  # fmt: skip
# With so many arguments or fewer they read the locals of their caller, of which those that no code
# names are gone behind a cut.
_OF_LOCALS = {"eval": 1, "exec": 1, "vars": 0, "dir": 0}
# Of the standard library: another at each call, and Dynamo cuts there.
_CUT_AT_MODULES = {"random", "time"}


def check(function: types.FunctionType | None, code: types.CodeType, kind: int) -> None:
    """Raises NotCapturable for the first question in `code` that has no answer in a capture; before
    one that parts have an answer to comes one that they have none to."""
    found = list(_asked(code, _scope(function, code), kind))
    for error in sorted(found, key=lambda error: isinstance(error, NeedsCut))[:1]:
        raise error


def _scope(function: types.FunctionType | None, code: types.CodeType) -> Mapping:
    """What the names in `code` stand for: cells and globals."""
    scope = function.__globals__ if function is not None else {}
    cells = zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=False)
    return collections.ChainMap({name: state_kinds.content_of(cell) for name, cell in cells}, scope)


def check_called(function: types.FunctionType) -> None:
    """Raises NotCapturable where the user's code calls a function of the standard library whose
    answer no guard holds."""
    home = standard_library.home_of(function)
    name = f"{function.__module__}.{function.__qualname__}"
    if standard_library.is_impure(function):
        refusal = NeedsCut if home in _CUT_AT_MODULES else NotCapturable
        raise refusal(f"forward calls {name}", **caller_place())


def check_in_parts(code: types.CodeType, scope: dict) -> None:
    """Raises NotCapturable for the first question in the user's `code` that Dynamo answers once, or
    that a part answers otherwise than eager. scope: the globals of the code."""
    if observation.kind_of_file(code.co_filename) != observation.OWN:
        return  # written to be traced
    for error in _asked(code, scope, observation.OWN):
        if not isinstance(error, NeedsCut):
            raise error
    facts = observation.facts_of(code)
    for name in tensor_questions.ONLY_EAGER.keys() & facts.looked_up:
        raise tensor_questions.refusal(name, file=code.co_filename, line=facts.attributes[name])
    for name in _OF_ORDER & facts.looked_up:
        reason = f"forward changes the order of a dict ({name}), which parts do not write back"
        raise NotCapturable(reason, file=code.co_filename, line=facts.attributes[name])
    if facts.deleted or "forward" in facts.stored or _sets_by_text("forward", code, facts):
        name = min(facts.deleted, default="forward")
        reason = f"forward sets or deletes {name} of an object, whose class may have that too"
        raise NotCapturable(reason, file=code.co_filename, line=facts.attributes.get(name))
    for name in _BY_HAND & (facts.attributes.keys() | facts.globals.keys()):
        line = facts.attributes.get(name) or facts.globals[name]
        raise NotCapturable(f"forward calls {name} itself", file=code.co_filename, line=line)


def _sets_by_text(name: str, code: types.CodeType, facts: observation.CodeFacts) -> bool:
    """Whether `code` may set an attribute by a text that stands in it."""
    by_text = _BY_TEXT & (facts.attributes.keys() | facts.globals.keys())
    return bool(by_text) and name in code.co_consts


def asks_whether_traced(code: types.CodeType) -> bool:
    """Whether it is a package's code that asks so, which may be told."""
    facts = observation.facts_of(code)
    asks = OF_THE_TRACE & (facts.attributes.keys() | facts.globals.keys())
    return bool(asks) and observation.kind_of_file(code.co_filename) != observation.OWN


def check_in_body(function: types.FunctionType | None, code: types.CodeType, kind: int) -> None:
    """Raises NotCapturable where the user's code asks whether it is traced within torch.cond and
    the like: eager has Dynamo compile what is there, and so tells it otherwise than around."""
    if kind != observation.OWN:
        return
    facts, scope = observation.facts_of(code), _scope(function, code)
    named = {name for name in (*facts.globals, *code.co_freevars) if _asks(scope.get(name))}
    for name in OF_THE_TRACE & facts.attributes.keys() | named:
        line = facts.attributes.get(name) or facts.globals.get(name) or code.co_firstlineno
        reason = "forward asks within control flow of torch's whether it is traced"
        raise NotCapturable(reason, file=code.co_filename, line=line)


def check_in_function(
    function: types.FunctionType | None, code: types.CodeType, kind: int, given: Collection[str]
) -> None:  # fmt: skip
    """Raises NotCapturable where code of an autograd.Function asks which tensor it was given: at
    each call it is given another one of the same values. given: attributes of its tensors."""
    if kind not in (observation.OWN, observation.PACKAGE):
        return
    facts, scope = observation.facts_of(code), _scope(function, code)
    named = {**facts.globals, **facts.attributes}
    asked = {f"of which class a tensor is ({n})": named[n] for n in _CLASSES & named.keys()}
    asked |= {f"for {n} of a tensor": facts.attributes[n] for n in given if n in facts.attributes}
    if given and facts.any_name:
        asked["for an attribute of a tensor"] = code.co_firstlineno
    own = kind == observation.OWN  # packages ask of other objects so
    for name, local, line in facts.asked_of if own else ():
        if local not in ("self", "cls", "ctx", "__class__"):
            asked[f"{name}({local})"] = line
    for path, line in facts.identities if own else ():
        if _may_be_tensor(path, scope):
            asked["which object a tensor is"] = line
    for what, line in asked.items():
        reason = f"an autograd.Function asks {what}, which its step gives it anew"
        raise NotCapturable(reason, file=code.co_filename, line=line)


def _may_be_tensor(path: tuple[str, ...], scope: Mapping) -> bool:
    """Whether what is looked up so may be one; of an empty path it is not known."""
    value = scope.get(path[0]) if path else None
    for name in path[1:]:
        value = getattr(value, name, None)
    return value is None or isinstance(value, torch.Tensor)


def _asks(value: Any) -> bool:
    """Whether it is one of torch's functions that tell whether code is traced."""
    is_torchs = str(getattr(value, "__module__", "")).startswith("torch.")
    return is_torchs and getattr(value, "__name__", None) in OF_THE_TRACE


def is_told_of_the_trace(asking: Iterable[types.CodeType]) -> bool:
    """Whether who asks if it is traced is told so: an installed package is, whose code is written
    to be traced; the user's own code gets eager's answer. asking: the code that asks, and what
    called it, a package's function that only passes the question on among it."""
    for code in asking:
        if code.co_name not in OF_THE_TRACE and not code.co_filename.endswith(_PASSING_ON):
            return observation.kind_of_file(code.co_filename) != observation.OWN
    return False


def _asked(code: types.CodeType, scope: Mapping, kind: int) -> Iterator[NotCapturable]:
    facts = observation.facts_of(code)

    def refusal(reason: str, line: int, cut: bool = False) -> NotCapturable:
        return (NeedsCut if cut else NotCapturable)(reason, file=code.co_filename, line=line)

    if kind != observation.OWN:
        return
    for name, what in _OF_TENSORS.items():
        if name in facts.looked_up:
            yield refusal(f"forward asks {what} ({name})", facts.attributes[name], name in _CUT_AT)
    named = {**facts.attributes, **facts.globals}
    for name in _OF_FAKES & named.keys():
        yield refusal(f"forward asks whether a trace runs ({name})", named[name])
    for name in _OF_LOCKS & facts.looked_up:
        yield refusal(f"forward asks whether a lock is held ({name})", facts.attributes[name], True)
    for name, local, line in facts.asked_of:
        if local not in ("self", "cls", "ctx", "__class__"):
            question = f"{local}.__class__" if name == "__class__" else f"{name}({local})"
            yield refusal(f"forward asks {question}, which differs while it is traced", line, True)
    for name, line in facts.globals.items():
        if name in _OF_LOCALS and name not in scope:
            given = observation.arguments_given(code, name)
            if any(count is None or count <= _OF_LOCALS[name] for count in given):
                yield refusal(f"forward calls {name}() of its own locals", line)
                continue
        if name in _BUILTINS and name not in scope and hasattr(builtins, name):
            yield refusal(f"forward calls {name}()", line, name in _CUT_AT_BUILTINS)
        for reason, at, cut in _of_value(name, scope.get(name), facts, line):
            yield refusal(reason, at, cut)
    for name in code.co_freevars:
        for reason, at, cut in _of_value(name, scope.get(name), facts, code.co_firstlineno):
            yield refusal(reason, at, cut)
    for name, line in facts.imports.items():
        for reason, at, cut in _of_value(name, sys.modules.get(name), facts, line):
            yield refusal(reason, at, cut)


def _of_value(name: str, value: Any, facts: Any, line: int) -> Iterator[tuple[str, int, bool]]:
    """What is asked of a global: (reason, line, whether Dynamo cuts there)."""
    if "decimal" in (getattr(value, "__module__", None), getattr(value, "__name__", None)):
        yield "forward computes with decimals, whose context no guard holds", line, False
    elif isinstance(value, types.ModuleType):
        top = value.__name__.partition(".")[0]
        for asked, at in facts.attributes.items():
            found = vars(value).get(asked)
            if isinstance(found, types.ModuleType) and found is not value and top != "torch":
                yield from _of_value(f"{name}.{asked}", found, facts, line)
            if asked in _WITHOUT_GUARD.get(top, ()):
                yield f"forward asks {name}.{asked}, which no guard holds", at, False
            elif callable(found) and (
                standard_library.is_impure(found) or standard_library.is_impure_module(value)
            ):
                yield f"forward calls {name}.{asked}", at, top in _CUT_AT_MODULES
            elif standard_library.is_impure_module(value) and _holds_state(found):
                yield f"forward reads {name}.{asked}", at, False
    elif callable(value) and not isinstance(value, type) and standard_library.is_impure(value):
        yield f"forward calls {name}", line, standard_library.home_of(value) in _CUT_AT_MODULES
    elif getattr(value, "__module__", None) == "torch" and name in _OF_TORCH:
        yield f"forward asks {name}(), which no guard holds", line, False


def _holds_state(value: Any) -> bool:
    """As os.environ and sys.argv do, os.sep and os.path do not."""
    return not isinstance(value, (types.ModuleType, tuple)) and not state_kinds.is_plain(value)
