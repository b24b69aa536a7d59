"""cond, while_loop, scan and map as If, Loop and Scan: nodes that own graphs.

regions.py calls `emit_control`. A body is translated like the program itself, into a graph of its
own; what it reads of the graph around it are its last inputs and the node's.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ..errors import ReadsData
from ..records.autograd_history import storage_key
from ..records.ports import Input
from ..torch_internals.tracing import HigherOrderOperator
from .emit import WITH_GRADIENT, CountedNumber, MissingOp, SymbolicFloat, SymbolicTruth, dtype_name
from .provenance import traced_value
from .refs import Ref, Storage, any_tainted, leaves

# Ops whose rules take a number as a value of the graph.
_OF_VALUES = {
    "add", "sub", "mul", "div", "rsub", "select", "eq", "ne", "lt", "le", "gt", "ge", "full",
    "full_like", "scalar_tensor", "masked_fill", "clamp", "clamp_min", "clamp_max",
}  # fmt: skip
# Odd and large: the trips of a loop, and those of a loop in it, have other keys.
KEY_STEP = np.uint64(6364136223846793005)


class _NeedsNumbers(Exception):
    """A body of many trips draws, and has no number of the running one."""


class Body:
    """A graph that a node will own; within, nodes are emitted into it.

    `captures`: values of the graph around it, one for each input after its own. `trip`: the number
    of the running trip. `once`: it has no trips.
    """

    def __init__(self, t: Any, owner: str, once: bool = False):
        self.t, self.owner, self.once = t, owner, once
        self.made = t.g.new_body()
        self.graph = self.made.graph
        self.captures: list[Any] = []
        self.trip: Any = None
        self._key: Any = None
        self._other: tuple = (self.graph, self, [], {})

    def __enter__(self) -> "Body":
        t, inside = self.t, self._other
        self._other = t.g, t.within, t.storages_in_region, t.counted
        t.emit_into(*inside)
        return self

    def __exit__(self, *_error: Any) -> None:
        self.__enter__()  # each is the other's way back

    def around(self, make: Callable[[], Any]) -> Any:
        """A value that is made in the graph around, while this one is emitted into."""
        self.__exit__()
        value = make()
        self.__enter__()
        return value

    def capture(self, value: Any) -> Any:
        """The input for a value of the graph around."""
        self.captures.append(value)
        name = f"captured:{len(self.captures)}"
        return self.graph.input(name, value.dtype, list(value.dims))

    def capture_key(self) -> Any:
        """The random key of the graph around."""
        self._key = self.capture(self.around(self.t.key_input))
        return self._key

    @property
    def has_key(self) -> bool:
        return self._key is not None

    def key(self) -> Any:
        """The random key of the running trip."""
        if self.trip is None and not self.once:
            raise _NeedsNumbers
        if self._key is None and self.capture_key() and not self.once:
            t, trip = self.t, self.t.cast(self.trip, "uint64")
            self._key = t.op("Add", t.op("Mul", self._key, t.constant(KEY_STEP)), trip)
        return self._key

    def refs(
        self,
        graph: fx.GraphModule,
        first: int,
        given: Sequence[Any],
        tainted: bool | None,
        make: Callable[[Any], Any],
    ) -> list[Any]:
        """What the placeholders of `graph` from number `first` are: numbers as they are, tensors
        as inputs that `make` makes of their values; tainted: None as the tensors are."""
        nodes = [n for n in graph.graph.nodes if n.op == "placeholder"][first:]
        refs = []
        for node, x in zip(nodes, given, strict=False):
            if not isinstance(x, Ref):
                refs.append(self._number(node.meta.get("val"), x, make))
                continue
            value = make(self.around(lambda x=x: x.read(self.t)))
            flows = (x.tainted if tainted is None else tainted) and value.dtype in WITH_GRADIENT
            name = f"what {self.owner} is given or reads"
            source = Input("body", name, value.dtype, list(value.dims))
            key = storage_key(traced_value(node))
            refs.append(Ref(Storage(value, flows, source), (), key))
        return refs

    def _number(self, traced: Any, given: Any, make: Callable[[Any], Any]) -> Any:
        """A number: where a loop counts it, by an input."""
        expr = traced.node.expr if isinstance(traced, torch.SymInt) else None
        counted = isinstance(given, CountedNumber) or is_counter(traced)
        if not counted or self.t.is_told(traced):
            return given
        if not expr.is_Symbol:
            self.t.refuse(f"a body is given {expr}, a number that a loop counts")
        value = self.around(lambda: self.t.scalar(given, "int64"))
        self.t.counted[expr.name] = make(value)
        return CountedNumber(expr)

    def results(self, graph: fx.GraphModule, refs: Sequence[Any]) -> list[Any]:
        """What it gives, with the dtypes and sizes that were traced."""
        t, values = self.t, []
        for node, ref in zip(_results_of(graph), refs, strict=True):
            if not isinstance(ref, Ref):
                values.append(t.scalar(ref, "int64"))
                continue
            traced = traced_value(node)
            values.append(t.fit(ref.read(t), t.dims_of(traced), dtype_name(traced.dtype)))
        return values

    def returns(self, values: Sequence[Any]) -> None:
        for i, value in enumerate(values):
            self.graph.output(value, f"out:{i}")


def emit_control(t: Any, name: str, args: Sequence[Any]) -> list[Any]:
    """The results of the running operator, as Refs."""
    try:
        return _EMITTERS[name](t, *args)
    except MissingOp as missing:
        return t.refuse(str(missing))


def is_control(target: Any) -> bool:
    """Whether a node's target is an operator with bodies."""
    return isinstance(target, HigherOrderOperator) and target.name() in _EMITTERS


