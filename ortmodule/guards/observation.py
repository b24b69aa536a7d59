"""Which Python code a forward runs, and what that code names: what a capture must rely on.

fake_run.py runs forward under an Observation; state_walk.py reads its names and roots. Code of
torch's own layers counts for its attribute names; other code of torch, numpy and the standard
library holds no state that a user changes, or is asked about by name (questions.py).
"""

import contextlib
import dataclasses
import dis
import functools
import itertools
import os
import re
import site
import string
import sys
import sysconfig
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import _native
from ..places import PACKAGE as OURS
from ..places import TORCH
from ..torch_internals.modes import set_eval_frame
from . import standard_library

_LAYERS = tuple(os.path.join(TORCH, "nn", part, "") for part in ("modules", "utils"))
# What a file's code is: passed over, a layer of torch's, an installed package's, the user's own,
# the standard library's.
PASSED, LAYER, PACKAGE, OWN, STANDARD = range(5)
_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME"}
_BY_TEXT = {"getattr", "hasattr", "setattr", "delattr"}
_HERE = threading.local()
# Functions of operator that ask as `is` and `in` do.
_COMPARING = ("is_", "is_not", "contains", "indexOf", "countOf")
_ANY_NAME = {"vars", "__dict__", "__getattribute__", "attrgetter", "dir", "methodcaller"}
# Where the function and all its arguments are on the stack.
_CALLS = "PRECALL" if sys.version_info < (3, 12) else "CALL"
_FORMATS = {"format", "format_map"}


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
    """PASSED, LAYER, PACKAGE, OWN or STANDARD."""
    if name.startswith(_LAYERS):
        return LAYER
    if name.startswith((TORCH, OURS)):
        return PASSED
    if name.startswith("<frozen"):
        return STANDARD
    installed, standard = _folders()
    for folder in installed:
        if name.startswith(folder):
            return PASSED if name[len(folder) :].split(os.sep)[0] in KNOWN else PACKAGE
    return STANDARD if name.startswith(standard) else OWN


def is_library(module: str) -> bool:
    """A module of torch, numpy or the standard library, by name."""
    top = module.partition(".")[0]
    return top in KNOWN or top in sys.stdlib_module_names


@dataclasses.dataclass(frozen=True, slots=True)
class CodeFacts:
    """What a code object names, each with the line that does first.

    `attributes` are looked up, by name (`looked_up`) or by a text that stands there. `any_name`: it
    may reach an attribute whose name is made as it runs. `stored`: attributes that it sets,
    of which it takes `deleted` away.
    `compared`: where it first asks by `is` or `in` for an object that is no constant, or None;
    `equated`: where by `==`;
    `identities`: all by `is`, as (what is looked up on a global, or nothing, line).
    `asked_of`: what `type`, `id` and `__class__` are asked of, as (question, local name, line).
    """

    attributes: dict[str, int]
    looked_up: frozenset[str]
    stored: frozenset[str]
    deleted: frozenset[str]
    compared: int | None
    equated: int | None
    identities: tuple[tuple[tuple[str, ...], int], ...]
    globals: dict[str, int]
    imports: dict[str, int]
    any_name: bool
    asked_of: tuple[tuple[str, str, int], ...]


@functools.lru_cache(maxsize=8192)
def facts_of(code: types.CodeType) -> CodeFacts:
    """The names in a code object; functions inside it have code of their own."""
    every = list(dis.get_instructions(code))
    steps = [s for s in every if s.opname not in ("PUSH_NULL", "PRECALL")]
    found = _Lookups(every, steps, code.co_firstlineno)
    looked_up = frozenset(found.attributes)
    if looked_up & _FORMATS:
        texts = _formatted(code.co_consts)
        found.any_name |= texts is None
        found.by_text.update((text, code.co_firstlineno) for text in texts or ())
    for text, at in found.by_text.items():
        found.attributes.setdefault(text, at)
    return CodeFacts(
        found.attributes,
        looked_up,
        frozenset(found.stored),
        frozenset(found.deleted),
        *_comparisons(steps, code.co_firstlineno),
        found.globals,
        found.imports,
        found.any_name or bool((found.globals.keys() | looked_up) & _ANY_NAME),
        tuple(found.asked),
    )


