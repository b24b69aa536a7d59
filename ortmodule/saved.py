"""What eager's autograd graph behind the tensors that a module returned says.

flat.py asks while forward is traced: the traced tensors have eager's own autograd graph. What
its nodes saved may not be written to before the backward; anything else may. A backward of one
output visits what that output reaches, other returned outputs among it, and nothing else.
"""

import collections
import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

from .interface import Output


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


def edges_of(tensors: Iterable[torch.Tensor]) -> list[tuple]:
    """Where the gradient of each goes: equal as long as a tensor keeps its history."""
    return [(t.requires_grad, t.grad_fn, t.output_nr) for t in tensors]


class History(NamedTuple):
    """The graph behind a module's distinct outputs, by their numbers.

    Tensors go by label: ("input", number), ("name", of a parameter or buffer), ("tensor", id).
    `saved`: what eager's backward of each output reads, ("output", number) too. `reaches`: the
    tensors whose gradient it gives, None where it requires none. `through`: the other outputs that
    it passes on its way. `used_up`: of each node that saved something, and so runs once, the
    outputs that reach it, the tensors and the outputs that it reaches. `origins`: of each node that
    made outputs, which one each of its results is, None where that was not returned.
    """

    saved: list[set[tuple[str, Any]]]
    reaches: list[set[tuple[str, Any]] | None]
    through: list[set[int]]
    used_up: list[tuple[set[int], set[tuple[str, Any]], set[int]]]
    origins: list[list[int | None]]


def history_of(
    outputs: Sequence[torch.Tensor],
    named: Mapping[tuple[str, Any], torch.Tensor],
    memory: Mapping[int, Sequence[tuple[str, Any]]],
) -> History | None:
    """The History of traced outputs; None where the graph does not show it.

    named: the module's tensors and the call's. memory: labels by storage_key.
    """
    with disable_proxy_modes_tracing():  # looking compares sizes, which is no part of forward
        nodes = _nodes([output.grad_fn for output in outputs])
        # an op of ours that stands for torch's (markers.py) has no backward to look at
        if any("NotImplemented" in node.name() for node in nodes):
            return None
        return _Walk(nodes, outputs, named).history(memory)


class ViewOnTheWay(Exception):
    """Another output's gradient passes a returned view, which is made when the call returns."""


def by_position(
    history: History,
    outputs: Sequence[Output],
    place: Callable[[tuple[str, Any]], int | None],
    always_saved: set[int],
) -> tuple[list[tuple | None], list[tuple], list[list[int | None]]]:
    """The history by the graph's inputs, whose numbers `place` gives, and by the graph's outputs.

    For each graph output (inputs saved, outputs saved, inputs reached, outputs on the way), or None
    where it requires no gradient; what is used up, as (outputs, inputs, outputs behind); and the
    origins.
    """

    def inputs_in(labels: set[tuple[str, Any]]) -> set[int]:
        return {place(label) for label in labels if label[0] != "output"} - {None}

    def outputs_in(numbers: Iterable[int]) -> set[int]:
        return {outputs[i].output for i in numbers} - {None}

    count = max((o.output + 1 for o in outputs if o.output is not None), default=0)
    rows: list[Any] = [None] * count
    for i, output in enumerate(outputs):
        if any(outputs[k].views for k in history.through[i]):
            raise ViewOnTheWay("forward returns a view and what is computed from it")
        reached = history.reaches[i]
        if output.output is None or reached is None:
            continue
        row = rows[output.output] = rows[output.output] or (set(always_saved), set(), set(), set())
        saved = history.saved[i]
        row[0].update(inputs_in(saved))
        row[1].update(outputs_in(k for kind, k in saved if kind == "output"))
        row[2].update(inputs_in(reached))
        row[3].update(outputs_in(history.through[i]) - {output.output})
    used_up = [(outputs_in(a), inputs_in(b), outputs_in(c)) for a, b, c in history.used_up]
    return (
        [row and tuple(map(sorted, row)) for row in rows],
        [tuple(map(sorted, node)) for node in used_up if node[0]],
        _origins(history, outputs, [i for i, row in enumerate(rows) if row]),
    )


