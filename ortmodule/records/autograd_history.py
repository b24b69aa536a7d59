"""What eager's autograd graph behind the tensors that a module returned says.

flat_module.py asks while forward is traced: the traced tensors have eager's own autograd graph.
What its nodes saved may not be written to before the backward; anything else may. A backward of one
output visits what that output reaches, other returned outputs among it, and nothing else.
"""

import bisect
import collections
import contextlib
import functools
import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

from .. import _native
from ..torch_internals.modes import DisableTorchFunction
from .ports import Output


def storage_key(tensor: Any) -> int | None:
    """Equal for tensors that share memory, and so their version; None for what has no memory."""
    if not isinstance(tensor, torch.Tensor):
        return None
    try:
        return tensor.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return None


def seen_as_they_are() -> contextlib.AbstractContextManager:
    """Around the traced forward: a user's hooks on saved tensors are for the real ones alone."""
    return torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)


def as_users_have_them() -> contextlib.AbstractContextManager:
    """Around a forward on fake tensors: as `seen_as_they_are` where a user has hooks; else torch
    notes what is written to."""
    has_hooks = _native.torch_bridge().has_saved_tensors_hooks()
    return seen_as_they_are() if has_hooks else contextlib.nullcontext()


def writes_to_saved(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether something that a node behind these saved was written to since, so that eager's
    backward raises."""
    with DisableTorchFunction():  # this is no part of forward
        nodes = _Graph([tensor.grad_fn for tensor in tensors], set()).nodes
        return any(_is_stale(node, name) for node in nodes for name in _names(type(node)))


def _is_stale(node: Any, name: str) -> bool:
    try:
        getattr(node, "saved_tensors" if name == "_raw_saved_tensors" else name[4:])
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error)
    return False


def edges_of(tensors: Iterable[torch.Tensor]) -> list[tuple]:
    """Where the gradient of each goes: equal as long as a tensor keeps its history."""
    return [(t.requires_grad, t.grad_fn, t.output_nr) for t in tensors]


class UsedUp(NamedTuple):
    """A node that saved something, and so runs once; those that always run together are one.

    `number`: the highest first, so torch's engine goes. `outputs`: which reach it. `reaches`,
    `behind`: the tensors and the outputs that it reaches. `made`: the outputs among its results.
    """

    number: int
    outputs: set[int]
    reaches: set[tuple[str, Any]]
    behind: set[int]
    made: set[int]
    saved: set[tuple[str, Any]]


class Origin(NamedTuple):
    """A node that made outputs: which one each result is, None where that was not returned."""

    number: int
    results: list[int | None]


class FunctionCall(NamedTuple):
    """A call of a user's autograd.Function: its number in the trace, and the tensors to which it
    never gives a gradient. To others it gives None in some calls, which is not zero."""

    number: int
    without: frozenset[int]


class Source(NamedTuple):
    """An output, or a tensor that a call of a user's Function was given, with what the gradient
    that comes from there reaches before it comes to another such call.

    `outputs`: it is come to from these. `call`: the number of the call, None for an output;
    `tensor`: which of its tensors.
    """

    outputs: set[int]
    call: int | None
    tensor: int
    reaches: set[tuple[str, Any]]
    behind: set[int]


class AutogradHistory(NamedTuple):
    """The graph behind a module's distinct outputs, by their numbers.

    Tensors go by label: ("input", number), ("name", of a parameter or buffer), ("tensor", id),
    ("output", number). `reaches`: the tensors whose gradient the backward of each output gives,
    None where it requires none. `through`: the other outputs that it passes on its way.
    `accumulated`: the leaves in the order in which eager's backward gives them their gradients,
    each with the number of its node.
    `sources`: where a gradient may come from, if users' Functions may give None; else none.
    """

    reaches: list[set[tuple[str, Any]] | None]
    through: list[set[int]]
    used_up: list[UsedUp]
    origins: list[Origin]
    accumulated: list[tuple[tuple[str, Any], int]]
    sources: list[Source]


def history_of(
    outputs: Sequence[torch.Tensor],
    named: Mapping[tuple[str, Any], torch.Tensor],
    held: Sequence[torch.Tensor],
    memory: Mapping[int, Sequence[tuple[str, Any]]],
    calls: Mapping[Any, FunctionCall],
) -> AutogradHistory | None:
    """The AutogradHistory of traced outputs; None where the graph does not show it.

    named: the module's tensors and the call's. held: real ones besides; one that was computed
    before the call is where this graph ends. memory: labels by storage_key. calls: of users'
    Functions, by their nodes.
    """
    with disable_proxy_modes_tracing():  # looking compares sizes, which is no part of forward
        held = [tensor for tensor in held if tensor.grad_fn is not None]
        graph = _Graph([o.grad_fn for o in outputs], {tensor.grad_fn for tensor in held})
        # an op of ours that stands for torch's (markers.py) has no backward to look at
        if any("NotImplemented" in node.name() for node in graph.nodes):
            return None
        named = {**named, **{("tensor", id(tensor)): tensor for tensor in held}}
        return _Walk(graph, outputs, named, calls).history(memory)


def by_position(
    history: AutogradHistory,
    outputs: Sequence[Output],
    place: Callable[[tuple[str, Any]], int | None],
    always_saved: set[int],
    once_of_call: Mapping[int, int],
) -> tuple[list[tuple | None], list[tuple], list[list[int | None]], list[tuple], list[tuple]]:
    """The history by the graph's inputs, whose numbers `place` gives, and by the graph's outputs.

    For each graph output (inputs saved, outputs saved, inputs reached, outputs on the way), or None
    where it requires no gradient; what is used up, as (outputs, inputs, outputs behind, outputs
    made, inputs saved, outputs saved, how many origins come no later); the origins; the inputs
    that are leaves, as (input, how many origins and how many used up come before), all three as
    eager goes; and the sources, as (outputs, number by which a call runs once or None, tensor,
    inputs reached, outputs reached).
    """

    numbers = _Numbers(outputs, place)
    inputs_in, outputs_in, all_of = numbers.inputs_in, numbers.outputs_in, numbers.all_of
    count = max((n + 1 for o in outputs for n in o.numbers), default=0)
    rows: list[Any] = [None] * count
    for i, reached in enumerate(history.reaches):
        for number in outputs[i].numbers if reached is not None else ():
            row = rows[number] = rows[number] or (set(always_saved), set(), set(), set())
            row[2].update(inputs_in(reached))
            passed = history.through[i]
            if number == outputs[i].output:  # whose gradient passes none of its views
                passed = {k for k in passed if outputs[k].output != number}
            row[3].update(outputs_in(passed) - {number})
    origins = _origins(history, outputs, [i for i, row in enumerate(rows) if row])
    used_up, kept = [], []
    for node in sorted(history.used_up, key=lambda node: -node.number):
        saved = (inputs_in(node.saved), all_of(k for kind, k in node.saved if kind == "output"))
        reached_by = sorted(all_of(node.outputs))
        for row in filter(None, map(rows.__getitem__, reached_by)):
            row[0].update(saved[0])
            row[1].update(saved[1])
        made = {outputs[i].differentiated for i in node.made} - {None}
        sets = inputs_in(node.reaches), outputs_in(node.behind), made, *saved
        before = _count_before(node.number, origins)
        if reached_by:
            kept.append(node)
            used_up.append((reached_by, *map(sorted, sets), before))
    return (
        [row and tuple(map(sorted, row)) for row in rows],
        used_up,
        [origin.results for origin in origins],
        [
            (n, _count_before(number, origins), _count_before(number, kept))
            for label, number in history.accumulated
            if (n := place(label)) is not None
        ],
        [numbers.row_of(source, once_of_call) for source in history.sources],
    )


def _count_before(number: int, nodes: Iterable[Origin | UsedUp]) -> int:
    return sum(node.number >= number for node in nodes)


class _Numbers:
    """The graph's numbers of what a history names."""

    def __init__(self, outputs: Sequence[Output], place: Callable[[tuple[str, Any]], int | None]):
        self.outputs, self.place = outputs, place

    def inputs_in(self, labels: set[tuple[str, Any]]) -> set[int]:
        return {self.place(label) for label in labels if label[0] != "output"} - {None}

    def outputs_in(self, numbers: Iterable[int]) -> set[int]:
        """Those that the gradient of these outputs comes to."""
        found = (self.outputs[i] for i in numbers)
        return {o.output if o.own is None else o.own for o in found} - {None}

    def all_of(self, numbers: Iterable[int]) -> set[int]:
        return {n for i in numbers for n in self.outputs[i].numbers}

    def row_of(self, source: Source, once_of_call: Mapping[int, int]) -> tuple:
        come_from = sorted(self.all_of(source.outputs))
        reached = sorted(self.inputs_in(source.reaches)), sorted(self.outputs_in(source.behind))
        return come_from, once_of_call.get(source.call), source.tensor, *reached


def _origins(
    history: AutogradHistory, outputs: Sequence[Output], differentiable: list[int]
) -> list[Origin]:
    """By the graph's outputs; one that is returned through views has a node of its own."""
    places = [output.differentiated for output in outputs]
    times = collections.Counter(n for output in outputs for n in output.numbers)
    plain = {i: p for i, p in enumerate(places) if p in differentiable and times[p] == 1}
    found = []
    numbers: dict[int | None, int] = {}
    for number, results in history.origins:
        for i in filter(lambda i: i is not None, results):
            for place in outputs[i].numbers:
                numbers[place] = min(number, numbers.get(place, number))
        if not plain.keys().isdisjoint(results):
            found.append(Origin(number, [plain.get(i) for i in results]))
    alone = set(differentiable) - {p for origin in found for p in origin.results}
    found += [Origin(numbers[p], [p]) for p in sorted(alone)]
    return sorted(found, key=lambda origin: -origin.number)


class _Walk:
    """Sets of outputs and tensors as bits: outputs first, then tensors."""

    def __init__(
        self, graph: "_Graph", outputs: Sequence[torch.Tensor], named: Mapping,
        calls: Mapping[Any, FunctionCall],
    ):  # fmt: skip
        self.graph, self.outputs, self.calls = graph, outputs, calls
        self.turns = graph.turns()
        self.labels: list[tuple[str, Any]] = []
        self.marks: dict[tuple[Any, int], int] = {}
        ids = self.leaves = {}
        self.accumulators: dict[int, Any] = {}  # by the leaf's id
        for label, tensor in named.items():
            if not tensor.requires_grad:
                continue
            if tensor.grad_fn is None:
                ids.setdefault(id(tensor), label)
            else:
                self._mark(tensor.grad_fn, tensor.output_nr, label)
        for node in graph.inner:
            if hasattr(node, "variable"):
                label = ids.get(id(node.variable), ("tensor", id(node.variable)))
                self._mark(node, 0, label)
                self.accumulators[id(node.variable)] = node
        for i, output in enumerate(outputs):
            if output.grad_fn is not None:
                edge = (output.grad_fn, output.output_nr)
                self.marks[edge] = self.marks.get(edge, 0) | 1 << i

    def _mark(self, node: Any, number: int, label: tuple[str, Any]) -> None:
        bit = 1 << len(self.outputs) + len(self.labels)
        self.marks[node, number] = self.marks.get((node, number), 0) | bit
        self.labels.append(label)

    def history(self, memory: Mapping[int, Sequence[tuple[str, Any]]]) -> AutogradHistory:
        down, up = self._reached()
        behind = [down.get(o.grad_fn, 0) for o in self.outputs]
        origins = self._origins()
        return AutogradHistory(
            [None if o.grad_fn is None else self._tensors(b)
             for o, b in zip(self.outputs, behind, strict=True)],
            [self._outputs(b) for b in behind],
            self._used_up(down, up, memory, sorted(origin.number for origin in origins)),
            origins,
            self._accumulated(),
            self._sources(up),
        )  # fmt: skip

    def _used_up(self, down: dict, up: dict, memory: Mapping, borders: list[int]) -> list[UsedUp]:
        """`borders`: the numbers of the nodes that made outputs."""
        made: dict[Any, int] = {}
        for i, output in enumerate(self.outputs):
            made[output.grad_fn] = made.get(output.grad_fn, 0) | 1 << i
        found: dict[tuple, tuple[list[int], set]] = {}
        for node in self.graph.inner:
            if keys := _saved_by(node):
                number = self.turns[node]
                place = bisect.bisect_left(borders, number)
                kind = up[node], down[node], made.get(node, 0), place
                numbers, saved = found.setdefault(kind, ([], set()))
                numbers.append(number)
                saved.update(label for key in keys for label in memory.get(key, ()))
        return [
            UsedUp(max(numbers), self._outputs(a), self._tensors(b), self._outputs(b),
                   self._outputs(m), saved)
            for (a, b, m, _), (numbers, saved) in found.items()
        ]  # fmt: skip

    def _accumulated(self) -> list[tuple[tuple[str, Any], int]]:
        leaves = map(id, _native.torch_bridge().accumulated(self.outputs))
        return [
            (self.leaves.get(leaf, ("tensor", leaf)), self.turns[self.accumulators[leaf]])
            for leaf in leaves
            if leaf in self.accumulators
        ]

    def _origins(self) -> list[Origin]:
        made: dict[Any, Origin] = {}
        for i, output in enumerate(self.outputs):
            if (node := output.grad_fn) is not None:
                unknown = Origin(self.turns[node], [None] * len(node._input_metadata))
                made.setdefault(node, unknown).results[output.output_nr] = i
        return list(made.values())

    def _reached(self) -> tuple[dict[Any, int], dict[Any, int]]:
        """For each node the bits that lie behind it, and the outputs that reach it."""
        down: dict[Any, int] = {}
        up = dict.fromkeys(self.graph.nodes, 0)
        for node in self.graph.nodes:
            following = [edge for edge in self.graph.edges(node) if edge[0] is not None]
            bits = [self.marks.get(edge, 0) | down[edge[0]] for edge in following]
            down[node] = functools.reduce(int.__or__, bits, 0)
        for i, output in enumerate(self.outputs):
            if output.grad_fn is not None:
                up[output.grad_fn] |= 1 << i
        for node in reversed(self.graph.nodes):
            for following, _ in self.graph.edges(node):
                if following is not None:
                    up[following] |= up[node]
        return down, up

    def _sources(self, up: dict) -> list[Source]:
        if not any(node in self.calls for node in self.graph.inner):
            return []
        near: dict[Any, int] = {}  # the bits that no call lies before

        def along(edge: tuple) -> int:
            return self.marks.get(edge, 0) | near[edge[0]] if edge[0] is not None else 0

        found = []
        for node in self.graph.nodes:
            bits = [along(edge) for edge in self.graph.edges(node)]
            call = self.calls.get(node)
            near[node] = functools.reduce(int.__or__, bits, 0) if call is None else 0
            for k, reached in enumerate(bits if call is not None else ()):
                if k not in call.without:
                    found.append((up[node], call.number, k, reached))
        for i, output in enumerate(self.outputs):
            if output.grad_fn is not None:
                found.append((1 << i, None, 0, near[output.grad_fn]))
        return [
            Source(self._outputs(a), call, k, self._tensors(b), self._outputs(b))
            for a, call, k, b in found
        ]

    def _outputs(self, bits: int) -> set[int]:
        return {i for i in range(len(self.outputs)) if bits >> i & 1}

    def _tensors(self, bits: int) -> set[tuple[str, Any]]:
        bits >>= len(self.outputs)
        return {label for k, label in enumerate(self.labels) if bits >> k & 1}


class _Graph:
    """Nodes of eager, from roots to `ends`, which no edge is followed from.

    `nodes`: each after those that it leads to. `inner`: without the ends.
    """

    def __init__(self, roots: Sequence[Any], ends: set[Any]):
        self.ends = ends
        found: dict[Any, None] = {}
        seen, waiting = set(), [(root, False) for root in roots if root is not None]
        while waiting:
            node, done = waiting.pop()
            if done:
                found[node] = None
            elif node not in seen:
                seen.add(node)
                waiting.append((node, True))
                waiting += [(n, False) for n, _ in self.edges(node) if n is not None]
        self.nodes = list(found)
        self.inner = [node for node in found if node not in ends]

    def edges(self, node: Any) -> Sequence[tuple]:
        return () if node in self.ends else node.next_functions

    def turns(self) -> dict[Any, int]:
        """When torch's engine runs each, the highest first: the one made last of those whose
        gradients are whole. A view of what was written since has a node that is made when it is
        read, and so later than its reader's."""
        readers = collections.Counter(n for node in self.nodes for n, _ in self.edges(node))
        count = itertools.count()  # nodes have no order of their own
        ready = [(-n._sequence_nr(), next(count), n) for n in self.nodes if not readers[n]]
        heapq.heapify(ready)
        turns: dict[Any, int] = {}
        while ready:
            *_, node = heapq.heappop(ready)
            turns[node] = len(self.nodes) - len(turns)
            for following, _ in self.edges(node):
                readers[following] -= 1
                if following is not None and not readers[following]:
                    heapq.heappush(ready, (-following._sequence_nr(), next(count), following))
        return turns


@functools.cache
def _names(kind: type) -> list[str]:
    """The attributes of a kind of node that hold saved tensors; what else is saved are numbers."""
    return [name for name in dir(kind) if name.startswith("_raw_saved_")]


def _saved_by(node: Any) -> set[int]:
    """As packed: to unpack one makes a traced tensor of it, which takes far longer than a look."""
    keys = set()
    for name in _names(type(node)):
        value = getattr(node, name)
        for saved in value if isinstance(value, (list, tuple)) else [value]:
            keys.add(storage_key(saved.data))
    return keys - {None}