class _Lookups:
    """What instructions look up, as CodeFacts has it, but for `attributes`: by name alone.

    `by_text`: by a text, with the line. steps: those of `every` that do more than make room.
    """

    def __init__(self, every: list[dis.Instruction], steps: list[dis.Instruction], line: int):
        self.attributes: dict[str, int] = {}
        self.globals: dict[str, int] = {}
        self.imports: dict[str, int] = {}
        self.by_text: dict[str, int] = {}
        self.asked: list[tuple[str, str, int]] = []
        self.stored: set[str] = set()
        self.deleted: set[str] = set()
        self.any_name = False
        for i, step in enumerate(steps):
            line = step.positions.lineno or line
            if step.opname in _GLOBAL:
                self._add_global(every, steps, i, line)
            elif step.opname == "IMPORT_NAME":
                self.imports.setdefault(step.argval, line)
            elif step.opname == "MATCH_CLASS":  # by position as the class says, by name as here
                self.by_text.update((text, line) for text in steps[i - 1].argval)
                self.any_name = self.any_name or step.arg > 0
            elif "ATTR" in step.opname or step.opname in ("LOAD_METHOD", "IMPORT_FROM"):
                self._add_attribute(steps, i, line)

    def _add_global(
        self, every: list[dis.Instruction], steps: list[dis.Instruction], i: int, line: int
    ) -> None:
        step = steps[i]
        self.globals.setdefault(step.argval, line)
        if step.argval in ("type", "id") and i + 1 < len(steps):
            self.asked.append((step.argval, _local(steps[i + 1]), line))
        if step.argval in _BY_TEXT:
            text = _second_argument(every, every.index(step))
            self.any_name = self.any_name or text is None
            if text is not None:
                self.by_text.setdefault(text, line)

    def _add_attribute(self, steps: list[dis.Instruction], i: int, line: int) -> None:
        step = steps[i]
        self.attributes.setdefault(step.argval, line)
        if step.opname in ("STORE_ATTR", "DELETE_ATTR"):
            self.stored.add(step.argval)
        if step.opname == "DELETE_ATTR":
            self.deleted.add(step.argval)
        if step.argval == "__class__":
            self.asked.append((step.argval, _local(steps[i - 1]), line))


def _comparisons(
    steps: Sequence[dis.Instruction], line: int
) -> tuple[int | None, int | None, tuple[tuple[tuple[str, ...], int], ...]]:
    """`compared`, `equated` and `identities` of CodeFacts."""
    compared = equated = None
    identities: list[tuple[tuple[str, ...], int]] = []
    for i, step in enumerate(steps):
        line = step.positions.lineno or line
        if steps[i - 1].opname == "LOAD_CONST":
            continue
        if step.opname in ("IS_OP", "CONTAINS_OP"):
            compared = compared or line
        elif step.opname == "COMPARE_OP":
            equated = equated or line
        if step.opname == "IS_OP":
            identities.append((_of_global(steps[:i]), line))
    identities += [((), at) for at in _loaded_at(steps, ("is_", "is_not"))]
    compared = compared or next(_loaded_at(steps, _COMPARING), None)
    return compared, equated or next(_loaded_at(steps, ("eq", "ne")), None), tuple(identities)


def _loaded_at(steps: Sequence[dis.Instruction], names: Sequence[str]) -> Iterator[int]:
    """The lines where one of these functions of `operator` is looked up."""
    found = (s for s in steps if s.opname.startswith("LOAD_") and s.argval in names)
    return (step.positions.lineno for step in found)


def _of_global(steps: Sequence[dis.Instruction]) -> tuple[str, ...]:
    """The global that these load last, and what they look up on it; else nothing."""
    names = itertools.takewhile(lambda step: step.opname == "LOAD_ATTR", reversed(steps))
    path = [step.argval for step in names]
    first = steps[-1 - len(path)] if len(path) < len(steps) else None
    return (first.argval, *reversed(path)) if first and first.opname == "LOAD_GLOBAL" else ()


def _second_argument(steps: Sequence[dis.Instruction], at: int) -> str | None:
    """The text that the function loaded at `at` is given as second argument; None: it is made as
    the code runs, or the function is not called there."""
    depth, last = 0, [-1, -1]  # where the first and the second argument end
    if not steps[at].arg or not steps[at].arg & 1:
        return None
    for k, step in enumerate(steps[at + 1 :], at + 1):
        if step.opname == _CALLS and step.arg == depth:
            break
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            return None
        depth += dis.stack_effect(
            step.opcode, step.arg if step.opcode >= dis.HAVE_ARGUMENT else None
        )
        if depth in (1, 2):
            last[depth - 1] = k
            last[1] = k if depth == 2 else -1
    first, second = last
    one = second == first + 1 and steps[second].opname == "LOAD_CONST"
    return steps[second].argval if one and isinstance(steps[second].argval, str) else None


