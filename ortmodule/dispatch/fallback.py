"""What no whole capture serves: it runs in parts where it may, else in eager, and is reported."""

import collections
import contextlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ..capture.eager_run import eager_error
from ..capture.quiet import quiet
from ..errors import NeedsCut, NotCapturable
from ..explain import Report
from ..graph_breaks.pace import Pace, as_eager_leaves_statistics
from ..graph_breaks.parts import Computed, Parts
from ..graph_breaks.seams import Seams
from ..options import Options
from .account import Account, fallback_of
from .making import PartContext
from .search import Search


class FallbackRunner:
    """Runs calls of `module` that were refused.

    part: what the module is of another one. lock: of the module's dispatcher. dispatcher(module,
    part) gives that of a submodule, or of a graph that is a part.
    """

    def __init__(
        self,
        module: nn.Module,
        options: Options,
        part: PartContext | None,
        search: Search,
        account: Account,
        lock: threading.RLock,
        dispatcher: Callable[[nn.Module, PartContext | None], Any],
    ):
        self.module, self.options = module, options
        self.parts: Parts | Seams | None = None
        self._part, self._search, self._account, self._lock = part, search, account, lock
        self._dispatcher = dispatcher
        self._paces: dict[tuple, Pace] = collections.defaultdict(Pace)

    def call(self, error: NotCapturable, key: tuple | None, args: tuple, kwargs: dict) -> Any:
        """module(*args, **kwargs) where `error` says why no whole capture serves it; `key`: the
        call's, None where it has none."""
        if self._part is not None or not (isinstance(error, NeedsCut) or error.has_seams):
            return self.in_eager(error, key, args, kwargs)
        if error.raised:
            if self.options.fallback == "report":
                return self._proved(error, key, args, kwargs)
            self._check_call(key, args, kwargs)
        strict = self.options.fallback == "whole"
        with self._lock:
            if self.parts is None:
                self.parts = self._cut(error, strict)
            parts = self.parts
        may_choose = self.options.fallback == "report" and parts.refusal is None
        if may_choose and self._is_eagers_turn(parts):  # it takes no guard's time
            return self.module.forward(*args, **kwargs)
        with self._lock:
            held = parts.hold()
        if not held:
            return self.in_eager(error if strict else parts.refusal, key, args, kwargs)
        return self._in_parts(parts, error, key, args, kwargs)

    def in_eager(self, error: NotCapturable, key: tuple | None, args: tuple, kwargs: dict) -> Any:
        """Runs eagerly; what eager refuses too is the caller's mistake: nothing to report."""
        if self.options.fallback != "report":
            self._check_call(key, args, kwargs)
            raise error
        try:
            result = self.module.forward(*args, **kwargs)
        except Exception:
            self._forget_refusal(key)
            raise
        self.report(error)
        return result

    def report(self, error: NotCapturable) -> None:
        """Lists what ran eagerly; the first warns."""
        if self._part is not None:
            if (told := self._part.report()) is not None:
                told(error)
            return
        fallback = fallback_of(error)
        in_parts = self.parts is not None and self.parts.refusal is None
        what = "a part of this module" if in_parts else "this module"
        self._account.warn(f"{what} in eager PyTorch: {fallback}")
        self._account.fell_back(fallback)

    def all_parts(self) -> list[Any]:
        """The dispatchers of the parts so far."""
        return self.parts.all if self.parts is not None else []

    def added_to(self, report: Report) -> Report:
        """The report of the module with what its parts did."""
        return report if self.parts is None else self.parts.added_to(report)

    def _cut(self, error: NotCapturable, strict: bool) -> Parts | Seams:
        if error.has_seams and not strict:
            return Seams(self.module, lambda m: self._dispatcher(m, None))
        return Parts(self.module, error.roots, self._of_part, self._outside, strict)

    def _of_part(self, graph: nn.Module, free: list[list[bool]]) -> Any:
        told = map(weakref.WeakMethod, (self.report, self._account.second_ran))
        return self._dispatcher(graph, PartContext(free, *told))

    def _in_parts(
        self, parts: Parts | Seams, error: NotCapturable, key: tuple | None, args: tuple,
        kwargs: dict,
    ) -> Any:  # fmt: skip
        try:
            with quiet(), self._timed_in_turns():
                result = parts.call(args, kwargs)
        except Exception as raised:  # of the caller's: nothing is known of the module
            if raised is parts.refusal:
                return self.in_eager(error, key, args, kwargs)
            self._forget_refusal(key)
            raise
        if parts.refusal is not None:
            self.report(parts.refusal)
        elif not parts.whole():
            why = fallback_of(error)
            self._account.warn(f"this module in parts: {why}")
            parts.why.setdefault(why)
        return result

    def _is_eagers_turn(self, parts: Parts | Seams) -> bool:
        """Whether eager makes this call of a module in parts: to be timed, or as it is quicker."""
        pace = self._paces[torch.is_grad_enabled(), self.module.training]
        known = pace.times is not None
        with self._lock:
            eager = pace.in_eager(parts.count())
        if not known and pace.leaves_to_eager():
            self.report(NotCapturable(pace.words()))
        return eager

    def _timed_in_turns(self) -> contextlib.AbstractContextManager:
        """Around a call in parts: while some of the calls are eager's."""
        pace = self._paces[torch.is_grad_enabled(), self.module.training]
        settled = self.options.fallback != "report" or pace.times is not None
        return contextlib.nullcontext() if settled else as_eager_leaves_statistics(self.module)

    def _proved(self, error: NotCapturable, key: tuple | None, args: tuple, kwargs: dict) -> Any:
        """Eager makes a call that may be wrong: what it raises is the caller's mistake."""
        try:
            result = self.module.forward(*args, **kwargs)
        except Exception:
            self._forget_refusal(key)
            raise
        with self._lock:
            self._search.believe(key)
            self._account.warmed_up(error)
        return result

    def _check_call(self, key: tuple | None, args: tuple, kwargs: dict) -> None:
        """Raises what eager does, where it refuses the call too."""
        mistake = eager_error(self.module, args, kwargs)
        if mistake is not None:
            self._forget_refusal(key)
            raise mistake
        with self._lock:
            self._search.believe(key)

    def _forget_refusal(self, key: tuple | None) -> None:
        with self._lock:
            self._search.forget_refusal(key)

    def _outside(self, computed: Computed) -> None:
        """torch computes between two parts."""
        place = {"op": computed.op, "file": computed.file, "line": computed.line}
        error = NotCapturable("torch computes it between two parts", **place)
        if self.options.fallback != "report":
            raise error
        self.report(error)
