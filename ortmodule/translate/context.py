"""What rules ask of the translation that they are a part of; base of Translator (translator.py).

The running node and its traced tensors, gradients, the random key, places, refusals.
"""

import contextlib
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ..errors import NeedsExactSizes, NotCapturable
from ..records.ports import Input
from ..records.sizes import dim_of
from ..torch_internals.tracing import OpOverload
from .emit import FLOATING, HALVES, Emitter, dtype_name, is_value
from .provenance import place_of_node, traced_value
from .refs import Ref, Storage, any_tainted
from .writes import write


class Context(Emitter):
    """The state of one translation; the `t` of every rule."""

    def __init__(self, graph: Any, grad_enabled: bool, standard: bool = False):
        super().__init__(graph, standard)
        self.inputs: list[Input] = []
        self.storages: list[Storage] = []
        self.storages_in_region: list[Storage] = []
        self.node: fx.Node | None = None
        self.latest: fx.Node | None = None
        self.refs: list[Any] = []
        self.given: tuple = ()
        self.flows: list[bool] | None = None
        self.target: OpOverload | None = None
        self.grad_enabled = grad_enabled
        self.no_grad_depth = 0
        self.recompute_depth = 0
        self._key: Any = None
        self.random_nodes = self.nodes_once = 0
        self.once_of_call: dict[int, int] = {}  # of the calls of Functions, by their numbers
        self.draws: dict[fx.Node, list[int]] = {}  # the numbers of its random nodes
        self.communicates = False
        self._place: tuple | None = None
        self.unlinked: set[int] = set()
        self.alive: list[Any] = []
        self.is_wide = False  # the running rule computes halves in float32
        self.apart: list[OpOverload] = []  # ops that are being decomposed
        self.outside: set[int] = set()
        self.unread: set[fx.Node] = set()  # what nothing of the running program reads
        self.within: Any = None  # the Body that nodes are emitted into (bodies.py)

    def out(self, index: int | None = None) -> torch.Tensor:
        """The traced tensor that the op returns (its `index`th)."""
        val = self.node.meta["val"]
        return val if index is None else val[index]

    def out_dims(self, index: int | None = None) -> list:
        return self.dims_of(self.out(index))

    def dims_of(self, traced: torch.Tensor) -> list:
        """The sizes of a traced tensor."""
        return [self.canonical(dim_of(d)) for d in traced.shape]

    def uses(self, index: int) -> bool:
        """Whether anything uses the op's output number `index`."""
        return any(
            u.target is not operator.getitem or (u.args[1] == index and u.users)
            for u in self.node.users
        )

    def out_dtype(self, index: int | None = None) -> str:
        dtype = dtype_name(self.out(index).dtype)
        return "float32" if self.is_wide and dtype in HALVES else dtype

    def key_input(self) -> Any:
        """The graph's random key, made when first needed; a body's is that of the running trip."""
        if self.within is not None:
            return self.within.key()
        if self._key is None:
            self._key = self.g.input("philox_key", "uint64", [1], "key")
            self.inputs.append(Input("key", "philox_key", "uint64", [1]))
        return self._key

    def next_counter(self) -> int:
        """The number of this random node in program order."""
        self.draws.setdefault(self.node, []).append(self.random_nodes)
        self.random_nodes += 1
        return self.random_nodes - 1

    def next_once(self) -> int:
        """The number of this node among those that run once a call."""
        self.nodes_once += 1
        return self.nodes_once - 1

    def update(self, position: int, value: Any) -> None:
        """An implicit mutation: the op's tensor argument `position` becomes `value`."""
        ref = self.refs[position]
        old = ref.read(self)
        write(self, ref, self.fit(value, list(old.dims), old.dtype), tainted=False)

    def needs_gradient(self) -> bool:
        """Whether a gradient flows to the running op's arguments."""
        return self.grad_enabled and self.no_grad_depth == 0 and any_tainted(self.given)

    def gradient_to(self, position: int, item: int | None = None) -> bool:
        """Whether a gradient flows to the running op's argument `position`, or to one of its
        items."""
        args = self.given[0]
        if not self.needs_gradient() or len(args) <= position:
            return False
        return any_tainted(args[position] if item is None else args[position][item])

    def flat(self, value: Any, *sources: Any) -> Any:
        """`value` without a slope: the gradient of each source is zero, but it is there, as it is
        in torch."""
        for source in sources if self.needs_gradient() else ():
            if is_value(source) and source.dtype in FLOATING:
                value = self.op("Where", self.scalar(False, "bool"), source, value)
        return value

    def masked(self, x: Any, value: Any, mask: Any) -> Any:
        """`value`, made of x but where `mask` is true: there its slope is zero by a product, as in
        torch, so that a gradient that is no number stays none."""
        if not self.needs_gradient():
            return value
        slope = self.cast(self.op("Not", mask), x.dtype)
        return self.ort("WithSlope", x, value, slope)

    def hold_positions(self, index: Any, size: Any, from_end: bool = False) -> None:
        """Refuses positions that are no whole numbers. Where the running op's result is unread, and
        so nothing computes it, those outside of `size` raise all the same. from_end: negative ones
        count from there."""
        if index.dtype in FLOATING:
            self.refuse(f"torch takes no positions of {index.dtype}")
        if self.node not in self.unread or index.dtype in ("bool", "uint8"):
            return
        index, end = self.cast(index, "int64"), self.scalar(size, "int64")
        first = self.op("Neg", end) if from_end else self.scalar(0, "int64")
        inside = self.op("And", self.op("Less", index, end), self.op("LessOrEqual", first, index))
        self.check(inside, f"a position lies outside of {size}")

    def traced_arguments(self, change: Callable[[Any, bool], Any]) -> tuple:
        """The running op's (args, kwargs) as traced, each value through change(val, tainted)."""

        def traced(arg: Any, given: Any) -> Any:
            if isinstance(arg, dict):
                return {k: traced(v, given[k]) for k, v in arg.items() if k in given}
            if isinstance(arg, (list, tuple)):
                return [traced(a, g) for a, g in zip(arg, given, strict=True)]
            if isinstance(arg, fx.Node):
                return traced(traced_value(arg), given)
            if isinstance(given, Ref) and given.storage.cast:  # by autocast, after the trace
                arg = arg.to(getattr(torch, given.storage.value.dtype))
            return change(arg, isinstance(given, Ref) and given.tainted)

        return tuple(traced((self.node.args, self.node.kwargs), self.given))

    def refuse(self, reason: str, op: str | None = None, kind: type = NotCapturable) -> None:
        """Raises NotCapturable with the place of the running node."""
        module, file, line = (
            place_of_node(self.node) if self.node is not None else (None, None, None)
        )
        op = op or str(self.target or "")
        raise kind(reason, op=op, module=module, file=file, line=line)

    def static(self, dim: Any, what: str) -> int:
        """A size that must be a number here; raises NeedsExactSizes."""
        if isinstance(dim, int):
            return dim
        return self.refuse(f"{what} is {dim}, expected a number", kind=NeedsExactSizes)

    def fit(self, value: Any, dims: list, dtype: str) -> Any:
        """`value` with this dtype and these dims: what torch proved equal, a graph may not."""
        value = self.cast(value, dtype)
        return self.reshape(value, dims)

    @contextlib.contextmanager
    def at(self, node: fx.Node):
        """Emits as part of `node`."""
        before = self.node, self.target, self.refs, self.given, self.flows
        part_of = self.g.part_of
        self.flows = None
        self.node = self.latest = node
        self._set_place(node)
        self.g.begin_op()
        try:
            yield
        finally:
            self.node, self.target, self.refs, self.given, self.flows = before
            self.g.part_of = part_of
            if self.node is not None:
                self._set_place(self.node)

    def emit_into(
        self, graph: Any, within: Any, storages_in_region: list[Storage], counted: dict[str, Any]
    ) -> None:
        """What follows is emitted into another graph, as part of the running node."""
        self.g, self.within, self.storages_in_region = graph, within, storages_in_region
        self.counted = counted
        self._place = None
        if self.node is not None:
            self._set_place(self.node)

    def _set_place(self, node: fx.Node) -> None:
        place = (*place_of_node(node), self.recompute_depth > 0)
        if place != self._place:
            self._place = place
            module, file, line, recompute = place
            self.g.set_where(module or "", file or "", line or 0)
            self.g.set_recompute(recompute)
