"""Captures one call of a module as a Graph, by torch.export and our own translation.

module.py calls `capture` when no kept Capture fits; a Capture says when it fits (key, snapshot,
sizes), what the graph takes and gives (inputs, outputs, write-backs), and builds the result.
"""

import contextlib
import dataclasses
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.export import Dim, export

from . import contract, tree
from .errors import NeedsExactSizes, NotCapturable
from .guards import Snapshot, call_key
from .interface import Input, Output, WriteBack
from .rehearse import first_writes
from .saved import saved_storages, seen_as_they_are, storage_key
from .sizes import SizePredicate, dim_of, evaluate
from .translate import Translated, translate
from .translate.emit import dtype_name
from .translate.provenance import CHILD
from .translate.translator import Placeholder


@dataclasses.dataclass(slots=True)
class Capture:
    """A captured call.

    `graph`: inputs in the order of `inputs`; outputs numbered as `outputs` and `write_backs` say.
    `saved`: for each graph output the graph inputs and graph outputs that eager's backward of it
    would read, so that a write to them is an error; None: not known.
    `key`, `snapshot`, `sizes`: the capture fits a call when call_key equals `key`,
    snapshot.changed() is None and sizes.bind(shapes) is not None. `spec` with `places` builds the
    result. `seconds`: time in export and in translation.
    """

    graph: Any
    inputs: list[Input]
    outputs: list[Output]
    write_backs: list[WriteBack]
    saved: list[tuple[list[int], list[int]]] | None
    spec: Any
    places: list[int]
    key: tuple
    snapshot: Snapshot
    sizes: SizePredicate
    random_nodes: int
    seconds: dict[str, float]

    def bind(self, tensors: Sequence[torch.Tensor]) -> dict[str, int] | None:
        """The symbols' values for a call's flat tensors, or None when their sizes do not fit."""
        return self.sizes.bind([t.shape for t in tensors])

    def result(
        self,
        graph_outputs: Sequence[torch.Tensor | None],
        tensors: Sequence[torch.Tensor],
        binding: dict[str, int],
    ) -> Any:
        """What the module returns, from the graph's outputs and the call's flat tensors."""

        def number(size: Any) -> Any:
            return _number(size.expression if isinstance(size, tree.Symbol) else size, binding)

        distinct = [self._tensor(o, graph_outputs, tensors, number) for o in self.outputs]
        return tree.unflatten(self.spec, [distinct[i] for i in self.places], number)

    @staticmethod
    def _tensor(
        output: Output, graph_outputs: Sequence, tensors: Sequence, number: Callable[[Any], Any]
    ) -> torch.Tensor:
        if output.output is not None:
            tensor = graph_outputs[output.output]
        else:
            tensor = tensors[output.source] if isinstance(output.source, int) else output.source
        for view in output.views:
            tensor = view.apply(tensor, number)
        return tensor


def capture(
    module: nn.Module,
    args: tuple,
    kwargs: dict,
    make_graph: Callable[[], Any],
    share_memory: bool = True,
) -> Capture:
    """Captures `module(*args, **kwargs)` into `make_graph()`, without running it on real data.

    share_memory: outputs share memory as in eager, else each is an output of the graph. Raises
    NotCapturable with the reason and, where known, op, module, file and line.
    """
    started = time.perf_counter()
    contract.check_module(module)
    try:
        tensors, spec = tree.flatten([args, kwargs], "arguments")
    except tree.UnknownLeaf as error:
        raise NotCapturable(str(error)) from None
    for tensor, path in zip(tensors, tree.tensor_paths(spec, "arguments"), strict=False):
        contract.check_tensor(tensor, f"input {path}")
    flat = _Flat(module, spec, _distinct(tensors))
    program, snapshot = _settle(module, flat, tensors)
    exported = time.perf_counter()
    try:
        result = _translate(flat, program, tensors, snapshot, make_graph(), share_memory)
    except NeedsExactSizes:
        program, snapshot = _settle(module, flat, tensors, exact=True)
        result = _translate(flat, program, tensors, snapshot, make_graph(), share_memory)
    result.key = call_key(spec, tensors)
    result.seconds = {"export": exported - started, "translate": time.perf_counter() - exported}
    return result


