"""Walks an exported graph and applies the rules.

A stage of a capture: stages.py calls `translate` with one Placeholder an input; what
comes back names the graph's outputs and the memory that forward wrote to.
"""

import dataclasses
import operator
from collections.abc import Sequence, Set
from typing import Any

import sympy
import torch
from torch import fx

from ..errors import Defect, NeedsExactSizes, NotCapturable, ReadsData
from ..records.autograd_history import storage_key
from ..records.ports import Input, Placeholder
from ..records.sizes import dim_of
from ..records.steps import step_of
from ..torch_internals.tracing import FakeTensor, HigherOrderOperator, OpOverload
from .asserts import assert_number
from .autocast import Autocast, entered
from .bodies import check_numbers, check_sizes, is_control
from .collective import emit_collective, is_collective
from .complex import emit_complex, is_complex
from .context import Context
from .emit import FLOATING, CountedNumber, MissingOp, SymbolicFloat, SymbolicTruth
from .numbers import ruled
from .opaque import decompose, emit_opaque
from .placement import check_provided, check_returned
from .provenance import traced_value
from .refs import Ref, Storage
from .refused import is_refused, kernel_raises
from .regions import region
from .registry import RULES
from .results import wrapped
from .returned import Returned, returned
from .settled import Settled, env_of
from .writes import call_in_place, is_written

# Checks on what the capture's guards and key already hold.
_SKIPPED = {
    "_assert_tensor_metadata.default",
    "sym_constrain_range_for_size.default",
    "sym_constrain_range.default",
}
# How Python reads a number out of a tensor.
_READS = {"aten.item.default", "aten._local_scalar_dense.default"}
# Of Python's floats.
_ARITHMETIC = {
    operator.add: "Add", operator.sub: "Sub", operator.mul: "Mul", operator.truediv: "Div",
    operator.neg: "Neg",
}  # fmt: skip
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclasses.dataclass(slots=True)
class Translated:
    """`inputs` in the graph's order; `outputs`: what forward returned; `writes`: (input, its new
    value); `draws`: the numbers of the random nodes that a node of the program became;
    `communicates`: whether it has collectives; `once_of_call`: under which number the call of a
    Function, by its own, runs once."""

    inputs: list[Input]
    outputs: list[Returned]
    writes: list[tuple[Input, Any]]
    random_nodes: int
    draws: dict[fx.Node, list[int]]
    communicates: bool
    once_of_call: dict[int, int]


def translate(
    program: fx.GraphModule,
    graph: Any,
    placeholders: Sequence[Placeholder],
    grad_enabled: bool,
    share_memory: bool = True,
    standard: bool = False,
    through: Sequence[Set[int]] = (),
) -> Translated:
    """Emits `program` into `graph`. Raises NotCapturable naming op, module, file and line.

    share_memory: outputs that share memory are views of one output or input, else all are values.
    standard: for a file, where an op of the standard goes before one that is exactly torch's.
    through: for each output the others that its gradient passes.
    """
    t = Translator(graph, grad_enabled, standard)
    refs, seen = [], {}
    nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
    settled = Settled(env_of(map(traced_value, program.graph.nodes)))
    for node, placeholder in zip(nodes, placeholders, strict=True):
        if placeholder.memory not in seen:
            seen[placeholder.memory] = t.storage_of(node, placeholder) if node.users else None
        elif node.users and seen[placeholder.memory] is None:
            seen[placeholder.memory] = t.storage_of(node, placeholder)
        storage = seen[placeholder.memory] if node.users else None
        refs.append(Ref(storage, (), storage_key(node.meta["val"])) if storage else None)
    t.outside = {ref.key for ref in refs if ref is not None}
    try:
        traced = [traced_value(n) for n in program.graph.output_node().args[0]]
        with entered({}):  # what is asked of torch here is asked of ops as they are
            outputs = t.run(program, refs)
            check_returned(t, [n.meta["val"] for n in nodes], traced)
            done = t.finish(outputs, traced, share_memory, through)
    except NotCapturable as error:
        if error.op is None:  # found where no node was at hand, as a dtype of no graph
            t.node, t.target = t.latest, getattr(t.latest, "target", None)
            t.refuse(error.reason, kind=type(error))
        raise
    except Exception as error:
        t.node, t.target = t.latest, getattr(t.latest, "target", None)
        try:
            t.refuse(f"its translation failed: {type(error).__name__}: {error}")
        except NotCapturable as refusal:
            raise Defect(refusal) from error
    if not settled.holds():
        raise NeedsExactSizes("sizes were taken to be numbers while the graph was translated")
    return done


