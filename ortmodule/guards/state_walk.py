"""A walk over the Python state that a module's forward reaches.

snapshot.py keeps one with a capture, filtered by the names that forward's code looks up; effects.py
an unfiltered one while forward runs to be learnt from, and puts everything back.
"""

import abc
import dataclasses
import functools
import logging
import sys
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from ..calls.containers import slots_of
from ..calls.exact import exact
from ..errors import NotCapturable
from ..torch_internals.tracing import FakeTensor
from . import observation, standard_library, state_kinds, surroundings
from .observation import Names, is_library
from .state_kinds import MISSING, StateKind

# What torch's recurrent layers keep of their own parameters, anew whenever those are replaced.
_CACHES = frozenset({"_flat_weights", "_flat_weight_refs"})
_HEAP_TYPE = 1 << 9  # of a class's flags: made by Python, not built into it
# Of the standard library: bases whose methods read no attribute of their own.
_WITHOUT_STATE = frozenset({"typing", "abc", "collections.abc", "contextlib", "types"})
# How code asks what a file holds.
_OF_FILES = {"read", "readline", "readlines", "readinto", "getvalue", "getbuffer", "tell", "closed"}
# What a descriptor of the standard library's calls.
_DESCRIPTORS = {
    property: ("fget", "fset", "fdel"), staticmethod: ("__func__",), classmethod: ("__func__",),
    functools.cached_property: ("func",),
}  # fmt: skip
_REGISTRIES = ("_parameters", "_buffers", "_modules")
_HOOKS = frozenset(name for name in vars(nn.Module()) if "_hooks" in name)
# Hooks that run with every module: one that is set after a capture would be missed.
GLOBAL_HOOKS = (
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
)


@dataclasses.dataclass(slots=True)
class Watched:
    """An object with state and what it held.

    `keys`: of its items only these are looked at; `registry`: the dict of parameters or buffers of
    a module, whose tensors may be replaced by others of the same facts; `ordered`: a dict that
    code may walk through; `owner`: the object whose attributes `holder` had, when it was found;
    `seen`: of which values code can tell two equal ones apart, None: of none.
    """

    path: str
    holder: Any
    kind: StateKind
    items: list[tuple[Any, Any]]
    keys: Any = None
    ignored: frozenset = frozenset()
    registry: str | None = None
    ordered: bool = False
    owner: Any = None
    seen: Callable[[Any], bool] | None = None

    def now(self) -> list[tuple[Any, Any]]:
        """The items as they are."""
        holder = self.holder if self.owner is None else vars(self.owner)
        return _chosen(self.kind.items(holder), self.keys, self.ignored)


class Instance(NamedTuple):
    """An object, its class, and the dict of its attributes: each may be replaced by another."""

    path: str
    value: Any
    cls: type
    state: dict | None


def _chosen(items: list, keys: Any, ignored: frozenset = frozenset()) -> list:
    if keys is None and not ignored:
        return items
    return [(k, v) for k, v in items if (keys is None or k in keys) and k not in ignored]


