"""Walks an exported graph and applies the rules.

capture.py calls `translate` with one Placeholder an input; what comes back names the graph's
outputs and the memory that forward wrote to. In-place ops become functional here (refs.py).
"""

import contextlib
import dataclasses
import operator
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..errors import NeedsExactSizes, NotCapturable
from ..interface import Input
from ..saved import storage_key
from ..sizes import dim_of
from .dtypes import is_refused
from .emit import FLOATING, Emitter, MissingOp, SymbolicFloat, dtype_name, is_value
from .opaque import decompose, emit_opaque
from .provenance import place_of_node
from .refs import Link, Ref, Storage
from .registry import INVERSES, RULES
from .returned import Returned, returned

# Checks on what the capture's guards and key already hold.
_SKIPPED = {
    "_assert_tensor_metadata.default",
    "_assert_scalar.default",
    "sym_constrain_range_for_size.default",
    "sym_constrain_range.default",
}
# These return their argument itself where there is nothing to do; other views are tensors anew.
_THEMSELVES = {
    "contiguous.default", "lift.default", "lift_fresh.default", "resolve_conj.default",
    "resolve_neg.default", "conj.default", "real.default", "to.dtype", "to.dtype_layout",
    "to.device", "to.other", "type_as.default", "flatten.using_ints", "positive.default",
    "sum_to_size.default", "atleast_1d.default", "atleast_2d.default", "atleast_3d.default",
}  # fmt: skip
# Off, these return their argument itself; traced they seem to copy it.
_DROPOUTS = {"dropout.default", "feature_dropout.default", "alpha_dropout.default"}
# Their trace takes integers in place, their kernels do not.
_TRUE_DIVISIONS = {"div.Tensor", "div.Scalar", "true_divide.Tensor", "true_divide.Scalar"}
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclasses.dataclass(slots=True)
class Placeholder:
    """What a graph input of the exported program is: an Input of ours, or a constant tensor.

    Placeholders of the same tensor share one `memory` key and become one input.
    """

    memory: int
    input: Input | None = None
    constant: torch.Tensor | None = None


@dataclasses.dataclass(slots=True)
class Translated:
    """`inputs` in the graph's order; `outputs`: what forward returned; `writes`: (input, its new
    value)."""

    inputs: list[Input]
    outputs: list[Returned]
    writes: list[tuple[Input, Any]]
    random_nodes: int


def translate(
    program: fx.GraphModule,
    graph: Any,
    placeholders: Sequence[Placeholder],
    grad_enabled: bool,
    share_memory: bool = True,
    standard: bool = False,
) -> Translated:
    """Emits `program` into `graph`. Raises NotCapturable naming op, module, file and line.

    share_memory: outputs that share memory are views of one output or input, else all are values.
    standard: for a file, where an op of the standard goes before one that is exactly torch's.
    """
    t = Translator(graph, grad_enabled, standard)
    refs, seen = [], {}
    nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
    for node, placeholder in zip(nodes, placeholders, strict=True):
        if placeholder.memory not in seen:
            seen[placeholder.memory] = t.storage_of(node, placeholder) if node.users else None
        elif node.users and seen[placeholder.memory] is None:
            seen[placeholder.memory] = t.storage_of(node, placeholder)
        storage = seen[placeholder.memory] if node.users else None
        refs.append(Ref(storage, (), storage_key(node.meta["val"])) if storage else None)
    t.outside = {ref.key for ref in refs if ref is not None}
    try:
        traced = [_traced_value(n) for n in program.graph.output_node().args[0]]
        return t.finish(t.run(program, refs), traced, share_memory)
    except NotCapturable as error:
        if error.op is None:  # found where no node was at hand, as a dtype of no graph
            t.node, t.target = t.latest, getattr(t.latest, "target", None)
            t.refuse(error.reason, kind=type(error))
        raise
    except Exception as error:  # a defect of ours costs the speed, not the training
        if os.environ.get("ORTMODULE_CHECK") == "1":
            raise
        t.node, t.target = t.latest, getattr(t.latest, "target", None)
        t.refuse(f"its translation failed: {type(error).__name__}: {error}")