def _unread(graph: fx.Graph) -> set[fx.Node]:
    """The calls whose results reach no output and no effect."""
    found: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        is_op = isinstance(node.target, OpOverload) and not node.target._schema.is_mutable
        if (is_op or node.target is operator.getitem) and all(user in found for user in node.users):
            found.add(node)
    return found


class Translator(Context):
    """The walk over the nodes of an exported graph, region by region."""

    def __init__(self, graph: Any, grad_enabled: bool, standard: bool = False):
        super().__init__(graph, grad_enabled, standard)
        self.autocast = Autocast()

    def storage_of(self, node: fx.Node, placeholder: Placeholder) -> Storage:
        """Makes the graph input or constant of a placeholder."""
        if placeholder.constant is not None:
            return Storage(self.constant(placeholder.constant))
        given = placeholder.input
        given.dims = [dim_of(d) for d in node.meta["val"].shape]
        value = self.g.input(given.name, given.dtype, given.dims, given.role)
        self.inputs.append(given)
        storage = Storage(value, given.requires_grad and self.grad_enabled, given)
        self.storages.append(storage)
        return storage

    def run(self, program: fx.GraphModule, arguments: Sequence[Any]) -> list[Any]:
        """Translates the nodes of `program`; returns its outputs as Refs and numbers."""
        env: dict[fx.Node, Any] = {}
        rest = iter(arguments)
        whole = self.node in self.unread  # of a decomposed op
        self.unread |= set(program.graph.nodes) if whole else _unread(program.graph)
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

    def finish(
        self, outputs: Sequence[Any], traced: Sequence, share_memory: bool,
        through: Sequence[Set[int]],
    ) -> Translated:  # fmt: skip
        """Reads the outputs, `traced` as these, and the written inputs after the last node."""
        results = returned(self, outputs, traced, share_memory, through)
        writes = [(s.source, s.value) for s in self.storages if s.version]
        drawn = self.random_nodes, self.draws
        return Translated(
            self.inputs, results, writes, *drawn, self.communicates, self.once_of_call
        )

    def _attribute(self, program: fx.GraphModule, node: fx.Node) -> Any:
        found = operator.attrgetter(node.target)(program)
        check_provided(self, found if isinstance(found, torch.Tensor) else None)
        if isinstance(found, FakeTensor):
            self.refuse("forward reads, outside of a body, a tensor that was made inside of it")
        if isinstance(found, torch.Tensor):
            return Ref(Storage(self.constant(found)), (), storage_key(found))
        return found

    def _call(self, node: fx.Node, env: dict[fx.Node, Any]) -> Any:
        if node.target is operator.getitem:
            container = env[node.args[0]]
            if isinstance(container, (list, tuple)):
                return container[node.args[1]]
        val = node.meta.get("val")
        check_provided(self, val)
        if str(node.target) in _READS and val is not None:
            self._read_number(env[node.args[0]], val)
        if isinstance(val, torch.SymFloat):
            args = fx.map_arg(node.args, lambda n: env[n])
            return SymbolicFloat(val.node.expr, self._read_float(node.target, args))
        if isinstance(val, _SYMBOLIC):
            is_size = isinstance(val, torch.SymInt) and not self.is_counted(val.node.expr)
            if is_size and not self.is_told(val):
                if str(node.target) == "aten.sym_storage_offset.default":
                    return None  # for an assertion on it alone
                reason = "a size is a number that is read out of a tensor"
                self.refuse(reason, str(node.target), ReadsData)
            return self._number(val)
        if self.counted:
            check_sizes(self, val)
        if isinstance(val, (int, float)):  # a size that an assertion has made a number
            return val
        numbers = isinstance(val, (list, tuple)) and len(val) > 0  # a region may give nothing
        numbers = numbers and not is_control(node.target)
        if numbers and all(isinstance(v, (int, *_SYMBOLIC)) for v in val):
            return [self._number(v) if isinstance(v, _SYMBOLIC) else v for v in val]
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: env[n])
        self.target = node.target
        if isinstance(node.target, HigherOrderOperator):
            return region(self, node.target, args)
        if not isinstance(node.target, OpOverload):
            if val is None:
                return None
            self.refuse(f"forward calls {node.target}, which is no operator of torch")
        name = str(node.target).removeprefix("aten.")
        if name == "ortmodule.mark_region.default":
            self.recompute_depth += 1 if args[0] else -1
            return None
        if name == "_assert_scalar.default":
            return assert_number(
                self, *(traced_value(a) if isinstance(a, fx.Node) else a for a in node.args)
            )
        if name in _SKIPPED:
            return None
        written = [i for i, a in enumerate(node.target._schema.arguments) if is_written(a)]
        if written:
            return call_in_place(self, name, written, args, kwargs)
        outs, args, kwargs = self.autocast.call(self, name, args, kwargs)
        return None if val is None else wrapped(self, outs, name, args, kwargs)

    def _read_number(self, ref: Any, traced: Any) -> None:
        """`tensor.item()`: of an integer or a truth value it is a number as a loop counts them.

        Where the trace took it to be a certain number, as after an assertion, it is checked.
        """
        value = self.reshape(ref.read(self), [])
        expr = traced.node.expr if isinstance(traced, _SYMBOLIC) else sympy.sympify(traced)
        if not expr.free_symbols:
            if self.standard:
                self.refuse(f"the trace holds where this is {expr}, and a file has no checks")
            known = bool(expr) if value.dtype == "bool" else expr
            self.check(
                self.op("Equal", value, self.g.scalar(known, value.dtype)), f"is not {known}"
            )
            return
        new = [s.name for s in expr.free_symbols if not self.is_told(f"late_{s.name}")]
        if len(new) == 1 and new[0] not in self.counted and value.dtype not in FLOATING:
            self.counted[new[0]] = self.cast(value, "int64")

    def _read_float(self, target: Any, args: Sequence[Any]) -> Any:
        """Of a float that is read out of a tensor, or made of one that was: its value, computed in
        Python's order; None of one made of sizes."""
        if args and isinstance(args[0], Ref):
            return self.stop(self.cast(self.reshape(args[0].read(self), []), "float64"))
        if all(getattr(arg, "value", None) is None for arg in args):
            return None
        if target not in _ARITHMETIC:
            self.refuse(f"a number read out of a tensor is given to {target}")
        return self.op(_ARITHMETIC[target], *(self.operand(arg, "float64") for arg in args))

    def _number(self, val: Any) -> Any:
        constant = val.node.maybe_as_int() if isinstance(val, torch.SymInt) else None
        if constant is not None:
            return constant
        if isinstance(val, torch.SymInt):
            counted = self.is_counted(val.node.expr)
            return CountedNumber(val.node.expr) if counted else self.canonical(dim_of(val))
        if isinstance(val, torch.SymFloat):
            return SymbolicFloat(val.node.expr)
        return SymbolicTruth(val.node.expr)

    def apply(self, name: str, args: Sequence[Any], kwargs: dict) -> Any:
        """The values of the running node: by its rule, its decomposition, or an aten node."""
        self.refs, self.given = list(args), (args, kwargs)
        args, kwargs = self.read((list(args), kwargs))
        if self.counted:
            check_numbers(self, name, (args, kwargs))
        if is_collective(self.target):
            return emit_collective(self, name, args, kwargs)
        if is_complex(self, args, kwargs):
            return emit_complex(self, name, args, kwargs)
        rule = RULES.get(name)
        step = step_of(self.target)
        reason = step.reason if step else "the engine has no op for it"
        if rule is not None:
            if is_refused(self):
                self.refuse("torch has no kernel for these dtypes")
            if kernel_raises(self, name, args, kwargs):
                self.refuse("torch's kernel raises for these sizes or numbers")
            try:
                outs = ruled(self, name, rule, args, kwargs)
                if outs is not NotImplemented:
                    return outs
                reason = "the engine's op is not torch's for these arguments"
            except MissingOp as missing:
                reason = str(missing)
        outs = decompose(self, args, kwargs)
        return emit_opaque(self, args, kwargs, reason) if outs is None else outs

    def read(self, tree: Any) -> Any:
        """A tree of Refs as their values now."""
        if isinstance(tree, Ref):
            return tree.read(self)
        if isinstance(tree, (list, tuple)):
            return [self.read(x) for x in tree]
        if isinstance(tree, dict):
            return {k: self.read(v) for k, v in tree.items()}
        return tree
