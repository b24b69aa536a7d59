"""Ops without a rule: decomposed by torch where it can, else kept whole as a node of domain aten.

Called by translator.py. An aten node's inputs are the operator's tensors in the order of its
arguments; the other arguments are attributes under their own names, sizes and dtypes as text.
"""

from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from .emit import FLOATING, dtype_name, is_value

_RANDOM = torch.Tag.nondeterministic_seeded
_OWN_ATTRS = {"schema", "types", "effect"}


def decompose(t: Any, args: list, kwargs: dict) -> Any:
    """The values of an op that torch defines by others; None when it does not."""
    target = t.target
    if not target._can_decompose() or _RANDOM in target.tags:
        return None
    from ..saved import storage_key
    from .refs import Ref, Storage

    traced = t.traced_arguments(lambda val, _: val)
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
    """The running op as a node of domain aten; sets `t.flows`: which outputs carry a gradient."""
    target = _operator(t.target)
    inputs: list[Any] = []
    attrs: dict[str, Any] = {}
    for i, argument in enumerate(target._schema.arguments):
        value = args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
        attrs[argument.name] = _encode(t, argument, value, inputs)
    val = t.node.meta.get("val")  # None: it only checks, and may raise
    outs = list(val) if isinstance(val, (list, tuple)) else [val] * (val is not None)
    if clash := _OWN_ATTRS & attrs.keys():
        t.refuse(f"its argument {min(clash)} has the name of an attribute of every aten node")
    attrs["schema"] = target.name()
    attrs["types"] = [_type_of(t, v) for v in outs]
    attrs["effect"] = int(not outs or _draws(t.target, target, args))
    t.flows = _flows(t, outs)
    name = target.name().rpartition("::")[2]
    values = list(t.g.emit(name, inputs, attrs, len(outs), "aten"))
    if t.flows is None:
        return values
    kept = [f or v.dtype not in FLOATING for v, f in zip(values, t.flows, strict=True)]
    return [v if k else t.stop(v) for v, k in zip(values, kept, strict=True)]


def _operator(target: Any) -> Any:
    """torch's own operator for a recurrent layer's stand-in, which takes the same arguments."""
    if target.namespace != "ortmodule":
        return target
    return getattr(torch.ops.aten, target.name().removeprefix("ortmodule::")).input


def _draws(target: Any, operator: Any, args: list) -> bool:
    if target.namespace == "ortmodule":  # a recurrent layer draws for its dropout alone
        dropout, train = args[5:7]
        return bool(dropout > 0 and train)
    return _RANDOM in operator.tags


def _type_of(t: Any, val: Any) -> str:
    if not isinstance(val, torch.Tensor):
        t.refuse(f"{t.target} returns a {type(val).__name__}, which a graph cannot hold")
    if any(free_unbacked_symbols(size) for size in val.shape):
        t.refuse(f"the size of what {t.target} returns depends on data")
    return f"{dtype_name(val.dtype)}[{', '.join(map(str, t.dims_of(val)))}]"


def _encode(t: Any, argument: Any, value: Any, inputs: list) -> Any:
    """An attribute for `value`; tensors become inputs, and a list of them its count."""
    listed = str(argument.type).removeprefix("Optional[")
    if value is None and argument.default_value is not None:
        t.refuse(f"{t.target} has no {argument.name}, which an aten node cannot say")
    if value is None or is_value(value):
        if is_value(value) or listed.startswith("Tensor"):
            inputs.append(value)
        return None
    if isinstance(value, (list, tuple)):
        if listed.startswith(("List[Tensor]", "List[Optional[Tensor]]")):
            inputs.extend(value)
            return len(value)
        items = [_number(t, item) for item in value]
        return [str(i) for i in items] if any(isinstance(i, str) for i in items) else items
    if value is True and argument.name.startswith("sparse"):
        t.refuse(f"{t.target} asks for sparse gradients")
    if isinstance(value, bool) and "number" in listed:
        return str(value)
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return str(value).removeprefix("torch.")
    return str(value) if isinstance(value, torch.device) else _number(t, value)


def _number(t: Any, value: Any) -> Any:
    if not isinstance(value, (bool, int, float, str)):
        t.refuse(f"argument {value!r} of {t.target} cannot be kept in an aten node")
    return value


def _flows(t: Any, outs: list) -> list[bool] | None:
    """For each output whether a gradient flows to it: asked of torch, on fake tensors.

    They have the first call's sizes: symbolic ones would add guards, and take sympy for ever. None
    means wherever a gradient may. What torch has no gradient for is refused here, not in a
    backward.
    """
    if not t.needs_gradient() or not outs or t.target.namespace == "ortmodule":
        return None
    leaves: list[torch.Tensor] = []
    try:
        with FakeTensorMode(), torch.enable_grad():
            args, kwargs = t.traced_arguments(lambda val, tainted: _sample(val, tainted, leaves))
            found = t.target(*args, **kwargs)
            found = list(found) if isinstance(found, (list, tuple)) else [found]
            ends = [tensor for tensor in found if tensor.requires_grad]
            for tensor in ends:
                if tensor.grad_fn.name().endswith("NotImplemented"):
                    raise NotImplementedError("its derivative is not implemented")
            if ends:
                dy = [torch.empty_like(tensor) for tensor in ends]
                torch.autograd.grad(ends, leaves, dy, allow_unused=True)
    except Exception as error:
        if "is not implemented" in str(error):
            t.refuse(f"torch has no gradient for it: {error}")
        return None  # it takes real tensors to tell
    return [tensor.requires_grad for tensor in found]


def _sample(val: Any, tainted: bool, leaves: list) -> Any:
    """A traced value with the first call's sizes; `leaves` collects those that need a gradient."""
    if isinstance(val, torch.SymInt):
        return int(val.node.hint)
    if not isinstance(val, torch.Tensor):
        return val
    sizes, strides = ([_sample(d, False, leaves) for d in x] for x in (val.shape, val.stride()))
    tensor = torch.empty_strided(sizes, strides, dtype=val.dtype)
    if tainted and val.is_floating_point():
        leaves.append(tensor.requires_grad_())
    return tensor


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