class StateWalk:
    """Everything with state below the roots that are added.

    `names`: attributes that code may look up, others are passed over; None: all. What is found may
    look up more: `grew` then, and the walk is to be made again. `watched`: in the order found;
    `of_tensors`: those below attributes of `elsewhere`'s tensors; `tensors`: by id, (path, tensor);
    `classes`: whose version is relied on; `instances`: by id; `unseen`: (path, name, object) of
    what has state that cannot be seen; `caches`: functools.lru_cache's, (path, misses).
    `elsewhere`: modules whose parameters and buffers are not looked at, as private_state.py
    replaces them.
    """

    def __init__(self, names: Names | None = None, elsewhere: frozenset[nn.Module] = frozenset()):
        self.names, self._elsewhere, self.grew = names, elsewhere, False
        self.watched: list[Watched] = []
        self.of_tensors: list[Watched] = []
        self.tensors: dict[int, tuple[str, torch.Tensor]] = {}
        self.classes: dict[type, None] = {}
        self.instances: dict[int, Instance] = {}
        self.functions: dict[types.FunctionType, None] = {}
        self.caches: dict[Any, tuple[str, int]] = {}
        self.unseen: list[tuple[str, Any, Any]] = []
        self._rooted: set[str] = set()  # names of globals and of closures
        self._scopes: dict[int, Watched] = {}
        # Variables of one call alone, by the code of a function that this call makes; and the
        # functions that were there before, by id.
        self._local: dict[types.CodeType, set[str]] = {}
        self._held: dict[int, types.FunctionType] = {}
        self._seen: dict[int, Any] = {}
        self._called: nn.Module | None = None

    def add_module(self, module: nn.Module) -> None:
        """The module that is called, and torch's hooks that run with any module."""
        for name in GLOBAL_HOOKS:
            self.reach(getattr(torch_module, name), f"torch.nn.modules.module.{name}", name)
        self._called = surroundings.unwrapped(module)
        self._module(module, "")

    def add_function(
        self, function: types.FunctionType | None, code: types.CodeType, of_body: bool = False
    ) -> None:
        """A function of forward's: the globals that it names, its closure and its defaults. What an
        operator's body reaches of this call's own variables counts too: it may run many times."""
        facts = observation.facts_of(code)
        if self.names is not None:
            imported = [name for name in facts.imports if name in sys.modules]
            self.scope(sys.modules, imported, "sys.modules")
        for name in facts.imports:
            self._named(sys.modules.get(name), name, facts)
        if function is None or function in self.functions or _fills_a_dict(function, code):
            return
        new = not of_body and id(function) not in self._held
        local = self._local.get(code, ()) if new else ()
        for inner in code.co_consts:
            if isinstance(inner, types.CodeType):
                self._local[inner] = {*code.co_cellvars, *local}
        self._rooted.update(facts.globals, code.co_freevars)
        scope, where = function.__globals__, f"{function.__module__}."
        for name in self.scope(scope, facts.globals, where):
            self._named(scope[name], f"{where}{name}", facts)
        if code.co_name in observation.AT_ONCE:
            return
        self.functions[function] = None
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if name in local:
                continue
            self.reach(cell, f"{function.__qualname__}.{name}", name)
            if isinstance(held := state_kinds.content_of(cell), types.ModuleType):
                self._named(held, f"{function.__qualname__}.{name}", facts)
        parts = state_kinds.PARTS.items(function)
        self.watched.append(Watched(function.__qualname__, function, state_kinds.PARTS, parts))
        for value in (function.__defaults__, function.__kwdefaults__):
            self.reach(value, f"the defaults of {function.__qualname__}", None)
        self.reach(function, function.__qualname__, None)

    def add_imports(self) -> None:
        """What the functions name of modules that were not imported when they were added."""
        for function in list(self.functions):
            facts = observation.facts_of(function.__code__)
            for name in facts.imports:
                self._named(sys.modules.get(name), name, facts)

    def add_classes(self, classes: Iterable[type]) -> None:
        """Those of a call's arguments."""
        for cls in classes:
            self._class(cls)

    def check_seen(self, names: Names) -> None:
        """Raises NotCapturable where code that looks up `names` may read what cannot be seen."""
        for path, name, value in self.unseen:
            if _is_stream(value) and not names.known & _OF_FILES:
                continue  # as a logger's, which is written to
            if name is None or name in names or name in self._rooted:
                kind = f"an object of {type(value).__module__}.{type(value).__qualname__}"
                raise NotCapturable(f"forward reads {path}, {kind}, whose state cannot be seen")

    def refers_weakly(self) -> str | None:
        """Where something refers weakly to an object that would not die while this walk is kept."""
        return next((path for path, _, value in self.unseen if _keeps_alive(value)), None)

    def scope(self, scope: dict, names: Iterable[str], where: str) -> list[str]:
        """Watches these names of a namespace, there or not; gives those new and there."""
        watched = self._scopes.get(id(scope))
        if watched is None:
            watched = Watched(where, scope, state_kinds.kind_of(scope), [], set())
            self._scopes[id(scope)] = watched
            self.watched.append(watched)
        fresh = [name for name in names if name not in watched.keys]
        watched.keys.update(fresh)
        found = [name for name in fresh if name in scope]
        watched.items.extend((name, scope[name]) for name in found)
        return found

    def scopes(self) -> list[Watched]:
        """The namespaces that functions name something of."""
        return list(self._scopes.values())

    def globals(self) -> set[int]:
        """The ids of what the globals hold that functions name."""
        return {id(value) for scope in self._scopes.values() for _, value in scope.items}

    def found(self, value: Any) -> bool:
        """Whether it is among the objects."""
        return id(value) in self._seen

    def objects(self) -> list[Any]:
        """What was found that holds state."""
        return list(self._seen.values())

    def changed_class(self) -> str | None:
        """The first object that is of another class than it was, in words."""
        for path, value, cls, _ in self.instances.values():
            if type(value) is not cls:
                now = type(value).__qualname__
                return f"the class of {path or 'the module'} was {cls.__qualname__}, is {now}"
        return None

    def replaced_dict(self) -> str | None:
        """The first object that has another dict of attributes than it had, in words."""
        for path, value, _, state in self.instances.values():
            if state is not None and vars(value) is not state:
                return changed(f"{path or 'the module'}.__dict__", state, vars(value))
        return None

    def _named(self, value: Any, path: str, facts: observation.CodeFacts) -> None:
        """A global: of a module only what code names matters."""
        if not isinstance(value, types.ModuleType):
            self.reach(value, path, path.rpartition(".")[2])
            return
        library = is_library(value.__name__)
        if library and self.names is None:
            self.scope(vars(value), facts.stored, f"{path}.")
            return
        for name in self.scope(vars(value), facts.attributes, f"{path}."):
            found = vars(value)[name]
            if isinstance(found, types.ModuleType) or not library:
                self._named(found, f"{path}.{name}", facts)
            elif not isinstance(found, (type, types.FunctionType, torch.Tensor)):
                self.reach(found, f"{path}.{name}", name)  # as warnings.filters

    def _python_module(self, value: types.ModuleType, path: str) -> None:
        """One that an attribute or an item holds: any function may name what is in it."""
        library = is_library(value.__name__)
        if self._has(value) or (library and (self.names is None or self.names.every)):
            return
        found = {name for name in vars(value) if _wants(self.names, name) and name[:2] != "__"}
        for name in self.scope(vars(value), found, f"{path}."):
            if not library:
                self.reach(vars(value)[name], f"{path}.{name}", name)

    def _module(self, module: nn.Module, path: str) -> None:
        module = surroundings.unwrapped(module)
        if self._has(module):
            return
        state = vars(module)
        ignored = _CACHES if isinstance(module, nn.RNNBase) else frozenset()
        if module in self._elsewhere:
            ignored |= {"_parameters", "_buffers"}
            self._of_tensors(state, path)
        self._watch(state, path, self.names, ignored, owner=module)
        self._instance(module, path)
        dot = f"{path}." if path else ""
        for name in _REGISTRIES:
            registry = state.get(name)
            if name not in ignored and registry is not None and not self._has(registry):
                self._watch(registry, path, registry=name)
                self.watched[-1].ordered = name == "_modules"
                for key, value in list(registry.items()):
                    self.reach(value, f"{dot}{key}", key)
        for name, value in list(state.items()):
            if name in _REGISTRIES or name in ignored or not _wants(self.names, name):
                continue
            if module is self._called and name in _HOOKS:  # they run around forward, not within
                self._watch(value, f"{dot}{name}")
            else:
                self.reach(value, f"{dot}{name}", name)

    def _of_tensors(self, state: dict[str, Any], path: str) -> None:
        """What the attributes of registered tensors hold, as a list."""
        first = len(self.watched)
        for registry in ("_parameters", "_buffers"):
            for key, tensor in list(state[registry].items()):
                for name, value in list(vars(tensor).items()) if tensor is not None else ():
                    self.reach(value, f"{path}.{key}.{name}".removeprefix("."), name)
        self.of_tensors += self.watched[first:]

    def reach(self, value: Any, path: str, name: Any) -> None:
        """What hangs on an attribute, an item, a global or a cell that is called `name`."""
        self._grow(value)
        if issubclass(type(value), state_kinds.WEAK):
            self.unseen.append((path, name, value))
        elif isinstance(value, torch.Tensor):
            if id(value) not in self.tensors:
                self.tensors[id(value)] = path, value
                self._attributes(value, path, self.names, not isinstance(value, FakeTensor))
                self._instance(value, path)
        elif isinstance(value, (types.BuiltinFunctionType, types.MethodWrapperType)):
            if isinstance(value.__self__, state_kinds.GENERATORS):  # a method that draws
                self.reach(value.__self__, f"{path}'s generator", name)
            elif standard_library.is_impure(value):
                self.unseen.append((path, name, value))
            elif _is_bound(value):
                self.reach(value.__self__, f"{path}'s object", name)
                if any(value.__self__ is other for *_, other in self.unseen):  # by another name
                    self.unseen.append((path, name, value.__self__))
        elif isinstance(value, state_kinds.LRU):
            self._cache(value, path)
        elif isinstance(value, nn.Module):
            self._module(value, path)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, logging.Logger):
            self._logger(value, path)
        elif type(value) in _DESCRIPTORS:
            for part in _DESCRIPTORS[type(value)]:
                self.reach(getattr(value, part), f"{path}.{part}", name)
        elif isinstance(value, types.ModuleType):
            self._python_module(value, path)
        elif state_kinds.is_plain(value) or value is sys.modules or self._has(value):
            return
        elif isinstance(value, types.FunctionType):
            self._function(value, path)
        else:
            self._object(value, path, name)

    def _cache(self, cache: Any, path: str) -> None:
        if cache in self.caches:
            return
        self.caches[cache] = path, cache.cache_info().misses
        if is_own(cache) and self.names is not None:  # whoever clears it has it asked again
            self.watched.append(
                Watched(path, cache, state_kinds.CACHE, state_kinds.CACHE.items(cache))
            )

    def _function(self, function: types.FunctionType, path: str) -> None:
        """Of one that does not run only the attributes that code may have put on it."""
        self._held[id(function)] = function
        registry = vars(function).get("registry")
        if isinstance(registry, types.MappingProxyType):  # functools.singledispatch's
            self.reach(registry, f"{path}.registry", None)
        if observation.kind_of_file(function.__code__.co_filename) in (
            observation.PACKAGE,
            observation.OWN,
        ):
            self._attributes(function, path, self.names)
            self._instance(function, path)

    def _object(self, value: Any, path: str, name: Any) -> None:
        kind = state_kinds.kind_of(value)
        try:
            items = kind and kind.items(value)
        except state_kinds.TooLarge:
            kind = None
        if kind is None:
            self.unseen.append((path, name, value))
            return
        if type(value).__module__ not in ("builtins", "collections"):
            self._instance(value, path)
        state = getattr(value, "__dict__", None)
        names = None if _is_of_library(type(value)) else self.names
        if isinstance(state, dict) and not (kind is state_kinds.OBJECT and slots_of(value)):
            self._attributes(value, path, names)
            if kind is state_kinds.OBJECT:
                return
        names = names if kind.attributes else None
        self.watched.append(Watched(path, value, kind, _chosen(items, names), names))
        self.watched[-1].ordered = isinstance(value, dict) and "_hooks" not in str(name)
        for key, item in items:
            if not kind.attributes:
                if isinstance(value, dict) and not state_kinds.is_plain(key):
                    self.reach(key, f"a key of {path}", name)
                self.reach(item, f"{path}[{key!r}]", name)
            elif _wants(names, key):
                self.reach(item, f"{path}.{key}", key)

    def _attributes(
        self, owner: Any, path: str, names: Names | None, reached: bool = True
    ) -> None:  # fmt: skip
        state = vars(owner)
        self._watch(state, path, names, owner=owner)
        for key, item in list(state.items()) if reached else ():
            if _wants(names, key):
                self.reach(item, f"{path}.{key}", key)

    def _grow(self, value: Any) -> None:
        """What looks up attributes by text adds to the names."""
        if self.names is None or self.names.every:
            return
        found = standard_library.names_in(value)
        if found is None or not found <= self.names.known:
            self.names.known.update(found or ())
            self.names.every = found is None
            self.grew = True

    def _instance(self, value: Any, path: str) -> None:
        """An object whose class matters, and may be another one later."""
        cls = type(value)
        state = getattr(value, "__dict__", None)
        state = state if isinstance(state, dict) else None
        if cls.__flags__ & _HEAP_TYPE or state is not None:
            self.instances[id(value)] = Instance(path, value, cls, state)
        self._class(cls)

    def _logger(self, logger: logging.Logger, path: str) -> None:
        """What decides whether a message is told."""
        while logger is not None and not self._has(logger):
            self._watch(vars(logger), path, {"level", "disabled", "propagate"})
            self._watch(vars(logger.manager), "logging.root.manager", {"_disable"})
            logger = logger.parent

    def _class(self, cls: type) -> None:
        for base in (*cls.__mro__, *type(cls).__mro__):
            if base in self.classes or not base.__flags__ & _HEAP_TYPE:
                continue
            self.classes[base] = None
            library = is_library(base.__module__)
            if library and self.names is None:
                continue
            # A capture in another thread puts others in place of torch's methods.
            names = {"forward"} if library and self.names.every else self.names
            held = _chosen(state_kinds.CLASS.items(base), names)
            path = base.__qualname__
            self.watched.append(Watched(path, base, state_kinds.CLASS, held, names))
            self.watched.append(
                Watched(path, base, state_kinds.BASES, state_kinds.BASES.items(base))
            )
            if isinstance(base, abc.ABCMeta) and not library:
                self.watched.append(
                    Watched(path, base, state_kinds.REGISTRY, state_kinds.REGISTRY.items(base))
                )
            for name, value in held:
                data = not isinstance(value, (types.FunctionType, type)) and name[:2] != "__"
                if data and not library:
                    self.reach(value, f"{path}.{name}", name)

    def _watch(
        self, state: dict, path: str, keys: Any = None, ignored: frozenset = frozenset(),
        registry: str | None = None, owner: Any = None,
    ) -> None:  # fmt: skip
        kind = state_kinds.kind_of(state)
        items = _chosen(kind.items(state), keys, ignored)
        found = Watched(path, state, kind, items, keys, ignored, registry, owner=owner)
        self.watched.append(found)

    def _has(self, value: Any) -> bool:
        """Whether it was found before. It is kept, so that no other object takes its id."""
        if id(value) in self._seen:
            return True
        self._seen[id(value)] = value
        return False