def _refuse_counted(t: Any, reason: str) -> None:
    if t.within is None:
        t.refuse(f"{reason}, a number that is read out of a tensor", kind=ReadsData)
    t.refuse(f"{reason}, a number that a loop counts")


def check_sizes(t: Any, traced: Any) -> None:
    """Refuses a tensor whose sizes a loop counts, or Python reads out of another."""
    for x in traced if isinstance(traced, (list, tuple)) else [traced]:
        for size in getattr(x, "shape", ()):
            if isinstance(size, torch.SymInt) and t.is_counted(size.node.expr):
                _refuse_counted(t, f"it gives a tensor whose size is {size}")


def check_numbers(t: Any, name: str, given: Any) -> None:
    """Refuses what takes such a number otherwise than as a value."""
    for x in leaves(given):
        counted = isinstance(x, CountedNumber)
        counted = counted or (isinstance(x, SymbolicFloat) and t.is_counted(x.expr))
        if counted and name.partition(".")[0] not in _OF_VALUES:
            _refuse_counted(t, f"only simple ops are given {x.expr}")


def _cond(t: Any, pred: Any, then: Any, otherwise: Any, operands: Sequence[Any]) -> list[Any]:
    bodies = []
    for word, graph in (("true", then), ("false", otherwise)):
        body = Body(t, f"the {word} branch of cond", once=True)
        with body:
            outs = t.run(graph, body.refs(graph, 0, operands, None, body.capture))
            body.returns(body.results(graph, outs))
        bodies.append(body)
    if any(body.has_key for body in bodies):  # they have the same captures
        for body in bodies:
            with body:
                body.has_key or body.capture_key()
    branches = [*zip(("then_branch", "else_branch"), bodies, strict=True)]
    return _emitted(t, "If", [_truth(t, pred)], branches, {}, any_tainted(operands))


def _while_loop(
    t: Any, cond: Any, graph: Any, carried: Sequence[Any], additional: Sequence[Any]
) -> list[Any]:
    given = [*carried, *additional]
    tainted, body = any_tainted(given), Body(t, "the body of while_loop")
    initial = [x.read(t) if isinstance(x, Ref) else t.scalar(x, "int64") for x in carried]
    begins = _goes_on(t, cond, carried, initial, additional)
    with body:
        body.trip = body.graph.input("trip", "int64", [])
        body.graph.input("goes_on", "bool", [])
        states = body.refs(graph, 0, carried, tainted, _own(body, "state", 0))
        rest = body.refs(graph, len(carried), additional, None, body.capture)
        after = t.run(graph, [*states, *rest])
        values = body.results(graph, after)
        body.returns([_goes_on(t, cond, after, values, rest), *values])
    return _emitted(t, "Loop", [None, begins, *initial], [("body", body)], {}, tainted)


def _goes_on(
    t: Any, cond: Any, states: Sequence[Any], values: Sequence[Any], rest: Sequence[Any]
) -> Any:
    """The condition of a loop on these states; `values`: theirs, as its own symbols are numbers
    whose value is known here."""
    given, around = [], t.counted
    t.counted = dict(around)
    nodes = [n for n in cond.graph.nodes if n.op == "placeholder"]
    for node, state, value in zip(nodes, states, values, strict=False):
        if not isinstance(state, Ref):
            expr = node.meta["val"].node.expr
            t.counted[expr.name], state = value, CountedNumber(expr)
        given.append(state)
    try:
        return _truth(t, t.run(cond, [*given, *rest]))
    finally:
        t.counted = around