def _origins(
    history: History, outputs: Sequence[Output], differentiable: list[int]
) -> list[list[int | None]]:
    """By the graph's outputs; one that is returned through views has a node of its own."""
    places = [None if output.views else output.output for output in outputs]
    times = collections.Counter(output.output for output in outputs)
    plain = {i: p for i, p in enumerate(places) if p in differentiable and times[p] == 1}
    shared = [[plain.get(i) for i in results] for results in history.origins]
    shared = [results for results in shared if results != [None] * len(results)]
    alone = set(differentiable) - {p for results in shared for p in results}
    return shared + [[p] for p in sorted(alone)]


class _Walk:
    """Sets of outputs and tensors as bits: outputs first, then tensors."""

    def __init__(self, nodes: list, outputs: Sequence[torch.Tensor], named: Mapping):
        self.nodes, self.outputs = nodes, outputs
        self.labels: list[tuple[str, Any]] = []
        self.marks: dict[tuple[Any, int], int] = {}
        ids = {}
        for label, tensor in named.items():
            if not tensor.requires_grad:
                continue
            if tensor.grad_fn is None:
                ids.setdefault(id(tensor), label)
            else:
                self._mark(tensor.grad_fn, tensor.output_nr, label)
        for node in nodes:
            if hasattr(node, "variable"):
                label = ids.get(id(node.variable), ("tensor", id(node.variable)))
                self._mark(node, 0, label)
        for i, output in enumerate(outputs):
            if output.grad_fn is not None:
                edge = (output.grad_fn, output.output_nr)
                self.marks[edge] = self.marks.get(edge, 0) | 1 << i

    def _mark(self, node: Any, number: int, label: tuple[str, Any]) -> None:
        bit = 1 << len(self.outputs) + len(self.labels)
        self.marks[node, number] = self.marks.get((node, number), 0) | bit
        self.labels.append(label)

    def history(self, memory: Mapping[int, Sequence[tuple[str, Any]]]) -> History:
        down, up = self._reached()
        behind = [down.get(o.grad_fn, 0) for o in self.outputs]
        found = {node: _saved_by(node) for node in self.nodes}
        saved: list[set] = [set() for _ in self.outputs]
        for node, keys in found.items():
            labels = {label for key in keys for label in memory.get(key, ())}
            for i in self._outputs(up[node]):
                saved[i] |= labels
        return History(
            saved,
            [None if o.grad_fn is None else self._tensors(b)
             for o, b in zip(self.outputs, behind, strict=True)],
            [self._outputs(b) for b in behind],
            [(self._outputs(a), self._tensors(b), self._outputs(b))
             for a, b in sorted({(up[n], down[n]) for n, keys in found.items() if keys})],
            self._origins(),
        )  # fmt: skip

    def _origins(self) -> list[list[int | None]]:
        made: dict[Any, list[int | None]] = {}
        for i, output in enumerate(self.outputs):
            if (node := output.grad_fn) is not None:
                results = made.setdefault(node, [None] * len(node._input_metadata))
                results[output.output_nr] = i
        return list(made.values())

    def _reached(self) -> tuple[dict[Any, int], dict[Any, int]]:
        """For each node the bits that lie behind it, and the outputs that reach it."""
        down: dict[Any, int] = {}
        up = dict.fromkeys(self.nodes, 0)
        for node in self.nodes:
            following = [edge for edge in node.next_functions if edge[0] is not None]
            bits = [self.marks.get(edge, 0) | down[edge[0]] for edge in following]
            down[node] = functools.reduce(int.__or__, bits, 0)
        for i, output in enumerate(self.outputs):
            if output.grad_fn is not None:
                up[output.grad_fn] |= 1 << i
        for node in reversed(self.nodes):
            for following, _ in node.next_functions:
                if following is not None:
                    up[following] |= up[node]
        return down, up

    def _outputs(self, bits: int) -> set[int]:
        return {i for i in range(len(self.outputs)) if bits >> i & 1}

    def _tensors(self, bits: int) -> set[tuple[str, Any]]:
        bits >>= len(self.outputs)
        return {label for k, label in enumerate(self.labels) if bits >> k & 1}


def _nodes(roots: Sequence[Any]) -> list[Any]:
    """The nodes behind `roots`, each after those that it leads to."""
    found: dict[Any, None] = {}
    seen, waiting = set(), [(root, False) for root in roots if root is not None]
    while waiting:
        node, done = waiting.pop()
        if done:
            found[node] = None
        elif node not in seen:
            seen.add(node)
            waiting.append((node, True))
            waiting += [(n, False) for n, _ in node.next_functions if n is not None]
    return list(found)


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
