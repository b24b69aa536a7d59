"""The standard library, as forward's code calls it: what answers the same at every call, and what
looks attributes up by text.

questions.py asks what a user's code names, state_walk.py what a module holds, observation.py what
is called.
"""

import functools
import operator
import sys
import types
import typing
from typing import Any

# Of the standard library these answer the same at every call, also what of them is written in C,
# as _warnings. That forward warns is seen by warned.py.
_PURE = {
    "math", "cmath", "functools", "itertools", "operator", "collections", "typing", "types",
    "dataclasses", "copy", "enum", "abc", "contextlib", "numbers", "re", "string", "warnings",
    "__future__", "bisect", "heapq", "builtins", "weakref", "contextvars", "fractions", "decimal",
    "logging", "textwrap", "statistics", "inspect", "array", "threading", "importlib",
    "_frozen_importlib", "_frozen_importlib_external", "json", "base64", "difflib", "unicodedata",
    "ast", "keyword", "pprint", "reprlib", "copyreg", "calendar", "weakrefset", "struct", "zlib",
    "binascii", "hashlib", "colorsys", "html", "graphlib", "sre", "sha1", "sha2", "sha256",
    "sha512", "sha3", "md5", "blake2",
}  # fmt: skip
# And these functions of modules that ask the system otherwise.
_PURE_FUNCTIONS = ("pathlib.PurePath.", "pathlib.Path.__") + tuple(
    f"posixpath.{name}" for name in (
        "join", "basename", "dirname", "split", "normpath", "commonprefix", "isabs", "normcase",
        "commonpath", "_get_sep",
    )
)  # fmt: skip
# What the frames of a call are is no part of it.
_OF_FRAMES = {f"inspect.{name}" for name in ("stack", "currentframe", "trace", "getouterframes")}
# What a name stands for is found where no guard looks.
_BY_NAME = {"logging.getLogger"}
_OF_THREADS = {
    "current_thread", "get_ident", "get_native_id", "main_thread", "active_count", "start",
}  # fmt: skip
# Its functions read whatever an object has.
LOOK_INTO = {"copy", "dataclasses", "inspect", "json", "pickle", "pprint", "reprlib", "string"}
# Of builtins those that look up an attribute by a text that they are given.
_BY_TEXT = {
    id(f) for f in (
        getattr, hasattr, setattr, delattr, vars, dir, object.__getattribute__, object.__setattr__,
        type.__getattribute__, object.__reduce_ex__, str.format, str.format_map,
    )
}  # fmt: skip


def home_of(function: Any) -> str:
    """The package that a function is of."""
    while isinstance(function, functools.partial):
        function = function.func
    module = getattr(function, "__module__", None)
    return module.partition(".")[0] if isinstance(module, str) else ""


def is_impure(function: Any) -> bool:
    """Whether the answer of a function of the standard library may change, as time.time's."""
    while isinstance(function, functools.partial):
        function = function.func
    top = home_of(function)
    if not top or isinstance(function, type) or getattr(function, "__name__", "") == "__del__":
        return False
    name = f"{function.__module__}.{getattr(function, '__qualname__', '')}"
    if top in ("threading", "_thread"):
        return getattr(function, "__name__", "") in _OF_THREADS
    pure = _is_pure(top) or name.startswith(_PURE_FUNCTIONS)
    return name in _OF_FRAMES | _BY_NAME or (top in sys.stdlib_module_names and not pure)


def is_impure_module(module: types.ModuleType) -> bool:
    """Whether it is of the standard library, and what it holds is no constant."""
    top = module.__name__.partition(".")[0]
    return top in sys.stdlib_module_names and not _is_pure(top)


def _is_pure(package: str) -> bool:
    return not _PURE.isdisjoint((package, package.removeprefix("_")))


def names_in(value: Any) -> set[str] | None:
    """The attributes that a callable of the standard library's looks up by text, or isinstance for
    a Protocol; None: any."""
    if isinstance(value, (operator.attrgetter, operator.methodcaller)):
        given = value.__reduce__()[1]
        of_text = isinstance(value, operator.attrgetter)
        return {word for text in (given if of_text else given[:1]) for word in text.split(".")}
    if isinstance(value, type) and getattr(value, "_is_protocol", False):
        return set(typing._get_protocol_attrs(value))
    return None if id(value) in _BY_TEXT else set()