class _Notes:
    """What forward did: an object of its own, as export puts a module's attributes back.

    `spec` and `places` (which distinct output each tensor of the result is), `written` (buffers),
    `saved`: for each distinct output what eager's backward of it reads, as pairs ("input", number),
    ("name", of a parameter or buffer) or ("output", number); None: not known.
    """

    def __init__(self):
        self.spec: Any = None
        self.places: list[int] = []
        self.written: list[str] = []
        self.saved: list[set[tuple[str, Any]]] | None = None


class _Flat(nn.Module):
    """Takes and returns flat tensor lists, and notes what the module's forward did besides."""

    def __init__(self, module: nn.Module, spec: Any, order: list[int]):
        super().__init__()
        self._modules[CHILD] = module
        self.spec, self.order = spec, order
        self.notes = _Notes()
        self.training = module.training

    def forward(self, *tensors):
        module = self._modules[CHILD]
        args, kwargs = tree.unflatten(self.spec, [tensors[i] for i in self.order])
        before = Snapshot(module, with_tensors=False)
        try:
            with seen_as_they_are():
                result = module(*args, **kwargs)
            writes, buffers = before.writes(), before.written_buffers()
            plain = before.plain_writes() if writes else None
        finally:
            before.restore()
        if writes:
            raise _Writes(writes[0], plain, module)
        self._check_arguments(args, kwargs, tensors)
        outputs, self.notes.spec = tree.flatten(result, "the result", express=_express)
        distinct = list({id(t): t for t in outputs}.values())
        index = {id(t): i for i, t in enumerate(distinct)}
        self.notes.places = [index[id(t)] for t in outputs]
        self.notes.written = [name for name, _, _ in buffers]
        self._note_saved(tensors, distinct)
        for name, _, value in buffers:
            if not isinstance(value, torch.Tensor):
                raise NotCapturable(
                    f"forward sets the buffer {name} to {value!r}", **_forward(module)
                )
        return tuple(distinct) + tuple(value for _, _, value in buffers)

    def _note_saved(self, tensors: Sequence[torch.Tensor], outputs: list[torch.Tensor]) -> None:
        module = self._modules[CHILD]
        named = [*module.named_parameters(), *module.named_buffers()]
        labels: dict[int, list[tuple[str, Any]]] = {}
        for kind, items in (
            ("input", enumerate(tensors)), ("name", named), ("output", enumerate(outputs)),
        ):  # fmt: skip
            for label, tensor in items:
                labels.setdefault(storage_key(tensor), []).append((kind, label))
        saved = saved_storages(outputs)
        self.notes.saved = saved and [
            {label for key in keys for label in labels.get(key, ())} for keys in saved
        ]

    def _check_arguments(self, args: tuple, kwargs: dict, tensors: Sequence) -> None:
        after, spec = tree.flatten([args, kwargs], "arguments", express=_express)
        same = len(after) == len(self.order) and all(
            t is tensors[i] for t, i in zip(after, self.order, strict=False)
        )
        if spec != self.spec or not same:
            raise NotCapturable(
                "forward changes a container or cache among its arguments",
                **_forward(self._modules[CHILD]),
            )


class _Writes(NotCapturable):
    """Forward wrote attributes; `plain` lists them when all are scalars in dicts."""

    def __init__(self, first: str, plain: list | None, module: nn.Module):
        super().__init__(f"forward writes to an attribute: {first}", **_forward(module))
        self.plain = plain


def _settle(
    module: nn.Module, flat: _Flat, tensors: list[torch.Tensor], exact: bool = False
) -> tuple[Any, Snapshot]:
    """Exports; a forward that sets scalars once, as transformers' problem_type, is let do so.

    The writes are what eager's call would leave behind. With them made, forward must write no
    more: then it is captured in that state; a counter never settles and all is undone.
    """
    before = Snapshot(module)
    settled = before
    try:
        with contract.capturing():
            rehearsed = first_writes(module, flat.spec, tensors)
            settled = _make(rehearsed, module) if rehearsed else before
            try:
                return _export(flat, tensors, exact), settled
            except _Writes as writes:
                if rehearsed or not writes.plain:
                    raise
                settled = _make(writes.plain, module)
            return _export(flat, tensors, exact), settled
    except NotCapturable:
        settled = before
        raise
    finally:
        settled.restore()


def _make(writes: list[tuple[dict, Any, Any]], module: nn.Module) -> Snapshot:
    for container, key, value in writes:
        container[key] = value
    return Snapshot(module)