def _fills_a_dict(function: types.FunctionType, code: types.CodeType) -> bool:
    """Whether `exec` runs it in a dict that is no module's: forward's own, or held elsewhere."""
    module = sys.modules.get(function.__globals__.get("__name__"))
    return code.co_name == "<module>" and getattr(module, "__dict__", None) is not (
        function.__globals__
    )


def _wants(names: Names | None, name: Any) -> bool:
    return names is None or not isinstance(name, str) or name in names


def _is_of_library(cls: type) -> bool:
    """Whether code that is not observed looks its objects' attributes up, as UserDict's."""
    return not issubclass(cls, torch.optim.Optimizer) and any(
        base.__flags__ & _HEAP_TYPE
        and is_library(base.__module__)
        and base.__module__ not in _WITHOUT_STATE
        for base in cls.__mro__
    )


def difference(w: Watched) -> str | None:
    """The first item that is another than it was, as `module.attribute was 3, is 4`."""
    before, now = w.items, w.now()
    if len(before) == len(now) and all(
        a is c and b is d for (a, b), (c, d) in zip(before, now, strict=True)
    ):
        return None
    was_at, is_at = dict(before), dict(now)
    for key in [*was_at, *(k for k in is_at if k not in was_at)]:
        was, value = was_at.get(key, MISSING), is_at.get(key, MISSING)
        told_apart = was is not value and w.seen is not None and w.seen(value)
        if told_apart or not (state_kinds.same(was, value) or _stands_for(w, key, was, value)):
            return changed(item_path(w, key), was, value)
    if w.ordered and list(map(exact, was_at)) != list(map(exact, is_at)):
        return f"the order of {w.path} was {list(was_at)[:9]}, is {list(is_at)[:9]}"
    return None


