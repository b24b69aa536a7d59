"""Names what an exported program takes: the graph's inputs, its symbols and the sizes that fit.

A stage of a capture, before there is a graph.
"""

import contextlib
import dataclasses
import inspect
from typing import Any

import torch
from torch import nn
from torch.fx.experimental import symbolic_shapes

from ..calls import tree
from ..calls.call import Call
from ..errors import NotCapturable
from ..guards.snapshot import Snapshot
from ..places import place_of_forward
from ..records.autograd_history import storage_key
from ..records.ports import Input, Placeholder
from ..records.sizes import SizePredicate, dim_of, express
from ..translate.emit import dtype_name
from ..translate.provenance import CHILD
from .admit import check_tensor
from .fake_run import FakeRun
from .trace import Traced


@dataclasses.dataclass(slots=True)
class Named:
    """What each placeholder of the program is, in order, and the sizes that the capture is for."""

    placeholders: list[Placeholder]
    sizes: SizePredicate


def name(module: nn.Module, call: Call, fake: FakeRun, traced: Traced, snapshot: Snapshot) -> Named:
    """Raises NotCapturable where forward reads a tensor that nothing it names leads to."""
    first = list(dict.fromkeys(traced.order))
    found = _Names(module, call, traced, snapshot, list(fake.calls.real.values()))
    return Named(
        [found.placeholder(spec) for spec in traced.program.graph_signature.input_specs],
        SizePredicate(
            _dims(traced, first),
            _guards(traced, first),
            _ranges(traced.program),
            [t.shape for t in call.tensors],
        ),
    )


def names_of_sizes(module: nn.Module, call: Call, traced: Traced) -> dict[str, str]:
    """From torch's symbols to names that say which size each is: `batch`, the first axis of the
    first tensor, or an input's name and axis."""
    places: dict[int, str] = {}
    with contextlib.suppress(TypeError, ValueError):  # a forward without a signature
        found = named_tensors(module, call.args, call.kwargs)
        places = {id(t): place for t, place in reversed(found)}
    tensors = [places.get(id(t), f"number_{k}") for k, t in enumerate(call.tensors)]
    names: dict[str, str] = {}
    first = list(dict.fromkeys(traced.order))
    for k, dims in enumerate(_dims(traced, first)):
        for axis, dim in enumerate(dims):
            if isinstance(dim, str) and dim.isidentifier():
                is_batch = k == axis == 0 and len(dims) > 1
                names.setdefault(dim, "batch" if is_batch else f"{tensors[k]}_dim{axis}")
    return names


def named_tensors(module: nn.Module, args: tuple, kwargs: dict) -> list[tuple[torch.Tensor, str]]:
    """A call's tensors, each with the name of forward's parameter; a nested one adds its place."""
    found = []
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    for parameter, value in bound.arguments.items():
        tensors, spec = tree.flatten(value, parameter)
        places = tree.tensor_paths(spec, parameter)
        found += [(t, plain(place)) for t, place in zip(tensors, places, strict=True)]
    return found


def plain(place: str) -> str:
    """past[0]['key'] -> past_0_key"""
    words = "".join(c if c.isalnum() or c == "_" else " " for c in place).split()
    return "_".join(words)


