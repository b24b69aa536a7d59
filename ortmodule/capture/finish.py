"""Finishes a capture: its outputs named, its history and guards beside it. The last stage.

search.py keeps a Capture with the runner that executes it (compiled.py).
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from .. import _native
from ..calls import tree
from ..calls.arguments import Edit, outcome
from ..calls.call import Call
from ..errors import NeedsExactSizes
from ..guards import identities
from ..guards.snapshot import Snapshot
from ..records.ports import Assigned, Input, Output, WriteBack
from ..records.sizes import SizePredicate, evaluate, lies
from ..records.steps import Step
from ..translate import Translated
from .naming import Named
from .outputs import history, name_outputs
from .second_run import SecondRun
from .trace import Traced


@dataclasses.dataclass(slots=True)
class Capture:
    """A captured call.

    `graph`: inputs in the order of `inputs`; outputs numbered as `outputs` and `write_backs` say.
    `orders`: of graph outputs whose axes are not in the tensor's order, as (output, order).
    `history`: eager's autograd graph behind the outputs, as outputs.history gives it; None: not
    known.
    `assigned`: buffers that forward sets to another tensor. `steps`: Python that the graph runs.
    `communicates`: whether it has collectives. `second`: runs forward again where a backward comes
    under create_graph; None: gradients are off.
    `key`, `snapshot`, `aliases`, `sizes`, `strides`: the capture fits a call when its key equals
    `key`, snapshot.changed() is None, snapshot.aliases(tensors) equals `aliases`,
    sizes.bind(shapes) is not None and, where forward asks for strides, the tensors lie in memory as
    `strides`. `spec` with `places` builds the result, `edits` what is in containers among the
    arguments afterwards. `apart`: a container among the arguments that is the module's too would
    be changed, or compared, at two places.
    """

    graph: Any
    inputs: list[Input]
    outputs: list[Output]
    write_backs: list[WriteBack]
    orders: list[tuple[int, tuple[int, ...]]]
    history: tuple | None
    assigned: list[Assigned]
    spec: Any
    edits: list[Edit]
    apart: bool
    places: list[int]
    key: tuple
    aliases: list[int]
    snapshot: Snapshot
    sizes: SizePredicate
    strides: list[tuple] | None
    random_nodes: int
    steps: list[Step]
    communicates: bool
    second: SecondRun | None

    def bind(self, tensors: Sequence[torch.Tensor]) -> dict[str, int] | None:
        """The symbols' values for a call's flat tensors, or None when their sizes or strides do not
        fit."""
        if self.strides is not None and self.strides != [lies(t) for t in tensors]:
            return None
        return self.sizes.bind([t.shape for t in tensors])

    def needs_containers(self) -> bool:
        """Whether a call's containers are to be looked at, or `result` takes them."""
        return self.apart or tree.has_met(self.spec)

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
        containers: Sequence[Any] = (),
    ) -> Any:
        """What the module returns, from the graph's outputs and the call's flat tensors; and what
        it changes in the call's containers is changed."""

        def number(size: Any) -> Any:
            return _number(size.expression if isinstance(size, tree.Symbol) else size, binding)

        siblings: dict[tuple, Any] = {}
        distinct = [self._tensor(o, graph_outputs, tensors, number, siblings) for o in self.outputs]
        building = tree.Building([distinct[i] for i in self.places], number, containers)
        return outcome(self.spec, self.edits, building)

    @staticmethod
    def _tensor(
        output: Output, graph_outputs: Sequence, tensors: Sequence, number: Callable[[Any], Any],
        siblings: dict[tuple, Any],
    ) -> torch.Tensor:  # fmt: skip
        if output.output is not None:
            tensor = graph_outputs[output.output]
        else:
            tensor = tensors[output.source] if isinstance(output.source, int) else output.source
        if output.requires_grad and not all(view.graded for view in output.views):
            tensor.requires_grad_()  # the base of a leaf, to which no gradient comes
        for view in output.views:
            tensor = view.apply(tensor, number, siblings)
        if output.own is not None:
            _native.torch_bridge().give_node(tensor, graph_outputs[output.own])
        return tensor


def finish(
    module: nn.Module,
    call: Call,
    traced: Traced,
    snapshot: Snapshot,
    named: Named,
    done: Translated,
    graph: Any,
    steps: list[Step],
) -> Capture:
    """Raises NotCapturable where an output is one that no call could return or write back, or an
    argument is one of the tensors that forward reads, and
    NeedsExactSizes where the call's sizes do not give its strides, which forward asks for."""
    identities.check(call, snapshot)
    asks = identities.asks_of_containers(call, snapshot.roots) is not None
    outputs, write_backs, assigned, orders = name_outputs(module, traced, done, graph, call.tensors)
    return Capture(
        graph=graph,
        inputs=done.inputs,
        outputs=outputs,
        write_backs=write_backs,
        orders=orders,
        history=history(module, traced, done, outputs, call.tensors),
        assigned=assigned,
        spec=traced.notes.spec,
        edits=traced.notes.edits,
        apart=bool(traced.notes.edits) or asks,
        places=traced.notes.places,
        key=call.key,
        aliases=snapshot.aliases(call.tensors),
        snapshot=snapshot,
        sizes=named.sizes,
        strides=_strides(traced, call, named.sizes),
        random_nodes=done.random_nodes,
        steps=steps,
        communicates=done.communicates,
        second=_second(traced, named, outputs, done),
    )


def _second(
    traced: Traced, named: Named, outputs: list[Output], done: Translated
) -> SecondRun | None:
    if not torch.is_grad_enabled():
        return None
    known = traced.notes.history
    on_the_way = set().union(*known.through) if known is not None else set()
    program = traced.program.graph_module
    return SecondRun(program, named.placeholders, outputs, on_the_way, done)


def _strides(traced: Traced, call: Call, sizes: SizePredicate) -> list[tuple] | None:
    if not traced.notes.calls.asks_strides:
        return None
    strides = [lies(t) for t in call.tensors]
    free = any(isinstance(dim, str) for row in sizes.dims for dim in row)
    if free and any(kind == "strides" for kind, _ in strides):
        raise NeedsExactSizes("forward asks for strides, which do not follow from the sizes")
    return strides


def _number(text: Any, binding: dict[str, int]) -> Any:
    """The value of a size's expression; anything else as it is."""
    if not isinstance(text, str):
        return text
    return int(text) if text.lstrip("-").isdigit() else evaluate(text, binding)
