"""What forward wrote, found and put back: a fake run and a trace are run under an Effects."""

import collections
import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from torch import nn

from ..errors import NeedsCut
from ..guards import state_kinds
from ..guards.state_walk import StateWalk, Watched, difference, is_own
from . import equal_copies


class PlainWrite(NamedTuple):
    """A scalar that forward set in a dict; MISSING: taken out of it."""

    watched: Watched
    key: Any
    value: Any


class Effects(StateWalk):
    """State before forward ran: what it wrote can be told, and everything be put back.

    own_tensors: forward finds tensors of its own for the registered ones (private_state.py). An
    error that leaves its scope undoes everything.
    """

    def __init__(self, module: nn.Module, own_tensors: bool = True):
        super().__init__(elsewhere=frozenset(module.modules() if own_tensors else ()))
        self._accepted: list[PlainWrite] = []  # what they replaced
        self.add_module(module)

    def __enter__(self) -> "Effects":
        return self

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        if error is not None:
            self.undo()

    def writes(self) -> list[str]:
        """The first difference of each object that differs, registered buffers aside."""
        found = [equal_copies.change(w) for w in self.watched if w.registry != "_buffers"]
        found += [self.changed_class(), self.replaced_dict()]
        return [*filter(None, found), *self._missed()]

    def written_in_tensors(self) -> str | None:
        """The first difference in what an attribute of a registered tensor holds."""
        return next(filter(None, map(equal_copies.change, self.of_tensors)), None)

    def _missed(self) -> list[str]:
        return [
            f"the cache of {path} was missed"
            for cache, (path, misses) in self.caches.items()
            if cache.cache_info().misses != misses and is_own(cache)
        ]

    def kept_by_a_cache(self, function: Any) -> str | None:
        """The user's own functools.lru_cache that is around this function and keeps results of
        other calls of it; it stays as it is if this call raises an error."""
        for cache, (path, _) in self.caches.items():
            if cache.__wrapped__ is function and is_own(cache) and cache.cache_info().currsize:
                self.caches[cache] = path, cache.cache_info().misses
                return path
        return None

    def plain_writes(self) -> list[PlainWrite] | None:
        """The differences as scalars set in dicts, or None when one is anything else."""
        found = []
        if self._missed() or self.changed_class() or self.replaced_dict():
            return None
        for w in self.watched:
            if w.registry == "_buffers" or not equal_copies.change(w):
                continue
            if not isinstance(w.holder, dict):
                return None
            before, now = dict(w.items), dict(w.now())
            if any(key not in now for key in before):
                return None
            for key, value in now.items():
                if not state_kinds.same(before.get(key, state_kinds.MISSING), value):
                    if not isinstance(value, state_kinds.SCALARS):
                        return None
                    found.append(PlainWrite(w, key, value))
        return found

    def accept(self, writes: Iterable[PlainWrite]) -> None:
        """Makes these writes again, as part of the state that `restore` puts back."""
        for w, key, value in writes:
            was = w.holder.get(key, state_kinds.MISSING)
            self._accepted.append(PlainWrite(w, key, was))
            _put_plain(w, key, value)

    @contextlib.contextmanager
    def accepting(self) -> Iterator[None]:
        """What is written within, by the code of a module that forward imports first, stays; and
        what forward's code names of it is state from then on."""
        before = [(w, w.now()) for w in self.watched]
        misses = {cache: cache.cache_info().misses for cache in self.caches}
        try:
            yield
        finally:
            for w, was in before:
                w.items = _moved(w.items, was, w.now())
            for cache, count in misses.items():
                path, known = self.caches[cache]
                self.caches[cache] = path, known + cache.cache_info().misses - count
            self.add_imports()

    def undo(self) -> None:
        """As `restore`, but the accepted writes are taken back too."""
        while self._accepted:
            _put_plain(*self._accepted.pop())
        self.restore()

    def restore(self) -> None:
        """Puts back everything that differs; raises NotCapturable where that cannot be done."""
        stuck = None
        for _, value, cls, state in self.instances.values():
            if type(value) is not cls:
                object.__setattr__(value, "__class__", cls)
            if state is not None and vars(value) is not state:
                object.__setattr__(value, "__dict__", state)
        for cache, (path, misses) in self.caches.items():
            if cache.cache_info().misses != misses:
                cache.cache_clear()
                self.caches[cache] = path, 0
        for w in self.watched:
            if _same(w.items, w.now()):
                continue
            if w.keys is not None:
                _put_names(w)
            elif w.kind.put is not None:
                aside = [(k, v) for k, v in w.kind.items(w.holder) if k in w.ignored]
                w.kind.put(w.holder, [*w.items, *aside] if w.ignored else w.items)
            elif w.kind.changes and difference(w):
                stuck = stuck or difference(w)
        if stuck:
            raise NeedsCut(f"forward changes what cannot be put back: {stuck}")


def _moved(items: list, was: list, now: list) -> list:
    """`items` with the differences between two later states."""
    if _same(was, now):
        return items
    if _same(items, was):
        return now
    made = dict(items)
    for key in dict(was).keys() - dict(now).keys():
        made.pop(key, None)
    before = dict(was)
    made |= {k: v for k, v in now if not state_kinds.same(before.get(k, state_kinds.MISSING), v)}
    return list(made.items())


def _same(one: list, other: list) -> bool:
    return len(one) == len(other) and all(
        a is c and state_kinds.same(b, d) for (a, b), (c, d) in zip(one, other, strict=True)
    )


def _put_plain(w: Watched, key: Any, value: Any) -> None:
    """In the dict, past methods of a user's own, and in what is known of it."""
    plain = collections.OrderedDict if isinstance(w.holder, collections.OrderedDict) else dict
    if value is state_kinds.MISSING:
        plain.pop(w.holder, key, None)
    else:
        plain.__setitem__(w.holder, key, value)
    w.items = w.now()


def _put_names(w: Watched) -> None:
    """Of a namespace only the names that forward's code has."""
    kept = dict(w.items)
    for name in w.keys:
        if name in kept:
            w.holder[name] = kept[name]
        else:
            w.holder.pop(name, None)
