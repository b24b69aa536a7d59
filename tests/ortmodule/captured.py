"""Captures a module or a function and compares its graph, on the reference provider, with eager."""

import copy

import numpy as np
import torch
from torch import nn

from ortmodule import _native
from ortmodule.calls import tree
from ortmodule.calls.call import describe
from ortmodule.capture.finish import Capture
from ortmodule.capture.stages import capture


class Function(nn.Module):
    """A module whose forward is `function`."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def captured(module, *args, **kwargs) -> Capture:
    return capture(module, describe(args, kwargs), _native.core().Graph)


def captured_for_these_sizes(module, *args) -> Capture:
    """Where sizes are not what is tested: takes half of the time, as no size is a symbol."""
    call = describe(args, {})
    sizes = [[False] * t.dim() for t in call.tensors]
    return capture(module, call, _native.core().Graph, free=sizes)


def printed(found: Capture, op: str) -> list[str]:
    """The graph's lines of the op: `%3 = ort::Linear(%2, %0) {attributes} again  # type; place`."""
    return [line for line in found.graph.text().splitlines() if f" = {op}(" in line]


def run(found: Capture, tensors) -> list[torch.Tensor]:
    """The graph's outputs."""
    feed = {}
    for given in found.inputs:
        if given.role == "key":
            feed[given.name] = np.zeros(1, np.uint64)
        else:
            tensor = given.of(tensors)
            feed[given.name] = tensor.detach().contiguous().numpy()
    outs = _native.core().evaluate(found.graph, feed, ["reference"])
    return [torch.from_numpy(out) for out in outs]


def check(module, *args, rtol=1e-4, atol=1e-5, **kwargs) -> Capture:
    """Captures, and compares results, requires_grad and written buffers with eager's."""
    found = captured(module, *args, **kwargs)
    tensors, _ = tree.flatten([args, kwargs], "arguments")
    values = run(found, tensors)
    for output, order in found.orders:  # as the engine gives them: the tensor's own axes
        values[output] = values[output].permute([order.index(k) for k in range(len(order))])
    ours = found.result(values, tensors, found.bind(tensors))
    twin, args, kwargs = copy.deepcopy((module, args, kwargs))
    theirs = twin(*args, **kwargs)
    our_tensors, our_spec = tree.flatten(ours)
    their_tensors, their_spec = tree.flatten(theirs)
    assert our_spec == their_spec
    for x, y in zip(our_tensors, their_tensors, strict=False):
        torch.testing.assert_close(x.detach(), y.detach(), rtol=rtol, atol=atol)
    grads = [found.outputs[i].requires_grad for i in found.places]
    assert grads == [t.requires_grad for t in their_tensors]
    buffers = dict(twin.named_buffers())
    for write in found.write_backs:
        if write.name in buffers:
            torch.testing.assert_close(
                values[write.output], buffers[write.name], rtol=rtol, atol=atol
            )
    return found
