"""Export of a trained module as a standard ONNX file; called by ORTModule.export_onnx."""

import inspect

import torch
from torch import nn

from . import _native, tree
from .call import describe
from .capture import capture
from .finish import Capture
from .translate.emit import array_of


def export(module: nn.Module, args: tuple, kwargs: dict, path: str) -> None:
    """Captures `module` in eval mode, without gradients, and writes its standard form to `path`."""
    was_training = [m for m in module.modules() if m.training]
    module.eval()
    try:
        with torch.no_grad():
            call = describe(args, kwargs)
            captured = capture(module, call, _native.core().Graph, share_memory=False)
    finally:
        for child in was_training:
            child.training = True
    own = [i for i in captured.inputs if i.role != "user"]
    weights = {i.name: array_of(i.tensor.detach().cpu().contiguous()) for i in own}
    names = _input_names(module, args, kwargs, captured) | _output_names(captured)
    _native.core().export_onnx(captured.graph, weights, names, path)


def _input_names(module: nn.Module, args: tuple, kwargs: dict, captured: Capture) -> dict:
    """From the graph's names to forward's parameters; a nested tensor adds its place."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    by_tensor: dict[int, str] = {}
    for parameter, value in bound.arguments.items():
        tensors, spec = tree.flatten(value, parameter)
        for tensor, place in zip(tensors, tree.tensor_paths(spec, parameter), strict=True):
            by_tensor.setdefault(id(tensor), _plain(place))
    tensors, _ = tree.flatten([args, kwargs], "arguments")
    return {i.name: by_tensor[id(tensors[i.index])] for i in captured.inputs if i.role == "user"}


def _output_names(captured: Capture) -> dict[str, str]:
    """From output:<k> to the place of the tensor in the module's result."""
    places = tree.tensor_paths(captured.spec, "output")
    first = {k: places[captured.places.index(k)] for k in sorted(set(captured.places))}
    return {
        captured.graph.output_names[o.output]: _plain(first[k].removeprefix("output") or "output")
        for k, o in enumerate(captured.outputs)
        if o.output is not None and k in first
    }


def _plain(place: str) -> str:
    """past[0]['key'] -> past_0_key"""
    words = "".join(c if c.isalnum() or c == "_" else " " for c in place).split()
    return "_".join(words)