def arguments_given(code: types.CodeType, name: str) -> list[int | None]:
    """To each call of this global how many; None: it is not called where it is loaded, or with
    arguments that are unpacked."""
    steps = list(dis.get_instructions(code))
    loaded = (k for k, s in enumerate(steps) if s.opname == "LOAD_GLOBAL" and s.argval == name)
    return [_arguments_of(steps, at) for at in loaded]


def _arguments_of(steps: Sequence[dis.Instruction], at: int) -> int | None:
    depth = 0
    for step in steps[at + 1 :] if steps[at].arg and steps[at].arg & 1 else ():
        if step.opname == _CALLS and step.arg == depth:
            return depth
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            return None
        depth += dis.stack_effect(
            step.opcode, step.arg if step.opcode >= dis.HAVE_ARGUMENT else None
        )
    return None


def _formatted(constants: tuple) -> set[str] | None:
    """The attributes that the texts among a code's constants have formatted; None: there is no such
    text, so another's is."""
    texts = [c for c in constants if isinstance(c, str) and "{" in c]
    if not texts:
        return None
    with contextlib.suppress(ValueError):
        fields = [
            name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name
        ]
        return {word for field in fields for word in re.findall(r"\.(\w+)", field)}
    return set()


def _local(step: dis.Instruction) -> str:
    return str(step.argval) if step.opname.startswith("LOAD_FAST") else "?"


@contextlib.contextmanager
def _dynamo_stays() -> Iterator[None]:
    """Within, Dynamo stays on for some thread. When the last that uses it ends, it puts the
    function that evaluates frames back as it was before, and would take an observer's away."""
    begun, ended = threading.Lock(), threading.Lock()
    begun.acquire()
    ended.acquire()

    def use() -> None:  # calls no Python function, which Dynamo would look at
        before = set_eval_frame(False)
        begun.release()
        ended.acquire()
        set_eval_frame(before)

    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    begun.acquire()
    try:
        yield
    finally:
        ended.release()
        thread.join()


@dataclasses.dataclass(slots=True)
class Names:
    """The attribute names that code which ran may have looked up; `every`: any name at all."""

    known: set[str] = dataclasses.field(default_factory=set)
    every: bool = False

    def __contains__(self, name: Any) -> bool:
        return self.every or name in self.known

    def add(self, facts: CodeFacts, kind: int) -> None:
        """Layers of torch's and the standard library look up names that they are given, by users'
        code or by nobody."""
        self.known.update(facts.attributes)
        self.every = self.every or (facts.any_name and kind in (PACKAGE, OWN))


def _is_of_protocols(function: types.FunctionType) -> bool:
    """What isinstance calls for a Protocol: it looks for the attributes that this names."""
    return function.__module__ == "typing" and function.__qualname__.startswith("_Protocol")


class Observation:
    """The functions that this thread enters within, and the names in them, added to `names`.

    `entered(function, code, kind)` is called ahead of each one's first instruction; what it raises
    goes through forward. Of the standard library's only what the user's own code calls.
    """

    def __init__(self, entered: Callable, names: Names):
        self.names = names
        self._entered = entered
        self._observer = _native.torch_bridge().Observer()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Observation":
        self._around = getattr(_HERE, "observation", None)
        _HERE.observation = self
        self.start()
        return self

    def __exit__(self, *_error: Any) -> None:
        self.stop()
        _HERE.observation = self._around

    def start(self) -> None:
        if not _native.torch_bridge().evaluates_as_usual():
            self._stack.enter_context(_dynamo_stays())
        self._observer.start(kind_of_file, self._note)
        self._stack.callback(self._observer.stop)

    def stop(self) -> None:
        self._stack.close()

    def _note(self, function: Any, code: types.CodeType, kind: int, caller: int) -> None:
        made = code.co_filename.startswith("<") and function is not None  # by exec: of any module
        if made and is_library(str(function.__globals__.get("__name__"))):
            return
        self.names.add(facts_of(code), kind)
        if kind == STANDARD and (
            standard_library.home_of(function) in standard_library.LOOK_INTO
            or _is_of_protocols(function)
        ):
            self.names.every = True
        if kind in (PACKAGE, OWN) or caller == OWN:
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
