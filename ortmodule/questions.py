"""What forward may not ask while it is captured: the answer would be the trace's, not eager's.

observe.py's names are looked through by rehearse.py at each function that forward enters.
"""

import builtins
import functools
import sys
import types
from typing import Any

from . import kinds, observe
from .errors import NotCapturable, OnlyEager

# Of tensors: a traced tensor answers otherwise, or its answer is no part of the graph.
_OF_TENSORS = {
    "grad": "a gradient", "grad_fn": "a tensor's grad_fn", "is_leaf": "whether a tensor is a leaf",
    "_base": "what a tensor is a view of", "_is_view": "whether a tensor is a view",
    "_version": "a tensor's version", "data_ptr": "where a tensor's memory is",
    "retain_grad": "to keep a gradient", "retains_grad": "whether a gradient is kept",
    "is_inference": "whether a tensor is an inference tensor",
    "register_multi_grad_hook": "for a hook on gradients", "_cdata": "where a tensor's memory is",
    "untyped_storage": "for a tensor's storage", "backward": "for a backward",
    "storage_offset": "where a tensor begins in memory",
    "__torch_function__": "for torch functions to be overridden",
}  # fmt: skip
# Parts would not answer as eager either: the node of a part is behind all that it gives, and Dynamo
# guards no place in memory.
ONLY_EAGER = frozenset({"grad_fn", "storage_offset"})
# How code asks whether it is traced.
OF_THE_TRACE = frozenset({"is_compiling", "is_dynamo_compiling", "is_exporting"})
# Installed packages ask it under conditions that may not hold: patches.py refuses it where it is.
_REFUSED_WHEN_ASKED = {"data_ptr"}
# Of torch, by the user's own code: state of the process or the thread that is in no guard.
_OF_TORCH = {
    "are_deterministic_algorithms_enabled", "is_deterministic_algorithms_warn_only_enabled",
    "get_num_threads", "get_num_interop_threads", "get_float32_matmul_precision",
    "is_warn_always_enabled", "get_default_device", "is_anomaly_enabled", "get_rng_state",
    "initial_seed", "default_generator", "get_deterministic_debug_mode",
    "get_printoptions", "set_printoptions", "set_default_dtype",
    "set_num_threads", "use_deterministic_algorithms", "set_default_device",
    "set_float32_matmul_precision", "set_flush_denormal", "backends",
}  # fmt: skip
# Of the standard library these answer the same at every call.
_PURE = {
    "math", "cmath", "functools", "itertools", "operator", "collections", "typing", "types",
    "dataclasses", "copy", "enum", "abc", "contextlib", "numbers", "re", "string", "warnings",
    "__future__", "bisect", "heapq", "builtins", "weakref", "contextvars", "fractions", "decimal",
    "logging", "textwrap", "statistics", "inspect", "_weakref", "_contextvars", "_collections",
    "_functools", "_operator", "_bisect", "_heapq", "_abc", "array", "threading",
}  # fmt: skip
_BUILTINS = {
    "print", "open", "input", "eval", "exec", "globals", "locals", "__import__", "compile",
    "breakpoint", "hash", "memoryview",
}  # fmt: skip
_OF_THREADS = {"current_thread", "get_ident", "get_native_id", "main_thread", "active_count"}


def check(function: types.FunctionType | None, code: types.CodeType, kind: int) -> None:
    """Raises NotCapturable for the first question in `code` that has no answer in a capture."""
    facts = observe.facts_of(code)
    for name, what in _OF_TENSORS.items():
        if name in facts.looked_up and (kind == observe.OWN or name not in _REFUSED_WHEN_ASKED):
            inner = name == "grad" and "autograd" in facts.looked_up  # which may create a graph
            kind_of_error = OnlyEager if inner or name in ONLY_EAGER else NotCapturable
            _refuse(f"forward asks {what} ({name})", code, facts.attributes[name], kind_of_error)
    if kind != observe.OWN:
        return
    for name, local, line in facts.asked_of:
        if local not in ("self", "cls", "ctx", "__class__"):
            question = f"{local}.__class__" if name == "__class__" else f"{name}({local})"
            _refuse(f"forward asks {question}, which differs while it is traced", code, line)
    scope = function.__globals__ if function is not None else {}
    for name, line in facts.globals.items():
        if name in _BUILTINS and name not in scope and hasattr(builtins, name):
            _refuse(f"forward calls {name}()", code, line)
        _check_value(name, scope.get(name), facts, code, line)
    for name, line in facts.imports.items():
        _check_value(name, sys.modules.get(name), facts, code, line)


def _check_value(name: str, value: Any, facts: Any, code: types.CodeType, line: int) -> None:
    if isinstance(value, types.ModuleType):
        top = value.__name__.partition(".")[0]
        for asked, at in facts.attributes.items():
            found = vars(value).get(asked)
            if top == "torch" and asked in _OF_TORCH:
                _refuse(f"forward asks {name}.{asked}, which no guard holds", code, at)
            if callable(found) and (_is_impure(found) or _is_impure_module(value)):
                _refuse(f"forward calls {name}.{asked}", code, at)
            if _is_impure_module(value) and _holds_state(found):
                _refuse(f"forward reads {name}.{asked}", code, at)
    elif callable(value) and not isinstance(value, type) and _is_impure(value):
        _refuse(f"forward calls {name}", code, line)
    elif getattr(value, "__module__", None) == "torch" and name in _OF_TORCH:
        _refuse(f"forward asks {name}(), which no guard holds", code, line)


def _is_impure(function: Any) -> bool:
    """A function of the standard library whose answer may change, as time.time."""
    while isinstance(function, functools.partial):
        function = function.func
    module = getattr(function, "__module__", None)
    if not isinstance(module, str) or isinstance(function, type):
        return False
    if module == "threading" or module == "_thread":
        return getattr(function, "__name__", "") in _OF_THREADS
    top = module.partition(".")[0]
    return top in sys.stdlib_module_names and top not in _PURE


def _holds_state(value: Any) -> bool:
    """As os.environ and sys.argv do, os.sep and os.path do not."""
    return not isinstance(value, (types.ModuleType, tuple)) and not kinds.is_plain(value)


def _is_impure_module(module: types.ModuleType) -> bool:
    top = module.__name__.partition(".")[0]
    return top in sys.stdlib_module_names and top not in _PURE


def _refuse(
    reason: str, code: types.CodeType, line: int, kind: type[NotCapturable] = NotCapturable
) -> None:
    raise kind(reason, file=code.co_filename, line=line)