def is_counter(number: Any) -> bool:
    """Whether it is no size of a call: a number that a loop counts, or that depends on data."""
    return isinstance(number, torch.SymInt) and bool(free_unbacked_symbols(number))


def _scan(
    t: Any,
    graph: Any,
    init: Sequence[Any],
    xs: Sequence[Any],
    additional: Sequence[Any],
    owner: str = "scan",
) -> list[Any]:
    depth = t.recompute_depth
    try:
        return _scanned(t, graph, init, xs, additional, owner, numbered=False)
    except _NeedsNumbers:
        t.recompute_depth = depth
        return _scanned(t, graph, init, xs, additional, owner, numbered=True)


def _scanned(
    t: Any,
    graph: Any,
    init: Sequence[Any],
    xs: Sequence[Any],
    additional: Sequence[Any],
    owner: str,
    numbered: bool,
) -> list[Any]:
    """numbered: the number of each trip is one more scanned input."""
    tainted, body = any_tainted([init, xs, additional]), Body(t, f"the body of {owner}")
    scanned = [x.read(t) for x in xs]
    if numbered:
        scanned.append(_numbers(t, scanned[0].dims[0]))
    with body:
        states = body.refs(graph, 0, init, tainted, _own(body, "state", 0))
        rows = body.refs(graph, len(init), xs, None, _own(body, "row", 1))
        if numbered:
            body.trip = body.graph.input("trip", "int64", [])
        rest = body.refs(graph, len(init) + len(xs), additional, None, body.capture)
        body.returns(body.results(graph, t.run(graph, [*states, *rows, *rest])))
    inputs = [*(state.read(t) for state in init), *scanned]
    attrs = {"num_scan_inputs": len(scanned)}
    return _emitted(t, "Scan", inputs, [("body", body)], attrs, tainted)


def _map(t: Any, graph: Any, xs: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    return _scan(t, graph, [], xs, args, owner="map")


_EMITTERS: dict[str, Callable] = {
    "cond": _cond, "while_loop": _while_loop, "scan": _scan, "map_impl": _map,
}  # fmt: skip


def _emitted(
    t: Any, op: str, inputs: list[Any], bodies: list[tuple[str, Body]], attrs: dict, tainted: bool
) -> list[Any]:
    captures = bodies[0][1].captures
    val = [v for v in t.node.meta["val"] if v is not None]
    made = [(name, body.made) for name, body in bodies]
    attrs = {**attrs, "captures": len(captures)}
    outs = t.op(op, *inputs, *captures, n=len(val), bodies=made, **attrs)
    outs = outs if isinstance(outs, list) else [outs]
    refs = []
    for value, traced in zip(outs, val, strict=True):
        if isinstance(traced, torch.SymInt):
            t.counted[traced.node.expr.name] = value
            refs.append(CountedNumber(traced.node.expr))
            continue
        value = t.fit(value, t.dims_of(traced), dtype_name(traced.dtype))
        flows = tainted and t.grad_enabled and value.dtype in WITH_GRADIENT
        storage = Storage(value, flows, traced=traced)
        t.storages_in_region.append(storage)
        refs.append(Ref(storage, (), storage_key(traced), value))
    return refs


def _own(body: Body, name: str, dropped: int) -> Callable[[Any], Any]:
    """Makes the input that a trip gets of a value: without its first `dropped` axes."""

    def make(value: Any) -> Any:
        return body.graph.input(f"{name}:{value.id}", value.dtype, list(value.dims)[dropped:])

    return make


def _numbers(t: Any, trips: Any) -> Any:
    """0, 1, 2 ..., one for each trip."""
    first, last, step = (t.scalar(x, "int64") for x in (0, trips, 1))
    return t.reshape(t.op("Range", first, last, step), [trips])


def _truth(t: Any, ref: Any) -> Any:
    """A tensor of one element as a 0-d bool."""
    ref = ref[0] if isinstance(ref, (list, tuple)) else ref
    if isinstance(ref, SymbolicTruth):
        return t.truth(ref.expr)
    return t.reshape(t.cast(ref.read(t), "bool"), [])


def _results_of(graph: fx.GraphModule) -> list[fx.Node]:
    given = graph.graph.output_node().args[0]
    return list(given) if isinstance(given, (list, tuple)) else [given]
