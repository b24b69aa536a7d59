"""Captures one call of a module as a Graph, by torch.export and our own translation.

captures.py calls `capture` when no kept Capture fits; a Capture says when it fits (key, snapshot,
sizes), what the graph takes and gives (inputs, outputs, write-backs), and builds the result.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from . import contract, tree
from .errors import NeedsExactSizes, NotCapturable
from .flat import Flat, place_of_forward
from .guards import Snapshot
from .interface import Assigned, Input, Output, WriteBack
from .key import call_key
from .outputs import history, name_outputs
from .saved import storage_key
from .sizes import SizePredicate, dim_of, evaluate
from .trace import Traced, trace
from .translate import translate
from .translate.emit import dtype_name
from .translate.provenance import CHILD
from .translate.translator import Placeholder


@dataclasses.dataclass(slots=True)
class Capture:
    """A captured call.

    `graph`: inputs in the order of `inputs`; outputs numbered as `outputs` and `write_backs` say.
    `orders`: of graph outputs whose axes are not in the tensor's order, as (output, order).
    `history`: eager's autograd graph behind the outputs, as outputs.history gives it; None: not
    known.
    `assigned`: buffers that forward sets to another tensor. `key`, `snapshot`, `aliases`, `sizes`:
    the capture fits a call when call_key equals `key`, snapshot.changed() is None,
    snapshot.aliases(tensors) equals `aliases` and sizes.bind(shapes) is not None. `spec` with
    `places` builds the result.
    """

    graph: Any
    inputs: list[Input]
    outputs: list[Output]
    write_backs: list[WriteBack]
    orders: list[tuple[int, tuple[int, ...]]]
    history: tuple[list, list] | None
    assigned: list[Assigned]
    spec: Any
    places: list[int]
    key: tuple
    aliases: list[int]
    snapshot: Snapshot
    sizes: SizePredicate
    random_nodes: int

    def bind(self, tensors: Sequence[torch.Tensor]) -> dict[str, int] | None:
        """The symbols' values for a call's flat tensors, or None when their sizes do not fit."""
        return self.sizes.bind([t.shape for t in tensors])

    def replace(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Other tensors of the module's stand where some were captured."""
        for old, new in pairs:
            for given in self.inputs:
                given.tensor = new if given.tensor is old else given.tensor
            for output in self.outputs:
                output.source = new if output.source is old else output.source
            for write in self.write_backs:
                write.target = new if write.target is old else write.target

    def result(
        self,
        graph_outputs: Sequence[torch.Tensor | None],
        tensors: Sequence[torch.Tensor],
        binding: dict[str, int],
    ) -> Any:
        """What the module returns, from the graph's outputs and the call's flat tensors."""

        def number(size: Any) -> Any:
            return _number(size.expression if isinstance(size, tree.Symbol) else size, binding)

        siblings: dict[tuple, Any] = {}
        distinct = [self._tensor(o, graph_outputs, tensors, number, siblings) for o in self.outputs]
        return tree.unflatten(self.spec, [distinct[i] for i in self.places], number)

    @staticmethod
    def _tensor(
        output: Output, graph_outputs: Sequence, tensors: Sequence, number: Callable[[Any], Any],
        siblings: dict[tuple, Any],
    ) -> torch.Tensor:  # fmt: skip
        if output.output is not None:
            tensor = graph_outputs[output.output]
        else:
            tensor = tensors[output.source] if isinstance(output.source, int) else output.source
        for view in output.views:
            tensor = view.apply(tensor, number, siblings)
        return tensor


def capture(
    module: nn.Module,
    args: tuple,
    kwargs: dict,
    make_graph: Callable[[], Any],
    share_memory: bool = True,
) -> Capture:
    """Captures `module(*args, **kwargs)` into `make_graph()`, without running it on real data.

    share_memory: outputs share memory as in eager, and hooks of the module itself are the caller's
    to run; else each output is one of the graph, and hooks are refused. Raises NotCapturable
    with the reason and, where known, op, module, file and line.
    """
    contract.check_module(module, with_its_hooks=not share_memory)
    try:
        tensors, spec = tree.flatten([args, kwargs], "arguments")
    except tree.UnknownLeaf as error:
        raise NotCapturable(str(error)) from None
    for tensor, path in zip(tensors, tree.tensor_paths(spec, "arguments"), strict=False):
        contract.check_tensor(tensor, f"input {path}")

    def attempt(exact: bool) -> Capture:
        traced = trace(module, spec, tensors, exact)
        try:
            return _translate(traced, tensors, make_graph(), share_memory)
        finally:
            traced.flat.let_go()

    try:
        result = attempt(exact=False)
    except NeedsExactSizes:
        result = attempt(exact=True)
    result.key = call_key(spec, tensors)
    return result