def _export(flat: _Flat, tensors: list[torch.Tensor], exact: bool) -> Any:
    """The training IR, every dim AUTO unless `exact`; a failure names the user's deepest line."""
    given = tuple(tensors[i] for i in range(len(tensors)) if flat.order.index(flat.order[i]) == i)
    kind = Dim.STATIC if exact else Dim.AUTO
    shapes = tuple(dict.fromkeys(range(t.dim()), kind) for t in given)
    inference_off = contextlib.nullcontext()
    if torch.is_inference_mode_enabled():
        inference_off = torch.inference_mode(False)
    try:
        with warnings.catch_warnings(), inference_off:
            warnings.simplefilter("ignore")
            return export(flat, given, dynamic_shapes=(shapes,), strict=False)
    except NotCapturable:
        raise
    except Exception as error:
        refusal = _refusal_in(error)
        if refusal is not None:
            raise refusal from None
        first = (str(error).strip().splitlines() or [""])[0]
        reason = f"torch.export: {type(error).__name__}: {first}"
        raise NotCapturable(reason, **contract.error_place(error)) from error


def _translate(
    flat: _Flat,
    program: Any,
    tensors: list[torch.Tensor],
    snapshot: Snapshot,
    graph: Any,
    share_memory: bool,
) -> Capture:
    first = list(dict.fromkeys(flat.order))
    firsts = {k: flat.order.index(k) for k in first}
    placeholders = _placeholders(flat, program, tensors, snapshot, [firsts[k] for k in first])
    grad_enabled = torch.is_grad_enabled()
    done = translate(program.graph_module, graph, placeholders, grad_enabled, share_memory)
    outputs, write_backs = _name_outputs(flat, done, graph, tensors)
    given = [tensors[firsts[k]] for k in first]
    nodes = [n for n in program.graph_module.graph.nodes if n.op == "placeholder"]
    traced = [n.meta["val"] for n in nodes][len(nodes) - len(given) :]
    distinct_dims = [[dim_of(d) for d in t.shape] for t in traced]
    sizes = SizePredicate(
        [distinct_dims[first.index(k)] for k in flat.order],
        _guards(program, flat, first),
        _ranges(program),
        [t.shape for t in tensors],
    )
    return Capture(
        graph, done.inputs, outputs, write_backs, _saved(flat, done.inputs, outputs, firsts),
        flat.notes.spec, flat.notes.places, (), snapshot, sizes, done.random_nodes, {},
    )  # fmt: skip


def _placeholders(
    flat: _Flat, program: Any, tensors: list[torch.Tensor], snapshot: Snapshot, user: list[int]
) -> list[Placeholder]:
    module = flat._modules[CHILD]
    named = dict(module.named_parameters(remove_duplicate=False))
    named |= dict(module.named_buffers(remove_duplicate=False))
    names = {id(t): name for name, t in reversed(named.items())}
    paths = tree.tensor_paths(flat.spec, "arguments")
    rest, found = iter(user), []
    inputs: dict[int, Input] = {}
    for spec in program.graph_signature.input_specs:
        kind = spec.kind.name
        if kind == "USER_INPUT":
            index = next(rest)
            tensor, role, name = tensors[index], "user", f"input:{paths[index]}"
        else:
            target = spec.target.removeprefix(f"{CHILD}.")
            tensor = named[target] if target in named else program.constants[spec.target]
            role = "parameter" if isinstance(tensor, nn.Parameter) else "buffer"
            name, index = names.get(id(tensor)), None
            if name is None and id(tensor) in snapshot.tensors:
                name = snapshot.tensors[id(tensor)][0]
            if name is None and _is_literal(program, spec.arg.name):
                found.append(Placeholder(id(tensor), constant=tensor))
                continue
            name = name or target
        if id(tensor) not in inputs:
            inputs[id(tensor)] = _input(role, name, tensor, index)
        found.append(Placeholder(id(tensor), input=inputs[id(tensor)]))
    return found


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


