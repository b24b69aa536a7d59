"""The module as torch.export sees it: flat lists of tensors in and out, and notes of all else."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ..calls.arguments import Arguments, Edit, flatten_effects
from ..calls.call import Call
from ..calls.varying import number_of
from ..errors import NeedsCut, NotCapturable
from ..places import place_of_forward
from ..python_ops.functions import calls_of_trace
from ..python_ops.hooks import Hooks
from ..records.autograd_history import (
    AutogradHistory,
    edges_of,
    history_of,
    seen_as_they_are,
    storage_key,
)
from ..records.sizes import dim_of, late_names
from ..side_effects.effects import Effects
from ..side_effects.private_state import OwnTensors, TensorAttributes
from ..translate.provenance import CHILD
from .raised import as_error
from .replaced.constant_branches import ConstantBranches
from .replaced.grad_modes import GradModes
from .torch_calls import Calls


class Notes:
    """What forward did: an object of its own, as export puts a module's attributes back.

    `spec` of the result, `edits` of containers among the arguments and `places` (which distinct
    output each tensor of both is), `written` (buffers),
    `history`: eager's autograd graph behind the distinct outputs; None: not known. `own`: the
    module's tensors while it is traced; `effects`, `writes`: what it wrote; `calls`: those of torch
    that it made; `hooks`: on gradients, that it set; `bumps`: of each tensor that its code wrote
    to in place, whether the tensor's version tells of it.
    """

    def __init__(self):
        self.spec: Any = None
        self.edits: list[Edit] = []
        self.places: list[int] = []
        self.written: list[str] = []
        self.bumps: dict[tuple[str, Any], bool] = {}
        self.own: OwnTensors | None = None
        self.effects: Effects | None = None
        self.hooks: Hooks | None = None
        self.writes: list[str] = []
        self.calls = Calls()
        self.history: AutogradHistory | None = None


class Flat(nn.Module):
    """Takes and returns flat tensor lists, and notes what the module's forward did besides."""

    def __init__(self, module: nn.Module, call: Call, order: list[int], met: list[torch.Tensor]):
        super().__init__()
        self._modules[CHILD] = module
        self.spec, self.order, self.numbers = call.spec, order, len(call.numbers)
        self.notes = Notes()
        self.met = met
        self.training = module.training

    @property
    def child(self) -> nn.Module:
        return self._modules[CHILD]

    def let_go(self) -> None:
        """Forgets the module: export leaves cycles behind that refer to this one."""
        self._modules.clear()
        self.met.clear()
        self.notes = Notes()

    def forward(self, *tensors):
        module, own, calls = self.child, self.notes.own, self.notes.calls
        given = self._arguments([tensors[i] for i in self.order])
        own.mark()
        named = self._named(tensors)
        edges, grad = edges_of(named.values()), torch.is_grad_enabled()
        places = [_place(t) for t in named.values()]
        versions = [t._version for t in named.values()]
        attributes = TensorAttributes()
        attributes.note(named.values())
        before = self.notes.effects.writes()  # export's own: it copies lists
        with seen_as_they_are(), calls, GradModes(), ConstantBranches(), as_error():
            result = module.forward(*given.args, **given.kwargs)
        self.notes.hooks.check()
        for (label, tensor), version in zip(named.items(), versions, strict=True):
            if tensor._version != version:
                key = storage_key(tensor)
                bumps = key in calls.plainly or key not in calls.through_data
                self.notes.bumps[label] = bumps
        self.notes.writes = [w for w in self.notes.effects.writes() if w not in before]
        buffers = [w[1:] for w in own.written() if w[0] == "_buffers"]
        self._check_edges(named, edges)
        if attributes.changed():
            self._refuse("forward sets an attribute of a tensor")
        for (kind, label), place, tensor in zip(named, places, named.values(), strict=True):
            if place != _place(tensor):
                what = f"input {label}" if kind == "input" else label
                self._refuse(f"forward changes the sizes or strides of {what} in place")
        if torch.is_grad_enabled() != grad:
            self._refuse("forward leaves the grad mode changed", NotCapturable)
        outputs, self.notes.spec, self.notes.edits = flatten_effects(result, given, _express)
        distinct = list({id(t): t for t in outputs}.values())
        index = {id(t): i for i, t in enumerate(distinct)}
        self.notes.places = [index[id(t)] for t in outputs]
        self.notes.written = [name for name, _, _ in buffers]
        known = {id(t) for t in named.values()}
        # A view of a leaf is one too, where gradients are off.
        leaves = [t for t in distinct if t.requires_grad and t.is_leaf and not t._is_view()]
        if any(id(t) not in known for t in leaves):
            self._refuse("forward returns a leaf that it made", NotCapturable)
        if any(output.is_inference() for output in distinct):
            self._refuse("forward returns a tensor made in inference mode", NotCapturable)
        self._note_history(named, distinct)
        for name, _, value in buffers:
            if not isinstance(value, torch.Tensor):
                raise NeedsCut(
                    f"forward sets the buffer {name} to {value!r}", **place_of_forward(module)
                )
        return tuple(distinct) + tuple(value for _, _, value in buffers)

    def _arguments(self, tensors: list[torch.Tensor]) -> Arguments:
        count = len(tensors) - self.numbers
        return Arguments(self.spec, tensors[:count], list(map(number_of, tensors[count:])))

    def _refuse(self, reason: str, kind: type[NotCapturable] = NeedsCut) -> None:
        raise kind(reason, **place_of_forward(self.child))

    def _named(self, tensors: Sequence[torch.Tensor]) -> dict[tuple[str, Any], torch.Tensor]:
        named = [*self.child.named_parameters(), *self.child.named_buffers()]
        return {("input", i): t for i, t in enumerate(tensors)} | {("name", n): t for n, t in named}

    def _note_history(self, named: dict, outputs: list[torch.Tensor]) -> None:
        memory: dict[Any, list[tuple[str, Any]]] = {}
        outs = {("output", i): output for i, output in enumerate(outputs)}
        for label, tensor in (*named.items(), *outs.items()):
            memory.setdefault(storage_key(tensor), []).append(label)
        self.notes.history = history_of(outputs, named, self.met, memory, calls_of_trace())

    def _check_edges(self, named: dict, edges: list[tuple]) -> None:
        """As a write of `x.mul_(parameter)`, or requires_grad_: tensors keep their history."""
        after = edges_of(named.values())
        for (kind, label), before, now in zip(named, edges, after, strict=True):
            if before != now:
                what = f"input {label}" if kind == "input" else label
                self._refuse(f"forward changes the autograd history of {what}")


def _place(tensor: torch.Tensor) -> tuple:
    return tensor.shape, tensor.stride()


def _express(number: Any) -> str:
    if isinstance(number, torch.SymInt):
        size = str(dim_of(number))
        if late_names(size):
            raise NeedsCut("the module returns a number that depends on data")
        return size
    raise NeedsCut(f"the module returns {number}, a {type(number).__name__} made of sizes")