class _Names:
    """The tensors that placeholders may stand for, and the Inputs made of them so far.

    `met`: tensors with data that a fake run came across.
    """

    def __init__(
        self,
        module: nn.Module,
        call: Call,
        traced: Traced,
        snapshot: Snapshot,
        met: list[torch.Tensor],
    ):
        self.module, self.call, self.program = module, call, traced.program
        self.snapshot, self.met = snapshot, met
        self.named: dict[str, torch.Tensor] = {
            **dict(module.named_parameters(remove_duplicate=False)),
            **dict(module.named_buffers(remove_duplicate=False)),
        }
        self.names = {id(t): name for name, t in reversed(self.named.items())}
        self.paths = tree.tensor_paths(call.spec, "arguments")
        firsts = [traced.order.index(k) for k in dict.fromkeys(traced.order)]
        self.user, self.inputs = iter(firsts), {}
        nodes = self.program.graph_module.graph.find_nodes(op="placeholder")
        self.read = {node.name for node in nodes if node.users}

    def placeholder(self, spec: Any) -> Placeholder:
        """What an input of the program's signature is; tensors of the call come in order."""
        if spec.kind.name == "USER_INPUT":
            index = next(self.user)
            return self._input(
                "user", f"input:{self.paths[index]}", self.call.tensors[index], index
            )
        target = spec.target.removeprefix(f"{CHILD}.")
        literal = target not in self.named and _is_literal(self.program, spec.arg.name)
        if target in self.named:
            tensor = self.named[target]
        else:
            tensor = self.program.constants[spec.target]
            tensor = tensor if literal else self._original(tensor)
        name = self.names.get(id(tensor))
        if name is None and id(tensor) in self.snapshot.tensors:
            name = self.snapshot.tensors[id(tensor)][0]
        if name is None and literal:
            return Placeholder(id(tensor), constant=tensor)
        self._check_read(tensor, name or target, spec.arg.name)
        role = "parameter" if isinstance(tensor, nn.Parameter) else "buffer"
        return self._input(role, name or target, tensor)

    def _input(
        self, role: str, name: str, tensor: torch.Tensor, index: int | None = None
    ) -> Placeholder:
        if id(tensor) not in self.inputs:
            dtype, own = dtype_name(tensor.dtype), None if role == "user" else tensor
            self.inputs[id(tensor)] = Input(
                role, name, dtype, list(tensor.shape), index, own, tensor.requires_grad
            )
        return Placeholder(id(tensor), input=self.inputs[id(tensor)])

    def _check_read(self, tensor: torch.Tensor, name: str, placeholder: str) -> None:
        """Of what the module holds; a registered tensor that forward does not read may be any."""
        if placeholder in self.read:
            check_tensor(tensor, f"{name}, which forward reads,")

    def _original(self, lifted: torch.Tensor) -> torch.Tensor:
        """The tensor outside of the module's registries that export has lifted, without its
        history."""
        reached = [t for _, t in self.snapshot.tensors.values()]
        for tensors in (self.met, reached):  # the other may have a view of all of it
            found = [t for t in tensors if t is lifted or _place(t) == _place(lifted)]
            if len({(t.requires_grad, t.grad_fn) for t in found}) > 1:
                raise NotCapturable(
                    "forward reads one memory as tensors of several histories",
                    **place_of_forward(self.module),
                )
            if found:
                return found[0]
        raise NotCapturable(
            f"forward reads a tensor of sizes {list(lifted.shape)} that no name in its code leads "
            "to",
            **place_of_forward(self.module),
        )


def _place(tensor: torch.Tensor) -> tuple:
    return storage_key(tensor), tensor.storage_offset(), tensor.shape, tensor.stride()


def _is_literal(program: Any, name: str) -> bool:
    """Whether a lifted constant was made in forward, as torch.tensor(2.0) is; else it is a tensor
    that lives outside, whose elements may change."""
    node = next(n for n in program.graph_module.graph.nodes if n.name == name)
    return all(str(u.target) == "aten.lift_fresh_copy.default" for u in node.users)


def _dims(traced: Traced, first: list[int]) -> list[list]:
    """The sizes of each tensor of the call; the distinct ones are the last placeholders."""
    nodes = [n for n in traced.program.graph_module.graph.nodes if n.op == "placeholder"]
    shapes = [n.meta["val"].shape for n in nodes][len(nodes) - len(first) :]
    distinct = [[dim_of(d) for d in shape] for shape in shapes]
    return [distinct[first.index(k)] for k in traced.order]


def _guards(traced: Traced, first: list[int]) -> list[str]:
    """torch's guard expressions over the call's tensors; one that cannot hold parses as none."""
    code = getattr(traced.program, "_guards_code", None)
    if code is None:
        return ["torch keeps no guards"]
    position = [traced.order.index(k) for k in first]
    renamed = []
    for guard in code:
        for i in reversed(range(len(first))):
            guard = guard.replace(f"L['tensors'][{i}].size", f"L['tensors'][#{position[i]}].size")
        renamed.append(guard.replace("[#", "["))
    return renamed


def _ranges(program: Any) -> dict[str, tuple[int, int | None]]:
    ranges = {}
    for symbol, bounds in program.range_constraints.items():
        if symbolic_shapes.free_unbacked_symbols(symbol):
            continue  # it depends on data: no call tells it
        high = int(bounds.upper) if bounds.upper.is_Integer else None
        ranges[str(express(symbol))] = (int(bounds.lower), high)
    return ranges