def _name_outputs(
    flat: _Flat, done: Translated, graph: Any, tensors: list[torch.Tensor]
) -> tuple[list[Output], list[WriteBack]]:
    outputs, write_backs, numbers = [], [], {}
    module = flat._modules[CHILD]

    def number(value: Any, name: str) -> int:
        graph.output(value, name)
        return numbers.setdefault(len(numbers), len(numbers))

    count = len(done.outputs) - len(flat.notes.written)
    given: dict[int, int] = {}
    for i, found in enumerate(done.outputs[:count]):
        source, output = found.source, None
        if source is not None:
            source = source.index if source.role == "user" else source.tensor
        elif found.memory in given:
            output = given[found.memory]
        else:
            output = number(found.value, f"output:{i}")
            if found.memory is not None:
                given[found.memory] = output
        outputs.append(Output(output, source, found.requires_grad, found.views))
    for name, found in zip(flat.notes.written, done.outputs[count:], strict=False):
        if found.source is not None:
            raise NotCapturable(
                f"forward sets the buffer {name} to {found.source.name}", **_forward(module)
            )
        if found.requires_grad:
            raise NotCapturable(
                f"forward sets the buffer {name} to a tensor that requires grad", **_forward(module)
            )
        value = found.value
        buffer = module.get_buffer(name)
        if list(buffer.shape) != list(value.dims) or str(buffer.dtype)[6:] != value.dtype:
            raise NotCapturable(
                f"forward sets the buffer {name} of {list(buffer.shape)} to one of {value.dims}",
                **_forward(module),
            )
        write_backs.append(WriteBack(number(value, f"write:{name}"), buffer, name))
    for source, value in done.writes:
        _check_alone(source, done.inputs, tensors)
        target = source.index if source.role == "user" else source.tensor
        write_backs.append(WriteBack(number(value, f"write:{source.name}"), target, source.name))
    return outputs, write_backs


def _saved(
    flat: _Flat, inputs: list[Input], outputs: list[Output], firsts: dict[int, int]
) -> list[tuple[list[int], list[int]]] | None:
    """Capture.saved, from the notes. A tensor attribute, which has no name, counts as saved."""
    if flat.notes.saved is None:
        return None
    first = list(firsts.values())
    position = {
        ("input", first.index(given.index)) if given.role == "user" else ("name", given.name): i
        for i, given in enumerate(inputs)
    }
    module = flat._modules[CHILD]
    names = {name for name, _ in (*module.named_parameters(), *module.named_buffers())}
    unnamed = {i for i, g in enumerate(inputs) if g.role == "buffer" and g.name not in names}
    count = max((o.output + 1 for o in outputs if o.output is not None), default=0)
    saved = [(set(unnamed), set()) for _ in range(count)]
    for output, labels in zip(outputs, flat.notes.saved, strict=True):
        if output.output is None:
            continue
        for kind, label in labels:
            if kind == "output" and outputs[label].output is not None:
                saved[output.output][1].add(outputs[label].output)
            elif (kind, label) in position:
                saved[output.output][0].add(position[kind, label])
    return [(sorted(ins), sorted(outs)) for ins, outs in saved]


def _check_alone(written: Input, inputs: list[Input], tensors: list[torch.Tensor]) -> None:
    """A write to memory that another input shows too would have to reach that one."""

    def memory(given: Input) -> int:
        tensor = tensors[given.index] if given.role == "user" else given.tensor
        return tensor.untyped_storage().data_ptr()

    for other in inputs:
        if other is not written and other.role != "key" and memory(other) == memory(written) != 0:
            raise NotCapturable(
                f"forward writes to {written.name}, which shares memory with {other.name}"
            )


def _guards(program: Any, flat: _Flat, first: list[int]) -> list[str]:
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


def _distinct(tensors: list[torch.Tensor]) -> list[int]:
    """For each tensor the number of its object among the distinct ones."""
    seen: dict[int, int] = {}
    return [seen.setdefault(id(t), len(seen)) for t in tensors]


def _express(number: Any) -> str:
    if isinstance(number, torch.SymInt):
        return str(dim_of(number))
    raise NotCapturable(f"the module returns {number}, a {type(number).__name__} made of sizes")


def _number(text: Any, binding: dict[str, int]) -> Any:
    """The value of a size's expression; anything else as it is."""
    if not isinstance(text, str):
        return text
    return int(text) if text.lstrip("-").isdigit() else evaluate(text, binding)


def _forward(module: nn.Module) -> dict[str, Any]:
    return {"module": type(module).__name__, **contract.place_of(type(module).forward)}


def _refusal_in(error: BaseException | None) -> NotCapturable | None:
    """A NotCapturable that export wrapped in an error of its own."""
    while error is not None:
        if isinstance(error, NotCapturable):
            return error
        error = error.__cause__ or error.__context__
    return None
