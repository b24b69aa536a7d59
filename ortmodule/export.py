"""Export of a trained module as a standard ONNX file; called by ORTModule.export_onnx."""

import functools
import itertools

import torch
from torch import nn

from . import _native
from .calls import tree
from .calls.call import Call, describe
from .capture.eager_run import undone
from .capture.finish import Capture
from .capture.naming import named_tensors, plain
from .capture.stages import capture
from .inference import InferenceSession
from .records.sizes import symbols_of
from .translate.emit import array_of


def export(module: nn.Module, args: tuple, kwargs: dict, path: str) -> None:
    """Captures `module` in eval mode, without gradients, and writes its standard form to `path`.

    A call of one row is written for any number of them, where the file then says of one row what
    the module does.
    """
    was_training = [m for m in module.modules() if m.training]
    module.eval()
    try:
        with torch.no_grad():
            if not _any_rows(module, args, kwargs, path):
                _write(module, args, kwargs, path)
    finally:
        for child in was_training:
            child.training = True


def _write(module: nn.Module, args: tuple, kwargs: dict, path: str) -> None:
    captured = _captured(module, describe(args, kwargs))
    own = [i for i in captured.inputs if i.role != "user"]
    weights = {i.name: array_of(i.tensor.detach().cpu().contiguous()) for i in own}
    names = _input_names(module, args, kwargs, captured)
    outputs = _output_names(captured, {*weights, *names.values()})
    _native.core().export_onnx(captured.graph, weights, names, outputs, path)


def _captured(module: nn.Module, call: Call) -> Capture:
    """For other sizes, which a file does not check: where forward does otherwise for every far
    larger one (x[:5] of four rows), that axis has this call's size. A limit further off, as that
    of positions, leaves it free."""
    taken = functools.partial(capture, module, call, _native.core().Graph, share_memory=False)
    captured = taken()
    shapes = [t.shape for t in call.tensors]
    holds = captured.sizes.holds_beyond(shapes)
    if all(holds.values()):
        return captured
    free = [[all(holds[n] for n in symbols_of(d)) for d in row] for row in captured.sizes.dims]
    return taken(free=free)


def _any_rows(module: nn.Module, args: tuple, kwargs: dict, path: str) -> bool:
    """Writes the file for a call of one row as captured with two: torch takes a size of one for a
    number. False: the call has other rows, or a file so made is not the module's for one."""
    tensors, spec = tree.flatten([args, kwargs], "arguments")
    if not tensors or any(t.dim() == 0 or t.shape[0] != 1 for t in tensors):
        return False
    doubled = [torch.cat([t, t]).requires_grad_(t.requires_grad) for t in tensors]
    try:
        _write(module, *tree.unflatten(spec, doubled), path)
        session = InferenceSession(path)
        found = session.run(None, _fed(module, args, kwargs, session))
        with undone(module, args, kwargs):
            result, _ = tree.flatten(module.forward(*args, **kwargs), "output")
    except Exception:  # eager's own, too: it is met again, where the call is captured as it is
        return False
    return len(found) == len(result) and all(
        _alike(torch.as_tensor(mine), theirs.cpu())
        for mine, theirs in zip(found, result, strict=True)
    )


def _fed(module: nn.Module, args: tuple, kwargs: dict, session: InferenceSession) -> dict:
    named = {name: tensor for tensor, name in named_tensors(module, args, kwargs)}
    return {given.name: array_of(named[given.name].cpu()) for given in session.get_inputs()}


def _alike(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return False
    return torch.allclose(mine.double(), theirs.double(), rtol=1e-2, atol=1e-2, equal_nan=True)


def _input_names(module: nn.Module, args: tuple, kwargs: dict, captured: Capture) -> dict:
    """From the graph's names to the file's."""
    by_tensor: dict[int, str] = {}
    for tensor, name in named_tensors(module, args, kwargs):
        by_tensor.setdefault(id(tensor), name)
    tensors, _ = tree.flatten([args, kwargs], "arguments")
    return {i.name: by_tensor[id(tensors[i.index])] for i in captured.inputs if i.role == "user"}


def _output_names(captured: Capture, used: set[str]) -> list[tuple[str, str]]:
    """For each tensor of the module's result, in order, which output of the graph it is, and its
    name in the file: its place in the result."""
    found = []
    for path, place in zip(
        tree.tensor_paths(captured.spec, "output"), captured.places, strict=False
    ):
        name = _unused(plain(path.removeprefix("output") or "output"), used)
        used.add(name)
        found.append((captured.graph.output_names[captured.outputs[place].output], name))
    return found


def _unused(name: str, used: set[str]) -> str:
    """`name`, or one like it where that is an input's, a parameter's or another output's."""
    others = (f"output_{name}" + (f"_{k}" if k else "") for k in itertools.count())
    return next(n for n in itertools.chain([name], others) if n not in used)