class Translator(Emitter):
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
        self._grad_enabled = grad_enabled
        self._no_grad_depth = 0
        self._recompute_depth = 0
        self._key: Any = None
        self._random_nodes = 0
        self._place: tuple | None = None
        self.unlinked: set[int] = set()
        self.alive: list[Any] = []
        self.outside: set[int] = set()

    # What rules ask for.

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
        return dtype_name(self.out(index).dtype)

    def key_input(self) -> Any:
        """The graph's random key, made when first needed."""
        if self._key is None:
            self._key = self.g.input("philox_key", "uint64", [1], "key")
            self.inputs.append(Input("key", "philox_key", "uint64", [1]))
        return self._key

    def next_counter(self) -> int:
        """The number of this random node in program order."""
        self._random_nodes += 1
        return self._random_nodes - 1

    def update(self, position: int, value: Any) -> None:
        """An implicit mutation: the op's tensor argument `position` becomes `value`."""
        ref = self.refs[position]
        old = ref.read(self)
        self._write(ref, self.fit(value, list(old.dims), old.dtype), tainted=False)

    def needs_gradient(self) -> bool:
        """Whether a gradient flows to the running op's arguments."""
        return self._grad_enabled and self._no_grad_depth == 0 and any_tainted(self.given)

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

    def traced_arguments(self, change: Callable[[Any, bool], Any]) -> tuple:
        """The running op's (args, kwargs) as traced, each value through change(val, tainted)."""

        def traced(arg: Any, given: Any) -> Any:
            if isinstance(arg, dict):
                return {k: traced(v, given[k]) for k, v in arg.items()}
            if isinstance(arg, (list, tuple)):
                return [traced(a, g) for a, g in zip(arg, given, strict=True)]
            if isinstance(arg, fx.Node):
                return traced(_traced_value(arg), given)
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
        self.flows = None
        self.node = self.latest = node
        self._set_place(node)
        try:
            yield
        finally:
            self.node, self.target, self.refs, self.given, self.flows = before
            if self.node is not None:
                self._set_place(self.node)

    # The walk.

    def storage_of(self, node: fx.Node, placeholder: Placeholder) -> Storage:
        """Makes the graph input or constant of a placeholder."""
        if placeholder.constant is not None:
            return Storage(self.constant(placeholder.constant.detach().cpu().numpy()))
        given = placeholder.input
        given.dims = [dim_of(d) for d in node.meta["val"].shape]
        value = self.g.input(given.name, given.dtype, given.dims, given.role)
        self.inputs.append(given)
        storage = Storage(value, given.requires_grad and self._grad_enabled, given)
        self.storages.append(storage)
        return storage

    def run(self, program: fx.GraphModule, arguments: Sequence[Any]) -> list[Any]:
        """Translates the nodes of `program`; returns its outputs as Refs and numbers."""
        env: dict[fx.Node, Any] = {}
        rest = iter(arguments)
        for node in program.graph.nodes:
            if node.op == "placeholder":
                env[node] = next(rest)
            elif node.op == "get_attr":
                env[node] = self._attribute(program, node)
            elif node.op == "call_function":
                with self.at(node):
                    env[node] = self._call(node, env)
            elif node.op == "output":
                return fx.map_arg(node.args[0], lambda n: env[n])
        raise AssertionError("an exported graph has no output node")

    def finish(self, outputs: Sequence[Any], traced: Sequence, share_memory: bool) -> Translated:
        """Reads the outputs, `traced` as these, and the written inputs after the last node."""
        results = returned(self, outputs, traced, share_memory)
        writes = [(s.source, s.value) for s in self.storages if s.version]
        return Translated(self.inputs, results, writes, self._random_nodes)

    def _attribute(self, program: fx.GraphModule, node: fx.Node) -> Any:
        found = operator.attrgetter(node.target)(program)
        if isinstance(found, torch.Tensor):
            return Ref(Storage(self.constant(found.detach().numpy())), (), storage_key(found))
        return found

    def _call(self, node: fx.Node, env: dict[fx.Node, Any]) -> Any:
        if node.target is operator.getitem:
            container = env[node.args[0]]
            if isinstance(container, (list, tuple)):
                return container[node.args[1]]
        val = node.meta.get("val")
        if isinstance(val, _SYMBOLIC):
            return self._number(val)
        numbers = isinstance(val, (list, tuple)) and len(val) > 0  # a region may give nothing
        if numbers and all(isinstance(v, (int, *_SYMBOLIC)) for v in val):
            return [self._number(v) if isinstance(v, _SYMBOLIC) else v for v in val]
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: env[n])
        self.target = node.target
        if isinstance(node.target, HigherOrderOperator):
            return self._region(node.target.name(), args)
        if not isinstance(node.target, OpOverload):
            if val is None:
                return None
            self.refuse(f"forward calls {node.target}, which is no operator of torch")
        name = str(node.target).removeprefix("aten.")
        if name == "ortmodule.mark_region.default":
            self._recompute_depth += 1 if args[0] else -1
            return None
        if name in _SKIPPED:
            return None
        written = [i for i, a in enumerate(node.target._schema.arguments) if _is_written(a)]
        if written:
            return self._call_in_place(name, written, args, kwargs)
        outs = self.apply(name, args, kwargs)
        return None if val is None else self._wrap(outs, name, args, kwargs)

    def _number(self, val: Any) -> Any:
        constant = val.node.maybe_as_int() if isinstance(val, torch.SymInt) else None
        if constant is not None:
            return constant
        if isinstance(val, torch.SymInt):
            return self.canonical(dim_of(val))
        if isinstance(val, torch.SymFloat):
            return SymbolicFloat(val.node.expr)
        return None  # a SymBool is asserted on, never computed with

    def apply(self, name: str, args: Sequence[Any], kwargs: dict) -> Any:
        """The values of the running node: by its rule, its decomposition, or an aten node."""
        self.refs, self.given = list(args), (args, kwargs)
        args, kwargs = self._read((list(args), kwargs))
        if is_refused(name, args):
            self.refuse("torch has no kernel for these dtypes")
        rule = RULES.get(name)
        reason = "the engine has no op for it"
        if rule is not None:
            try:
                outs = rule(self, *args, **kwargs)
                if outs is not NotImplemented:
                    return outs
                reason = "the engine's op is not torch's for these arguments"
            except MissingOp as missing:
                reason = str(missing)
        outs = decompose(self, args, kwargs)
        return emit_opaque(self, args, kwargs, reason) if outs is None else outs

    def _read(self, tree: Any) -> Any:
        if isinstance(tree, Ref):
            return tree.read(self)
        if isinstance(tree, (list, tuple)):
            return [self._read(x) for x in tree]
        if isinstance(tree, dict):
            return {k: self._read(v) for k, v in tree.items()}
        return tree

    def _call_in_place(self, name: str, written: list[int], args: Sequence, kwargs: dict) -> Any:
        if written != [0] or not isinstance(args[0], Ref):
            self.refuse(f"{name} writes to its arguments {written}, expected one tensor, the first")
        ref, name = args[0], functional_name(name)
        if name.startswith("resize"):
            self.refuse("forward changes a tensor's size in place")
        if name == "detach.default":
            if ref.tainted:
                ref.look_through(self._link(name, (), {}, None))
            return ref
        if name in INVERSES and name != "copy.default":
            ref.look_through(
                self._link(name, tuple(self._read(args[1:])), self._read(kwargs), None)
            )
            return ref
        before = ref.read(self)
        if name in _TRUE_DIVISIONS and before.dtype not in FLOATING:
            self.refuse(f"forward writes a quotient to a tensor of {before.dtype}")
        functional = _overload(name, self.target)
        if functional is self.target and name not in RULES:
            self.refuse(f"{self.target} writes in place and has no functional form")
        self.target = functional
        value = self.apply(name, args, kwargs)
        value = value[0] if isinstance(value, (list, tuple)) else value
        tainted = before.dtype in FLOATING and any_tainted((args, kwargs)) and self._flows_to(0)
        self._write(ref, self.fit(value, list(before.dims), before.dtype), tainted)
        return ref

    def _write(self, ref: Ref, value: Any, tainted: bool) -> None:
        source = ref.storage.source
        if tainted and self._no_grad_depth:
            value, tainted = self.stop(value), False
        tainted = tainted and self._grad_enabled
        if tainted and ref.is_detached:
            self.refuse("forward writes what has a gradient to a detached tensor")
        if source is not None and source.role == "parameter":
            self.refuse(f"forward writes in place to the parameter {source.name}")
        if source is not None and source.role == "user" and source.requires_grad:
            self.refuse(f"forward writes in place to {source.name}, which requires grad")
        own = any(ref.storage is made for made in self.storages_in_region)
        if ref.storage.tainted and not (ref.tainted and (own or not self._no_grad_depth)):
            self.refuse("forward writes, without gradients, to a tensor that has one")
        if ref.key in self.unlinked:
            self.refuse(
                "forward writes to memory that two tensors share in a way that is not tracked"
            )
        ref.write(self, value, tainted)

    def _wrap(self, outs: Any, name: str, args: Sequence, kwargs: dict) -> Any:
        """Makes Refs of an op's values: views look at their base's storage."""
        val = self.node.meta["val"]
        tainted = any_tainted((args, kwargs))
        if isinstance(val, (list, tuple)):
            traced, spec = tree_flatten(val)  # a list may be one of several outputs
            outs = list(outs) if isinstance(outs, (list, tuple)) else [outs]
            refs = [
                None if v is None or o is None else self._ref(o, v, name, args, kwargs, tainted, i)
                for i, (o, v) in enumerate(zip(outs, traced, strict=True))
            ]
            return tree_unflatten(refs, spec)
        if isinstance(outs, (list, tuple)):
            outs = outs[0]
        return self._ref(outs, val, name, args, kwargs, tainted, None)

    def _ref(self, value, val, name, args, kwargs, tainted, index) -> Ref:
        value = self._checked(value, val, name)
        key = storage_key(val)
        base = args[0] if args and isinstance(args[0], Ref) else None
        if base is not None and name in _DROPOUTS and value is base.read(self):
            return base
        if base is not None and key is not None and base.key == key:
            same = value is base.read(self)
            if same and name in _THEMSELVES:
                return base
            if same and name not in INVERSES:
                link = self._link("alias.default", (), {}, None)
            else:
                rest = tuple(self._read(list(args[1:])))
                link = self._link(name, rest, self._read(kwargs), index)
            return Ref(base.storage, (*base.links, link), key, value)
        if key is not None and any(isinstance(a, Ref) and a.key == key for a in _leaves(args)):
            self.unlinked.add(key)
        tainted = tainted and value.dtype in FLOATING and self._flows_to(index or 0)
        storage = Storage(value, tainted, traced=val)
        self.storages_in_region.append(storage)
        return Ref(storage, (), key, value)

    def _flows_to(self, index: int) -> bool:
        return self.flows is None or self.flows[index]

    def _link(self, name: str, args: tuple, kwargs: dict, index: int | None) -> Link:
        def missing(_t: Any, *_args: Any, **_kwargs: Any) -> Any:
            self.refuse(f"a view by {name} is read after its base was written", op=name)

        return Link(name, self.node, RULES.get(name, missing), args, kwargs, index)

    def _checked(self, value: Any, val: torch.Tensor, name: str) -> Any:
        dtype, dims = dtype_name(val.dtype), self.dims_of(val)
        if value.dtype != dtype or value.rank != len(dims):
            raise AssertionError(
                f"[{name}] translated to {value.dtype}{value.dims}, torch says {dtype}{dims}"
            )
        if list(value.dims) == dims or name == "_shape_as_tensor.default":
            return value
        for ours, theirs in zip(value.dims, dims, strict=False):
            if isinstance(ours, int) and isinstance(theirs, int) and ours != theirs:
                raise AssertionError(
                    f"[{name}] translated to {value.dtype}{value.dims}, torch says {dtype}{dims}"
                )
        return self.reshape(value, dims)

    def _region(self, name: str, args: Sequence[Any]) -> list[Any]:
        """wrap_with_set_grad_enabled and wrap_with_autocast, inlined."""
        if name == "wrap_with_set_grad_enabled":
            enabled, body, *inner = args
            return self._grad_region(enabled, body, inner)
        if name == "wrap_with_autocast":
            device, _dtype, enabled, _cache, body, *inner = args
            if enabled:
                self.refuse(f"forward enters autocast on {device}")
            return list(self.run(body, inner))
        return self.refuse(f"forward uses the control flow op {name}")

    def _grad_region(self, enabled: bool, body: fx.GraphModule, inner: Sequence[Any]) -> list[Any]:
        if enabled:
            if self._no_grad_depth or not self._grad_enabled:
                self.refuse("forward enables gradients where they are disabled around it")
            return list(self.run(body, inner))
        outer, self.storages_in_region = self.storages_in_region, []
        self._no_grad_depth += 1
        try:
            outs = list(self.run(body, inner))
        finally:
            self._no_grad_depth -= 1
            made, self.storages_in_region = self.storages_in_region, outer
        for out in outs:
            if isinstance(out, Ref) and out.tainted and out.storage in made:
                out.storage.value = self.stop(out.storage.value)
                out.storage.version += 1
                out.storage.tainted = False
        kept = {id(a) for a in inner}
        return [self._detached(o) if _needs_detach(o, kept) else o for o in outs]

    def _detached(self, ref: Ref) -> Ref:
        link = self._link("detach.default", (), {}, None)
        return Ref(ref.storage, (*ref.links, link), ref.key)

    def _set_place(self, node: fx.Node) -> None:
        place = (*place_of_node(node), self._recompute_depth > 0)
        if place != self._place:
            self._place = place
            module, file, line, recompute = place
            self.g.set_where(module or "", file or "", line or 0)
            self.g.set_recompute(recompute)


def _traced_value(node: fx.Node) -> Any:
    if node.op == "get_attr" and "val" not in node.meta:
        return operator.attrgetter(node.target)(node.graph.owning_module)
    return node.meta.get("val")


def functional_name(name: str) -> str:
    """add_.Tensor -> add.Tensor; __iand__.Tensor -> __and__.Tensor."""
    base, _, overload = name.partition(".")
    if base.startswith("__i") and base.endswith("__"):
        return f"__{base[3:]}.{overload}"
    return f"{base.removesuffix('_')}.{overload}"


def any_tainted(tree: Any) -> bool:
    """Whether a gradient flows to any tensor among an op's arguments."""
    return any(isinstance(x, Ref) and x.tainted for x in _leaves(tree))


def _leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        return [leaf for x in tree for leaf in _leaves(x)]
    return [tree]


def _needs_detach(out: Any, kept: set[int]) -> bool:
    return isinstance(out, Ref) and id(out) not in kept and out.tainted


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _overload(name: str, original: OpOverload) -> OpOverload:
    base, _, overload = name.partition(".")
    packet = getattr(getattr(torch.ops, original.namespace), base, None)
    return getattr(packet, overload, original)