def _translate(
    traced: Traced, tensors: list[torch.Tensor], graph: Any, share_memory: bool
) -> Capture:
    flat, program, snapshot = traced.flat, traced.program, traced.snapshot
    first = list(dict.fromkeys(flat.order))
    firsts = {k: flat.order.index(k) for k in first}
    placeholders = _placeholders(traced, tensors, [firsts[k] for k in first])
    grad_enabled = torch.is_grad_enabled()
    done = translate(
        program.graph_module, graph, placeholders, grad_enabled, share_memory,
        standard=not share_memory,
    )  # fmt: skip
    outputs, write_backs, assigned, orders = name_outputs(flat, done, graph, tensors)
    given = [tensors[firsts[k]] for k in first]
    nodes = [n for n in program.graph_module.graph.nodes if n.op == "placeholder"]
    shapes = [n.meta["val"].shape for n in nodes][len(nodes) - len(given) :]
    distinct_dims = [[dim_of(d) for d in shape] for shape in shapes]
    sizes = SizePredicate(
        [distinct_dims[first.index(k)] for k in flat.order],
        _guards(program, flat, first),
        _ranges(program),
        [t.shape for t in tensors],
    )
    return Capture(
        graph, done.inputs, outputs, write_backs, orders,
        history(flat, done.inputs, outputs, tensors), assigned, flat.notes.spec,
        flat.notes.places, (), snapshot.aliases(tensors), snapshot, sizes, done.random_nodes,
    )  # fmt: skip


def _placeholders(
    traced: Traced, tensors: list[torch.Tensor], user: list[int]
) -> list[Placeholder]:
    module, program, snapshot = traced.flat.child, traced.program, traced.snapshot
    named = dict(module.named_parameters(remove_duplicate=False))
    named |= dict(module.named_buffers(remove_duplicate=False))
    names = {id(t): name for name, t in reversed(named.items())}
    paths = tree.tensor_paths(traced.flat.spec, "arguments")
    rest, found = iter(user), []
    inputs: dict[int, Input] = {}
    for spec in program.graph_signature.input_specs:
        kind = spec.kind.name
        if kind == "USER_INPUT":
            index = next(rest)
            tensor, role, name = tensors[index], "user", f"input:{paths[index]}"
        else:
            target = spec.target.removeprefix(f"{CHILD}.")
            literal = target not in named and _is_literal(program, spec.arg.name)
            if target in named:
                tensor = named[target]
            else:
                tensor = program.constants[spec.target]
                tensor = tensor if literal else _original(tensor, traced)
            role = "parameter" if isinstance(tensor, nn.Parameter) else "buffer"
            name, index = names.get(id(tensor)), None
            if name is None and id(tensor) in snapshot.tensors:
                name = snapshot.tensors[id(tensor)][0]
            if name is None and literal:
                found.append(Placeholder(id(tensor), constant=tensor))
                continue
            name = name or target
        if id(tensor) not in inputs:
            inputs[id(tensor)] = _input(role, name, tensor, index)
        found.append(Placeholder(id(tensor), input=inputs[id(tensor)]))
    return found


def _original(lifted: torch.Tensor, traced: Traced) -> torch.Tensor:
    """The tensor outside of the module's registries that export has lifted, without its history."""
    reached = (t for _, t in traced.snapshot.tensors.values())
    for tensor in (*reached, *traced.met):
        if tensor is lifted or _place(tensor) == _place(lifted):
            return tensor
    raise NotCapturable(
        f"forward reads a tensor of sizes {list(lifted.shape)} that is reached by nothing it names",
        **place_of_forward(traced.flat.child),
    )


def _place(tensor: torch.Tensor) -> tuple:
    return storage_key(tensor), tensor.storage_offset(), tensor.shape, tensor.stride()


def _input(role: str, name: str, tensor: torch.Tensor, index: int | None) -> Input:
    return Input(
        role,
        name,
        dtype_name(tensor.dtype),
        list(tensor.shape),
        index,
        None if role == "user" else tensor,
        tensor.requires_grad,
    )


def _is_literal(program: Any, name: str) -> bool:
    """Whether a lifted constant was made in forward, as torch.tensor(2.0) is; else it is a tensor
    that lives outside, whose elements may change."""
    node = next(n for n in program.graph_module.graph.nodes if n.name == name)
    return all(str(u.target) == "aten.lift_fresh_copy.default" for u in node.users)


def _guards(program: Any, flat: Flat, first: list[int]) -> list[str]:
    """torch's guard expressions over the call's tensors; one that cannot hold parses as none."""
    code = getattr(program, "_guards_code", None)
    if code is None:
        return ["torch keeps no guards"]
    position = [flat.order.index(k) for k in first]
    renamed = []
    for guard in code:
        for i in reversed(range(len(first))):
            guard = guard.replace(f"L['tensors'][{i}].size", f"L['tensors'][#{position[i]}].size")
        renamed.append(guard.replace("[#", "["))
    return renamed


def _ranges(program: Any) -> dict[str, tuple[int, int | None]]:
    ranges = {}
    for symbol, bounds in program.range_constraints.items():
        high = int(bounds.upper) if bounds.upper.is_Integer else None
        ranges[str(symbol)] = (int(bounds.lower), high)
    return ranges


def _number(text: Any, binding: dict[str, int]) -> Any:
    """The value of a size's expression; anything else as it is."""
    if not isinstance(text, str):
        return text
    return int(text) if text.lstrip("-").isdigit() else evaluate(text, binding)
