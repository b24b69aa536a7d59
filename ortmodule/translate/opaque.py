"""Ops without a rule: decomposed by torch where it can, else kept whole as a node of domain aten.

Called by translator.py. An aten node carries its schema's name and its arguments as JSON, where
{"tensor": i} is the node's input i, {"size": "2*s0"} a size, {"dtype": "float32"} a dtype.
"""

import json
import math
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from .emit import SymbolicFloat, dtype_name, is_value

_RANDOM = torch.Tag.nondeterministic_seeded


def decompose(t: Any, args: list, kwargs: dict) -> Any:
    """The values of an op that torch defines by others; None when it does not."""
    target = t.target
    if not target._can_decompose() or _RANDOM in target.tags:
        return None
    from ..saved import storage_key
    from .refs import Ref, Storage

    traced = _traced_arguments(t.node)
    tensors = list(_tensor_leaves(traced))
    program = _trace(target, traced, tensors)
    if program is None:
        return None
    t.alive.append(program)
    refs = []
    values = list(_value_leaves((args, kwargs)))
    for value, tensor in zip(values, tensors, strict=True):
        refs.append(Ref(Storage(value), (), storage_key(tensor)))
    node = t.node
    for inner in program.graph.nodes:
        for key in ("stack_trace", "nn_module_stack"):
            if key in node.meta:
                inner.meta[key] = node.meta[key]
    outs = t.run(program, refs)
    if any(ref.storage.version for ref in refs):
        t.refuse(f"{target} writes to its arguments")
    return [o.read(t) if isinstance(o, Ref) else o for o in outs]


def _trace(target: Any, traced: tuple, tensors: list) -> fx.GraphModule | None:
    args, kwargs = traced

    def call(flat):
        rest = iter(flat)
        a, k = _replace(args, rest), _replace(kwargs, rest)
        out = target(*a, **k)
        return list(out) if isinstance(out, (list, tuple)) else [out]

    guards = _guard_count(tensors)
    try:
        with torch.no_grad():  # below autograd, where composite ops come apart by themselves
            program = make_fx(call)(tensors)
    except Exception:  # not for these sizes: the op is kept whole
        return None
    if _guard_count(tensors) != guards:
        return None  # it would hold for some sizes only, and the size predicate is already made
    return program


def _guard_count(tensors: list) -> int:
    for tensor in tensors:
        for size in tensor.shape:
            if isinstance(size, torch.SymInt):
                return len(size.node.shape_env.guards)
    return 0


def emit_opaque(t: Any, args: list, kwargs: dict) -> Any:
    """The running op as a node of domain aten."""
    inputs: list[Any] = []
    encoded = json.dumps([_encode(t, a, inputs) for a in args], separators=(",", ":"))
    named = json.dumps({k: _encode(t, v, inputs) for k, v in kwargs.items()}, separators=(",", ":"))
    val = t.node.meta["val"]
    outs = list(val) if isinstance(val, (list, tuple)) else [val]
    schema = t.target.name()
    if t.target.namespace == "ortmodule":  # a recurrent layer's stand-in takes aten's arguments
        schema = f"aten::{schema.removeprefix('ortmodule::')}.input"
    attrs = {
        "schema": schema,
        "args": encoded,
        "kwargs": named,
        "types": [f"{dtype_name(v.dtype)}[{', '.join(map(str, t.dims_of(v)))}]" for v in outs],
        "random": int(_RANDOM in t.target.tags),
    }
    return list(t.g.emit(schema.removeprefix("aten::"), inputs, attrs, len(outs), "aten"))


def _encode(t: Any, arg: Any, inputs: list) -> Any:
    if is_value(arg):
        inputs.append(arg)
        return {"tensor": len(inputs) - 1}
    if isinstance(arg, (list, tuple)):
        return [_encode(t, a, inputs) for a in arg]
    if isinstance(arg, torch.dtype):
        return {"dtype": str(arg).removeprefix("torch.")}
    if isinstance(arg, torch.device):
        return {"device": str(arg)}
    if isinstance(arg, (torch.memory_format, torch.layout)):
        return {type(arg).__name__: str(arg).removeprefix("torch.")}
    if isinstance(arg, float) and not math.isfinite(arg):
        return {"float": repr(arg)}
    if isinstance(arg, SymbolicFloat) or not isinstance(arg, (type(None), bool, int, float, str)):
        return t.refuse(f"argument {arg!r} of {t.target} cannot be kept in an aten node")
    if isinstance(arg, str) and not _is_text(t.target, arg):
        return {"size": arg}
    return arg


def _is_text(target: Any, arg: str) -> bool:
    """A str argument is text when the schema has any str; else it is a size."""
    return any("str" in str(a.type) for a in target._schema.arguments) and not any(
        c.isdigit() for c in arg
    )


def _traced_arguments(node: fx.Node) -> tuple:
    return fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))


def _tensor_leaves(tree: Any) -> list[torch.Tensor]:
    return [x for x in _leaves(tree) if isinstance(x, torch.Tensor)]


def _value_leaves(tree: Any) -> list[Any]:
    return [x for x in _leaves(tree) if is_value(x)]


def _leaves(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        return [leaf for x in tree for leaf in _leaves(x)]
    return [tree]


def _replace(tree: Any, rest: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return next(rest)
    if isinstance(tree, (list, tuple)):
        return [_replace(x, rest) for x in tree]
    if isinstance(tree, dict):
        return {k: _replace(v, rest) for k, v in tree.items()}
    return tree
