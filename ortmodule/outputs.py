"""The outputs of a captured graph: what is returned, written back, assigned, and its history."""

from typing import Any

import torch
from torch import nn

from .errors import NotCapturable, WarmUp
from .interface import Assigned, Input, Output, WriteBack
from .places import place_of_forward
from .saved import by_position
from .trace import Traced
from .translate import Translated


def name_outputs(
    module: nn.Module, traced: Traced, done: Translated, graph: Any, tensors: list[torch.Tensor]
) -> tuple[list[Output], list[WriteBack], list[Assigned], list[tuple[int, tuple]]]:
    outputs, write_backs, assigned, orders, numbers = [], [], [], [], {}
    written = traced.notes.written

    def number(value: Any, name: str, order: tuple[int, ...] = ()) -> int:
        graph.output(value, name)
        if order:
            orders.append((len(numbers), order))
        return numbers.setdefault(len(numbers), len(numbers))

    count = len(done.outputs) - len(written)
    given: dict[int, int] = {}
    for i, found in enumerate(done.outputs[:count]):
        source, output = found.source, None
        if source is not None:
            source = source.index if source.role == "user" else source.tensor
        elif found.memory in given:
            output = given[found.memory]
        else:
            output = number(found.value, f"output:{i}", found.order)
            if found.memory is not None:
                given[found.memory] = output
        own = None if found.own is None else number(found.own, f"own:{i}")
        outputs.append(Output(output, source, found.requires_grad, found.views, own))
    for name, found in zip(written, done.outputs[count:], strict=False):
        if found.source is not None:
            raise NotCapturable(
                f"forward sets the buffer {name} to {found.source.name}", **place_of_forward(module)
            )
        if found.requires_grad:
            raise NotCapturable(
                f"forward sets the buffer {name} to a tensor that requires grad",
                **place_of_forward(module),
            )
        buffer = module.get_buffer(name)
        if list(buffer.shape) != found.dims or str(buffer.dtype)[6:] != found.value.dtype:
            raise WarmUp(  # the next call may find what it would set, as a table for its sizes
                f"forward sets the buffer {name} of {list(buffer.shape)} to one of {found.dims}",
                **place_of_forward(module),
            )
        if found.memory is not None:
            raise NotCapturable(
                f"forward returns what it sets the buffer {name} to", **place_of_forward(module)
            )
        path, _, key = name.rpartition(".")
        registry = module.get_submodule(path)._buffers
        output = number(found.value, f"write:{name}", found.order)
        assigned.append(Assigned(output, registry, key))
    for source, value in done.writes:
        _check_alone(source, done.inputs, tensors)
        target = source.index if source.role == "user" else source.tensor
        write_backs.append(WriteBack(number(value, f"write:{source.name}"), target, source.name))
    return outputs, write_backs, assigned, orders


def history(
    module: nn.Module,
    traced: Traced,
    inputs: list[Input],
    outputs: list[Output],
    tensors: list[torch.Tensor],
) -> tuple[list, list] | None:
    """The notes' history by the graph's inputs and outputs."""
    if traced.notes.history is None:
        return None
    given = [tensors[traced.order.index(k)] for k in dict.fromkeys(traced.order)]
    tensor_of: dict[Any, Any] = {("input", i): t for i, t in enumerate(given)}
    tensor_of |= {("name", n): t for n, t in module.named_parameters(remove_duplicate=False)}
    tensor_of |= {("name", n): t for n, t in module.named_buffers(remove_duplicate=False)}
    known = {id(t) for t in tensor_of.values()}
    own = [tensors[i.index] if i.role == "user" else i.tensor for i in inputs]
    places = {id(t): k for k, t in enumerate(own) if t is not None}
    # a tensor attribute, which has no name, counts as saved
    unnamed = {k for k, i in enumerate(inputs) if i.role == "buffer" and id(own[k]) not in known}

    def place(label: tuple[str, Any]) -> int | None:
        return places.get(label[1] if label[0] == "tensor" else id(tensor_of.get(label)))

    return by_position(traced.notes.history, outputs, place, unnamed)


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
