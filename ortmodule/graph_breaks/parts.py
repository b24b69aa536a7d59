"""A module in parts: where a whole capture cannot be, Dynamo cuts forward, and each graph between
two cuts is captured, differentiated and run like a module of its own.

fallback.py goes this way when it has learnt that forward cannot be captured whole.
"""

import collections
import contextlib
import dataclasses
import operator
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from torch import fx, nn

from .. import clock
from ..errors import NotCapturable
from ..explain import Break, Fallback, Report
from ..guards import observation, questions
from ..guards.state_kinds import same
from ..progress import told
from ..python_ops.contexts import enter_autocast, enter_inference_mode, exit_context, left_again
from ..side_effects.effects import Effects
from ..torch_internals.dynamo import TORCH_DYNAMO_RESUME_IN_PREFIX, TracingContext
from ..torch_internals.entry import gone
from ..torch_internals.modes import len_of_dispatch_stack, set_grad_enabled
from .dynamo import DynamoRunner
from .outside import Outside, inside
from .part_inputs import leaves_grad_mode, tensors_alone
from .unguarded import Unguarded

# Cut anew this often because of what Dynamo does not see, a module changes all the time.
_TRIES = 4
# Later calls than these make nothing new, where all is as it was.
_FIRST = 2
_OF_MODES = {set_grad_enabled, enter_autocast, enter_inference_mode, exit_context}
# A part with fewer operators than this would cost more than it gains.
_SMALL = 4


class Computed(NamedTuple):
    """An operator that torch ran between two parts, and where."""

    op: str
    file: str | None
    line: int | None


class Parts:
    """Calls `module.forward` in parts.

    roots: functions that forward enters, as far as known. engine(graph, free) gives the Dispatcher
    of a graph, `free`: for each of its tensors which axes have any size. outside(computed) is told
    what torch computed in between. strict: a graph that ends before forward does is refused.
    `all`: the engines, in the order made; `small`: how many parts
    torch runs; `why`: no whole capture; `breaks`, `misses`: where graphs end, and what did not
    hold. `refusal`: why the module must run in eager after all.
    """

    def __init__(
        self, module: nn.Module, roots: list, engine: Callable[[nn.Module, list], Any],
        outside: Callable[[Computed], None], strict: bool,
    ):  # fmt: skip
        self.strict = strict
        self.all: list[Any] = []
        self.small = 0
        self.why: dict[Fallback, None] = {}
        self.breaks: collections.Counter[Break] = collections.Counter()
        self.misses: collections.Counter[str] = collections.Counter()
        self.refusal = gone("dynamo")
        self._known = 0
        self._module, self._roots, self._engine, self._outside = module, roots, engine, outside
        self._tries, self._looks, self._calls, self._computed = 0, 0, 0, False
        self._unguarded: Unguarded | None = None
        if self.refusal is None:
            self._cut()

    def hold(self) -> bool:
        """Whether the module may run in parts, which are cut anew where it changed."""
        if self.refusal is not None and self._unguarded is not None:
            self._unguarded.let_go()
            self._unguarded = None
        if self._unguarded is None:  # or this torch cannot cut
            return False
        changed = self._unguarded.changed()
        if not same(self._forward, self._module.forward):
            changed = "forward was another function"
        if changed is not None:
            self.misses[changed] += 1
            self._cut(changed)
        elif self._unguarded.refusal is not None:
            self.refusal = self.refusal or NotCapturable(self._unguarded.refusal)
        return self.refusal is None

    def call(self, args: tuple, kwargs: dict) -> Any:
        """module.forward(*args, **kwargs)."""
        self._calls += 1
        if not self._is_new:
            return self._run(*args, **kwargs)
        self._is_new = False
        found: dict[Computed, None] = {}
        clock.made()
        with (
            told(f"cutting {type(self._module).__name__}"),
            Outside(lambda *computed: found.setdefault(Computed(*computed))),
        ):
            result = self._run(*args, **kwargs)
        self._computed = self._computed or bool(found)
        for computed in found if self.refusal is None else ():
            self._outside(computed)
        return result

    def count(self) -> int:
        """Of what was made so far: captures, cuts, looks at a function."""
        captures = sum(engine.captured() for engine in self.all)
        return captures + len(self.all) + self.small + self._tries + self._looks

    def added_to(self, report: Report) -> Report:
        """The report of the module with what its parts did."""
        return merged(
            report, self.all, parts=[] if self.whole() else self.all, breaks=dict(self.breaks),
            misses=dict(self.misses), small=self.small, not_whole=list(self.why),
        )  # fmt: skip

    def whole(self) -> bool:
        """Whether no graph ended before forward did, so that what Python did besides came after it,
        and each was captured."""
        cut = self.refusal is not None or self.breaks or self._computed
        return not cut and all(engine.has_captures() for engine in self.all)

    def _cut(self, changed: str = "") -> None:
        self._tries += 1
        self._is_new = True
        self._unguarded = Unguarded(self._module, self._roots)
        self._dynamo = DynamoRunner(self, self._module)
        self._forward = self._module.forward  # which one it is, no guard holds
        self._run = self._dynamo.of(self._forward)
        if self._unguarded.refusal is not None:
            self.refusal = NotCapturable(self._unguarded.refusal)
        elif self._tries > _TRIES:
            self.refusal = NotCapturable(f"{changed}: from call to call")

    # --- what Dynamo tells (dynamo.Listener) ---

    def looked_at(self, code: types.CodeType) -> None:
        self._looks += 1
        known = sum(self.misses.values())
        if self._calls > _FIRST and known == self._known:  # no guard says why
            place = f"{code.co_filename}:{code.co_firstlineno}"
            self.misses[f"{code.co_name} was traced before, at {place}"] += 1
        self._known = sum(self.misses.values())

    def entered(
        self, code: types.CodeType, scope: dict, function: types.FunctionType | None
    ) -> None:  # fmt: skip
        if observation.kind_of_file(code.co_filename) in (observation.PACKAGE, observation.OWN):
            self._unguarded.add(function or _made_of(code, scope), code)
            if self._unguarded.refusal is not None:
                self.asked(NotCapturable(self._unguarded.refusal))
        try:
            questions.check_in_parts(code, scope)
        except NotCapturable as error:
            self.asked(error)

    def asked(self, refusal: NotCapturable) -> None:
        self.refusal = refusal
        raise refusal

    @contextlib.contextmanager
    def undone(self, functions: list) -> Iterator[None]:
        with Effects(self._module) as effects:
            for function in functions:
                if isinstance(function, types.FunctionType):
                    effects.add_function(function, function.__code__)
            try:
                yield
            finally:
                effects.restore()

    def made(self, graph: fx.GraphModule) -> Callable:
        """What runs one graph."""
        self._is_new = True
        if leaves_grad_mode(graph):
            self.asked(NotCapturable("forward leaves the grad mode changed"))
        turned, free = tensors_alone(graph)
        if _size_of(graph) < _SMALL and not self._all_of_forward(graph):
            self.small += 1
            return _apart(lambda inputs: graph.forward(*turned(inputs)), graph)
        engine = self._engine(graph, free)
        self.all.append(engine)
        kept = weakref.ref(engine)  # Dynamo may keep the code of modules that are gone
        return _apart(lambda inputs: kept().call(turned(inputs), {}), graph)

    def broke(self, found: Break) -> None:
        self.breaks[found] += 1
        if self.strict:
            self.refusal = NotCapturable(found.reason, file=found.file, line=found.line)

    def missed(self, guard: str) -> None:
        self.misses[guard] += 1

    def _all_of_forward(self, graph: fx.GraphModule) -> bool:
        if self.breaks or graph.compile_subgraph_reason.graph_break:
            return False
        codes = TracingContext.get_traced_code() or []
        return not any(code.co_name.startswith(TORCH_DYNAMO_RESUME_IN_PREFIX) for code in codes)


