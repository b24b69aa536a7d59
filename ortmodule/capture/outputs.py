"""The outputs of a captured graph: what is returned, written back, assigned, and its history."""

from typing import Any

import torch
from torch import nn

from ..errors import NotCapturable, WarmUp
from ..places import place_of_forward
from ..records.autograd_history import by_position
from ..records.ports import Assigned, Input, Output, WriteBack
from ..translate import Translated
from ..translate.returned import Returned
from .trace import Traced


def name_outputs(
    module: nn.Module, traced: Traced, done: Translated, graph: Any, tensors: list[torch.Tensor]
) -> tuple[list[Output], list[WriteBack], list[Assigned], list[tuple[int, tuple]]]:
    """Declares the graph's outputs: what is returned, then assigned, then written back; and the
    order of axes of those that have one."""
    named, written = _Named(graph), traced.notes.written
    count = len(done.outputs) - len(written)
    outputs = _returned(named, done.outputs[:count])
    assigned = [
        _assigned(named, module, name, found)
        for name, found in zip(written, done.outputs[count:], strict=True)
    ]
    write_backs = []
    all_labels = _labelled(module, traced, tensors)  # of several the first, as in the notes
    labelled = {id(t): label for label, t in reversed(all_labels.items())}
    for source, value in done.writes:
        _check_alone(source, done.inputs, tensors)
        output = named.add(value, f"write:{source.name}")
        label = labelled.get(id(source.of(tensors)))
        bumps = traced.notes.bumps.get(label, label is None)  # an operator's own write is silent
        by_forward = label in traced.notes.bumps
        write_backs.append(WriteBack(output, source.source, source.name, bumps, by_forward))
    return outputs, write_backs, assigned, named.orders


class _Named:
    """The outputs that a graph has so far; `orders`: which axes' order some have, by number."""

    def __init__(self, graph: Any):
        self.orders: list[tuple[int, tuple]] = []
        self._graph, self._count = graph, 0

    def add(self, value: Any, name: str, order: tuple[int, ...] = ()) -> int:
        """The number of one more."""
        self._graph.output(value, name)
        if order:
            self.orders.append((self._count, order))
        self._count += 1
        return self._count - 1


def _returned(named: _Named, results: list[Returned]) -> list[Output]:
    """Results of one memory are one output of the graph."""
    outputs, given = [], {}
    for i, found in enumerate(results):
        source, output = None, None
        if found.source is not None:
            source = found.source.source
        elif found.memory in given:
            output = given[found.memory]
        else:
            output = named.add(found.value, f"output:{i}", found.order)
            if found.memory is not None:
                given[found.memory] = output
        own = None if found.own is None else named.add(found.own, f"own:{i}")
        outputs.append(Output(output, source, found.requires_grad, found.views, own))
    return outputs


def _assigned(named: _Named, module: nn.Module, name: str, found: Returned) -> Assigned:
    """The buffer of that name, which forward sets to a tensor of its own."""
    refusal = _refusal_of(module, name, found)
    if refusal is not None:
        kind, reason = refusal
        raise kind(reason, **place_of_forward(module))
    path, _, key = name.rpartition(".")
    output = named.add(found.value, f"write:{name}", found.order)
    return Assigned(output, module.get_submodule(path)._buffers, key)


def _refusal_of(module: nn.Module, name: str, found: Returned) -> tuple[type, str] | None:
    """Why no run can set the buffer to that."""
    sets = f"forward sets the buffer {name}"
    if found.source is not None:
        return NotCapturable, f"{sets} to {found.source.name}"
    if found.requires_grad:
        return NotCapturable, f"{sets} to a tensor that requires grad"
    buffer = module.get_buffer(name)
    if list(buffer.shape) != found.dims or str(buffer.dtype)[6:] != found.value.dtype:
        # the next call may find what it would set, as a table for its sizes
        return WarmUp, f"{sets} of {list(buffer.shape)} to one of {found.dims}"
    if found.memory is not None:
        return NotCapturable, f"forward returns what it sets the buffer {name} to"
    return None


def history(
    module: nn.Module,
    traced: Traced,
    done: Translated,
    outputs: list[Output],
    tensors: list[torch.Tensor],
) -> tuple | None:
    """The notes' history by the graph's inputs and outputs."""
    if traced.notes.history is None:
        return None
    tensor_of = _labelled(module, traced, tensors)
    known = {id(t) for t in tensor_of.values()}
    inputs = done.inputs
    own = [i.of(tensors) for i in inputs]
    places = {id(t): k for k, t in enumerate(own) if t is not None}
    # a tensor attribute, which has no name, counts as saved
    unnamed = {k for k, i in enumerate(inputs) if i.role == "buffer" and id(own[k]) not in known}

    def place(label: tuple[str, Any]) -> int | None:
        return places.get(label[1] if label[0] == "tensor" else id(tensor_of.get(label)))

    return by_position(traced.notes.history, outputs, place, unnamed, done.once_of_call)


def _labelled(
    module: nn.Module, traced: Traced, tensors: list[torch.Tensor]
) -> dict[tuple[str, Any], torch.Tensor]:
    """The call's tensors and the module's by the labels that the notes have."""
    given = [tensors[traced.order.index(k)] for k in dict.fromkeys(traced.order)]
    tensor_of: dict[Any, Any] = {("input", i): t for i, t in enumerate(given)}
    tensor_of |= {("name", n): t for n, t in module.named_parameters(remove_duplicate=False)}
    tensor_of |= {("name", n): t for n, t in module.named_buffers(remove_duplicate=False)}
    return tensor_of


def _check_alone(written: Input, inputs: list[Input], tensors: list[torch.Tensor]) -> None:
    """A write to memory that another input shows too would have to reach that one."""

    def memory(given: Input) -> int:
        return given.of(tensors).untyped_storage().data_ptr()

    for other in inputs:
        if other is not written and other.role != "key" and memory(other) == memory(written) != 0:
            raise NotCapturable(
                f"forward writes to {written.name}, which shares memory with {other.name}"
            )
