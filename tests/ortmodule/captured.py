"""Captures a module or a function and compares it with eager, on the double or on the engine."""

import copy

import numpy as np
import torch
from graph_double import Graph
from torch import nn

from ortmodule import _native, tree
from ortmodule.capture import Capture, capture
from ortmodule.guards import Snapshot


class Function(nn.Module):
    """A module whose forward is `function`."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def make_graph(module, args=(), kwargs=None):
    """A factory of doubles fed with the module's tensors and the call's."""
    tensors, spec = tree.flatten([args, kwargs or {}], "arguments")
    known = {
        f"input:{p}": t for p, t in zip(tree.tensor_paths(spec, "arguments"), tensors, strict=False)
    }
    known |= dict(Snapshot(module).tensors.values())
    known |= dict(module.named_parameters(remove_duplicate=False))
    known |= dict(module.named_buffers(remove_duplicate=False))
    return lambda: Graph(lambda name, _role: known[name].detach().numpy().copy())


def captured(module, *args, **kwargs) -> Capture:
    return capture(module, args, kwargs, make_graph(module, args, kwargs))


def run_double(found: Capture, _tensors) -> list[torch.Tensor]:
    return [torch.from_numpy(v.array) for _, v in found.graph.outputs]


def run_engine(found: Capture, tensors) -> list[torch.Tensor]:
    """The graph's outputs by the reference provider."""
    feed = {}
    for given in found.inputs:
        if given.role == "key":
            feed[given.name] = np.zeros(1, np.uint64)
        else:
            tensor = tensors[given.index] if given.role == "user" else given.tensor
            feed[given.name] = tensor.detach().contiguous().numpy()
    outs = _native.core().evaluate(found.graph, feed, ["reference"])
    return [torch.from_numpy(out) for out in outs]


def check(module, *args, engine=False, rtol=1e-4, atol=1e-5, **kwargs) -> Capture:
    """Captures, and compares results, requires_grad and written buffers with eager's."""
    make = _native.core().Graph if engine else make_graph(module, args, kwargs)
    found = capture(module, args, kwargs, make)
    tensors, _ = tree.flatten([args, kwargs], "arguments")
    values = (run_engine if engine else run_double)(found, tensors)
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