def _made_of(code: types.CodeType, scope: dict) -> types.FunctionType:
    """Of a frame no function is known: its globals are, not what its closure holds."""
    closure = tuple(types.CellType() for _ in code.co_freevars)
    return types.FunctionType(code, scope, closure=closure)


def merged(report: Report, engines: list, parts: list, **facts: Any) -> Report:
    """A module's report with what the engines of its parts did; those of `parts` are shown."""
    of_engine = [(engine, engine.explain()) for engine in engines]
    reports = [found for _, found in of_engine]
    providers = collections.Counter(report.providers)
    for part in reports:
        providers.update(part.providers)
    return dataclasses.replace(
        report,
        providers=dict(providers),
        fallbacks=list(dict.fromkeys(f for r in (report, *reports) for f in r.fallbacks)),
        captures=report.captures + sum(part.captures for part in reports),
        plans=report.plans + sum(part.plans for part in reports),
        steps=[*report.steps, *(step for part in reports for step in part.steps)],
        replays=report.replays + sum(part.replays for part in reports),
        reruns=report.reruns + sum(part.reruns for part in reports),
        parts=[found for engine, found in of_engine if engine in parts],
        **facts,
    )


def _apart(call: Callable[[tuple], Any], graph: fx.GraphModule) -> Callable:
    """With the inputs as they come from Dynamo; nothing within is computed between parts."""
    changes_modes = any(node.target in _OF_MODES for node in graph.graph.nodes)

    def run(*inputs):
        if not changes_modes and not len_of_dispatch_stack():
            return call(inputs)
        with inside(), left_again():
            return call(inputs)

    return run


def _size_of(graph: fx.GraphModule) -> int:
    """How many operators compute something."""
    return sum(
        node.op.startswith("call") and node.target is not operator.getitem
        for node in graph.graph.nodes
    )