def _stands_for(w: Watched, key: Any, was: Any, now: Any) -> bool:
    """Whether a list of plain values may be replaced by an equal one: where no code names the
    attribute, which only a name made at run time may reach, as of an object with a __getattribute__
    of its own (transformers' configs, to which save_pretrained gives such a list each time)."""
    unnamed = isinstance(w.keys, Names) and w.keys.every and key not in w.keys.known
    return unnamed and type(was) is type(now) is list and state_kinds.same_plain(was, now)


def changed(path: str, was: Any, now: Any) -> str:
    """Such a difference in words."""
    before, after = short(was), short(now)
    return f"{path} was {before}, is {'another' if before == after else after}"


def item_path(w: Watched, key: Any) -> str:
    if key == "content" and not w.kind.attributes and not isinstance(w.holder, dict):
        return w.path  # all that it holds
    if isinstance(key, str) and key.isidentifier():
        return f"{w.path}.{key}" if w.path and not w.path.endswith(".") else f"{w.path}{key}"
    return f"{w.path}[{key!r}]"


def _keeps_alive(weak: Any) -> bool:
    """Whether it may refer to an object other than a tensor, as recurrent layers do to weights."""
    if not issubclass(type(weak), state_kinds.WEAK):
        return False
    if isinstance(weak, weakref.ref):
        return weak() is not None and not isinstance(weak(), torch.Tensor)
    return True


def _is_stream(value: Any) -> bool:
    return any(value is s for s in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__))


def _is_bound(method: types.BuiltinFunctionType | types.MethodWrapperType) -> bool:
    """Whether it is a method, written in C, of an object that may hold something."""
    holder = method.__self__
    if holder is None or isinstance(holder, (types.ModuleType, type)):
        return False
    return type(holder).__module__.partition(".")[0] != "torch"


def is_own(cache: Any) -> bool:
    """Whether a functools.lru_cache is around a function of the user's own."""
    code = getattr(cache.__wrapped__, "__code__", None)
    return code is not None and observation.kind_of_file(code.co_filename) == observation.OWN


def short(value: Any) -> str:
    """A value in an error's words."""
    if value is MISSING:
        return "not there"
    if isinstance(value, state_kinds.Frozen):
        return repr(value)
    if isinstance(value, state_kinds.SCALARS):
        return repr(value)[:80]
    return f"a {type(value).__name__}"
