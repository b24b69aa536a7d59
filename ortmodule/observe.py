"""Which Python code a forward runs, and what that code names: what a capture must rely on.

rehearse.py runs forward under an Observation; walk.py reads its names and roots. Code of torch's
own layers counts for its attribute names; other code of torch, numpy and the standard library holds
no state that a user changes, or is asked about by name (questions.py).
"""

import contextlib
import dataclasses
import dis
import functools
import os
import site
import sys
import sysconfig
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

from . import _native
from .places import PACKAGE as OURS
from .places import TORCH

_LAYERS = tuple(os.path.join(TORCH, "nn", part, "") for part in ("modules", "utils"))
# What a file's code is: passed over, a layer of torch's, an installed package's, the user's own.
PASSED, LAYER, PACKAGE, OWN = range(4)
_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME"}
_BY_TEXT = {"getattr", "hasattr", "setattr", "delattr"}
_HERE = threading.local()
_ANY_NAME = {"vars", "__dict__", "__getattribute__", "attrgetter", "dir", "methodcaller"}


@functools.cache
def _folders() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where installed packages lie, and the standard library."""
    paths = sysconfig.get_paths()
    installed = {paths["purelib"], paths["platlib"], site.getusersitepackages()}
    installed |= set(site.getsitepackages())
    standard = {paths["stdlib"], paths["platstdlib"]}
    return tuple(p + os.sep for p in installed), tuple(p + os.sep for p in standard)


# Installed packages that are passed over; torchvision, timm and the like hold users' modules.
# filelock's audit hook runs in the midst of any code.
KNOWN = (
    "torch", "torchgen", "numpy", "sympy", "triton", "onnx", "setuptools", "pytest", "_pytest",
    "filelock",
)  # fmt: skip
# Code of functions that are made where they run: their closure is what their caller has.
AT_ONCE = ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")


@functools.cache
def kind_of_file(name: str) -> int:
    """PASSED, LAYER, PACKAGE or OWN."""
    if name.startswith(_LAYERS):
        return LAYER
    if name.startswith((TORCH, OURS, "<frozen")):
        return PASSED
    installed, standard = _folders()
    for folder in installed:
        if name.startswith(folder):
            return PASSED if name[len(folder) :].split(os.sep)[0] in KNOWN else PACKAGE
    return PASSED if name.startswith(standard) else OWN


def is_library(module: str) -> bool:
    """A module of torch, numpy or the standard library, by name."""
    top = module.partition(".")[0]
    return top in KNOWN or top in sys.stdlib_module_names


@dataclasses.dataclass(frozen=True, slots=True)
class CodeFacts:
    """What a code object names, each with the line that does first.

    `attributes` are looked up, or are words of its strings where it looks up attributes by text
    (`looked_up`: the former). `any_name`: it may reach an attribute whose name is made as it runs.
    `asked_of`: what `type`, `id` and `__class__` are asked of, as (question, local name, line).
    """

    attributes: dict[str, int]
    looked_up: frozenset[str]
    globals: dict[str, int]
    imports: dict[str, int]
    any_name: bool
    asked_of: tuple[tuple[str, str, int], ...]


@functools.lru_cache(maxsize=8192)
def facts_of(code: types.CodeType) -> CodeFacts:
    """The names in a code object; functions inside it have code of their own."""
    attributes: dict[str, int] = {}
    globals_: dict[str, int] = {}
    imports: dict[str, int] = {}
    asked = []
    steps = [s for s in dis.get_instructions(code) if s.opname not in ("PUSH_NULL", "PRECALL")]
    line = code.co_firstlineno
    for i, step in enumerate(steps):
        line = step.positions.lineno or line
        if step.opname in _GLOBAL:
            globals_.setdefault(step.argval, line)
            if step.argval in ("type", "id") and i + 1 < len(steps):
                asked.append((step.argval, _local(steps[i + 1]), line))
        elif step.opname == "IMPORT_NAME":
            imports.setdefault(step.argval, line)
        elif "ATTR" in step.opname or step.opname in ("LOAD_METHOD", "IMPORT_FROM"):
            attributes.setdefault(step.argval, line)
            if step.argval == "__class__":
                asked.append((step.argval, _local(steps[i - 1]), line))
    texts = [c for c in code.co_consts if isinstance(c, str) and c.isidentifier()]
    looked_up = frozenset(attributes)
    by_text = bool(globals_.keys() & _BY_TEXT)
    for text in texts if by_text else ():
        attributes.setdefault(text, code.co_firstlineno)
    made = not texts or any(s.opname == "BUILD_STRING" for s in steps)
    any_name = bool((globals_.keys() | attributes.keys()) & _ANY_NAME) or (by_text and made)
    return CodeFacts(attributes, looked_up, globals_, imports, any_name, tuple(asked))


def _local(step: dis.Instruction) -> str:
    return str(step.argval) if step.opname.startswith("LOAD_FAST") else "?"


@dataclasses.dataclass(slots=True)
class Names:
    """The attribute names that code which ran may have looked up; `every`: any name at all."""

    known: set[str] = dataclasses.field(default_factory=set)
    every: bool = False

    def __contains__(self, name: Any) -> bool:
        return self.every or name in self.known

    def add(self, facts: CodeFacts, kind: int) -> None:
        """Layers of torch's look up names that they are given, by users' code or by nobody."""
        self.known.update(facts.attributes)
        self.every = self.every or (facts.any_name and kind != LAYER)


class Observation:
    """The functions that this thread enters within, and the names in them, added to `names`.

    `entered(function, code, kind)` is called ahead of each one's first instruction; what it raises
    goes through forward.
    """

    def __init__(self, entered: Callable, names: Names):
        self.names = names
        self._entered = entered
        self._observer = _native.torch_bridge().Observer()

    def __enter__(self) -> "Observation":
        self._around = getattr(_HERE, "observation", None)
        _HERE.observation = self
        self.start()
        return self

    def __exit__(self, *_error: Any) -> None:
        self.stop()
        _HERE.observation = self._around

    def start(self) -> None:
        self._observer.start(kind_of_file, self._note)

    def stop(self) -> None:
        self._observer.stop()

    def _note(self, function: types.FunctionType | None, code: types.CodeType, kind: int) -> None:
        made = code.co_filename.startswith("<") and function is not None  # by exec: of any module
        if made and is_library(str(function.__globals__.get("__name__"))):
            return
        self.names.add(facts_of(code), kind)
        if kind != LAYER:
            self._entered(function, code, kind)


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Within, this thread's Observation sees nothing."""
    observation = getattr(_HERE, "observation", None)
    if observation is None:
        yield
        return
    observation.stop()
    try:
        yield
    finally:
        observation.start()
