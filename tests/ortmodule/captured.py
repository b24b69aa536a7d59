"""Captures a module or a function into the running double and compares it with eager."""

import copy

import torch
from graph_double import Graph
from torch import nn

from ortmodule import tree
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


def outputs_of(found: Capture, args=(), kwargs=None):
    """What the captured graph, as the double ran it, returns for the call."""
    tensors, _ = tree.flatten([args, kwargs or {}], "arguments")
    values = [torch.from_numpy(v.array) for _, v in found.graph.outputs]
    return found.result(values, tensors, found.bind(tensors))


def check(module, *args, rtol=1e-4, atol=1e-5, **kwargs) -> Capture:
    """Captures, and compares results, requires_grad and written buffers with eager's."""
    found = captured(module, *args, **kwargs)
    ours = outputs_of(found, args, kwargs)
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
            written = torch.from_numpy(found.graph.outputs[write.output][1].array)
            torch.testing.assert_close(written, buffers[write.name], rtol=rtol, atol=atol)
    return found
