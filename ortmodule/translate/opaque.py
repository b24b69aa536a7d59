"""Ops without a rule: decomposed by torch where it can, else kept whole as a node of domain aten.

Called by translator.py. An aten node's inputs are the operator's tensors in the order of its
arguments; the other arguments are attributes under their own names, sizes and dtypes as text.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from ..records.autograd_history import storage_key
from ..records.sizes import hint_of
from ..records.steps import number_of_call, step_of
from ..side_effects.told_warnings import hidden
from ..torch_internals.tracing import FakeTensorMode, OpOverload, dispatch_functionalize
from .emit import WITH_GRADIENT, dtype_name, is_value
from .refs import Ref, Storage, leaves
from .settled import Settled, env_of

_RANDOM = torch.Tag.nondeterministic_seeded
_OWN_ATTRS = {"schema", "types", "effect", "reason", "once", "history_of"}


def decompose(t: Any, args: list, kwargs: dict) -> Any:
    """The values of an op that torch defines by others; None when it does not."""
    target = t.target
    if not target._can_decompose() or _RANDOM in target.tags or target in t.apart:
        return None  # made of itself, it would never end
    traced = t.traced_arguments(lambda val, _: val)
    tensors = list(_tensor_leaves(traced))
    settled = Settled(env_of(leaves(traced)))
    fresh: list[torch.Tensor] = []
    t.traced_arguments(lambda val, tainted: fresh.append(_fresh(t, val, tainted)))
    program = _trace(target, traced, list(filter(_is_tensor, fresh)), settled)
    if not settled.holds():
        settled.restore()
    if program is None:
        return None
    t.alive.append(program)
    refs = []
    given = [leaf for leaf in leaves(t.given) if isinstance(leaf, Ref)]
    values = list(_value_leaves((args, kwargs)))
    for value, tensor, ref in zip(values, tensors, given, strict=True):
        refs.append(Ref(Storage(value, ref.tainted), (), storage_key(tensor)))
    node = t.node
    for inner in program.graph.nodes:
        for key in ("stack_trace", "nn_module_stack"):
            if key in node.meta:
                inner.meta[key] = node.meta[key]
    t.apart.append(target)
    try:
        outs = t.run(program, refs)
    finally:
        t.apart.pop()
    if any(ref.storage.version for ref in refs):
        t.refuse(f"{target} writes to its arguments")
    return [o.read(t) if isinstance(o, Ref) else o for o in outs]


def _trace(target: Any, traced: tuple, tensors: list, settled: Settled) -> fx.GraphModule | None:
    """The op as torch defines it; None: it does not, or for some sizes alone."""

    def call(flat):
        rest = iter(flat)
        a, k = _replaced(traced, _is_tensor, rest)
        out = target(*a, **k)
        return list(out) if isinstance(out, (list, tuple)) else [out]

    # Such a trace does not tell which of its tensors share memory, so it may write to no view.
    for form in (call, dispatch_functionalize(call)):
        try:
            with torch.no_grad():  # below autograd, where composite ops come apart by themselves
                program = make_fx(form)(tensors)
        except Exception:  # not for these sizes: the op is kept whole
            return None
        if not settled.holds():
            return None
        if not any(_writes_to_view(node) for node in program.graph.nodes):
            return program
    return None


def _fresh(t: Any, val: Any, tainted: bool) -> Any:
    """A tensor that shares memory with a traced one, as that would keep what is asked of its sizes;
    it asks for a gradient where one flows, as torch takes some ops apart otherwise then."""
    if not _is_tensor(val):
        return val
    asks = tainted and t.needs_gradient() and (val.is_floating_point() or val.is_complex())
    return val.detach().requires_grad_(asks)


def _writes_to_view(node: fx.Node) -> bool:
    """Whether it writes to a view, or to what a view is taken of."""
    written = [x for x in leaves(_shared(node, write=True)) if isinstance(x, fx.Node)]
    seen = [other for node in written for other in (node, *node.users)]
    return any(_shared(other, write=False) for other in seen)


def _shared(node: fx.Node, write: bool) -> list:
    """The arguments that the op of a node writes to, or gives a view of, by its schema."""
    if not isinstance(node.target, OpOverload):
        return []
    given = zip(node.target._schema.arguments, node.args, strict=False)
    infos = [(argument.alias_info, value) for argument, value in given]
    return [value for info, value in infos if info is not None and info.is_write == write]


def _is_tensor(x: Any) -> bool:
    return isinstance(x, torch.Tensor)


def emit_opaque(t: Any, args: list, kwargs: dict, reason: str) -> Any:
    """The running op as a node of domain aten, with the reason why it is one; sets `t.flows`: which
    outputs carry a gradient."""
    target = _operator(t.target)
    inputs: list[Any] = []
    attrs: dict[str, Any] = {}
    val = t.node.meta.get("val")  # None: it only checks, and may raise
    outs = list(val) if isinstance(val, (list, tuple)) else [val] * (val is not None)
    if not outs and target._schema.returns:
        t.refuse("it asks something of a tensor that only a run can answer")
    for out in filter(_is_tensor, outs):
        if out.layout != torch.strided:
            t.refuse(f"it gives a tensor of layout {out.layout}")
    names = [argument.name for argument in target._schema.arguments]
    for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
        if value is True and name.startswith("sparse"):
            t.refuse(f"{t.target} asks for sparse gradients")
    types = [_type_of(t, out) for out in outs]
    t.flows, without = _flows(t, outs)
    if t.within is not None and t.needs_gradient() and (t.flows is None or any(t.flows)):
        t.refuse(f"its gradient needs torch's history, which {t.within.owner} does not keep")
    values = enumerate(_value_leaves((args, kwargs)))
    stopped = (t.stop(value) if k in without else value for k, value in values)
    args, kwargs = _replaced((args, kwargs), is_value, stopped)
    for i, argument in enumerate(target._schema.arguments):
        value = args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
        attrs[argument.name] = _encode(t, argument, value, inputs)
    if clash := _OWN_ATTRS & attrs.keys():
        t.refuse(f"its argument {min(clash)} has the name of an attribute of every aten node")
    attrs["schema"] = target.name()
    attrs["types"] = types
    draws = _draws(t.target, target, args)
    if draws and t.within is not None:
        t.refuse(f"it draws from torch's generator in {t.within.owner}, where only dropout draws")
    checks = not outs or "assert" in target.name() or t.node in t.unread  # it may raise
    attrs["effect"] = "random" if draws else "check" if checks else "none"
    attrs["reason"] = reason
    if step_of(target) is not None:
        attrs["effect"] = "python"
        if t.within is None:
            attrs |= _runs_once(t, without)
    name = target.name().rpartition("::")[2]
    values = list(t.g.emit(name, inputs, attrs, len(outs), "aten"))
    if t.flows is None:
        return values
    kept = [f or v.dtype not in WITH_GRADIENT for v, f in zip(values, t.flows, strict=True)]
    return [v if k else t.stop(v) for v, k in zip(values, kept, strict=True)]


def _runs_once(t: Any, without: set[int]) -> dict[str, Any]:
    """A number for what Python gives in a call, and of which tensors any backward may ask for a
    gradient: the forward of another backward takes it up."""
    asked: list[bool] = []
    t.traced_arguments(lambda val, tainted: asked.append(tainted and _is_tensor(val)))
    needed = [k for k, asks in enumerate(asked) if asks and k not in without]
    once = t.next_once()
    if (number := number_of_call(t.node)) is not None:
        t.once_of_call[number] = once
    return {"once": once} | ({"history_of": needed} if t.needs_gradient() else {})


def _operator(target: Any) -> Any:
    """torch's own operator for a stand-in (markers.py), which takes the same arguments."""
    if target.namespace != "ortmodule":
        return target
    packet = getattr(torch.ops.aten, target.name().removeprefix("ortmodule::"))
    return packet.Tensor if "Tensor" in packet.overloads() else packet.input


def _draws(target: Any, operator: Any, args: list) -> bool:
    if _RANDOM not in operator.tags or target.namespace != "ortmodule":
        return _RANDOM in operator.tags
    dropout, train = args[5:7]  # a recurrent layer draws for its dropout alone
    return bool(dropout > 0 and train)


def _type_of(t: Any, val: Any) -> str:
    if not isinstance(val, torch.Tensor):
        t.refuse(f"{t.target} returns a {type(val).__name__}, which a graph cannot hold")
    if not all(t.is_told(size) for size in val.shape):
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
    if isinstance(value, bool) and "number" in listed:
        return str(value)
    if isinstance(value, (torch.dtype, torch.memory_format, torch.layout)):
        return str(value).removeprefix("torch.")
    return str(value) if isinstance(value, torch.device) else _number(t, value)


def _number(t: Any, value: Any) -> Any:
    if isinstance(value, complex):
        return [value.real, value.imag]
    if not isinstance(value, (bool, int, float, str)):
        t.refuse(f"argument {value!r} of {t.target} cannot be kept in an aten node")
    return value


def _flows(t: Any, outs: list) -> tuple[list[bool] | None, set[int]]:
    """For each output whether a gradient flows to it, and the tensors that are given none although
    they ask: asked of torch, on fake tensors.

    They have the first call's sizes: symbolic ones would add guards, and take sympy for ever. None
    means wherever a gradient may. What torch has no gradient for is refused here, not in a
    backward.
    """
    if not t.needs_gradient() or not outs or t.target.namespace == "ortmodule":
        return None, set()
    given: list[torch.Tensor] = []
    try:
        with FakeTensorMode(), torch.enable_grad(), hidden():
            args, kwargs = t.traced_arguments(lambda val, tainted: sample(val, tainted, given))
            found = t.target(*args, **kwargs)
            found = list(found) if isinstance(found, (list, tuple)) else [found]
            ends = [tensor for tensor in found if tensor.requires_grad]
            for tensor in ends:
                if tensor.grad_fn.name().endswith("NotImplemented"):
                    raise NotImplementedError("its derivative is not implemented")
            without = _without_gradient(t, given, ends) if ends else set()
    except Exception as error:
        if "is not implemented" in str(error) or "Autograd not support" in str(error):
            t.refuse(f"torch has no gradient for it: {error}")
        return None, set()  # it takes real tensors to tell
    return [tensor.requires_grad for tensor in found], without


def _without_gradient(t: Any, given: list, ends: list) -> set[int]:
    leaves = [k for k, tensor in enumerate(given) if tensor.requires_grad]
    dy = [torch.empty_like(tensor) for tensor in ends]
    grads = torch.autograd.grad(ends, [given[k] for k in leaves], dy, allow_unused=True)
    if (step := step_of(t.target)) is not None:  # another call may give others
        return step.without & set(leaves)
    if all(grad is None for grad in grads):
        raise NotImplementedError("a gradient of it is not implemented for these arguments")
    return {k for k, grad in zip(leaves, grads, strict=True) if grad is None}


def sample(val: Any, tainted: bool, given: list) -> Any:
    """A traced value with the first call's sizes; `given` collects the tensors."""
    if isinstance(val, torch.SymInt):
        return hint_of(val)
    if not isinstance(val, torch.Tensor):
        return val
    sizes, strides = ([sample(d, False, given) for d in x] for x in (val.shape, val.stride()))
    tensor = torch.empty_strided(sizes, strides, dtype=val.dtype)
    if tainted and (val.is_floating_point() or val.is_complex()):
        tensor.requires_grad_()
    given.append(tensor)
    return tensor


def _tensor_leaves(tree: Any) -> list[torch.Tensor]:
    return [x for x in leaves(tree) if _is_tensor(x)]


def _value_leaves(tree: Any) -> list[Any]:
    return [x for x in leaves(tree) if is_value(x)]


def _replaced(tree: Any, replaces: Callable[[Any], bool], rest: Iterator) -> Any:
    """The tree with the next of `rest` for each leaf that `replaces` names."""
    if replaces(tree):
        return next(rest)
    if isinstance(tree, (list, tuple)):
        return [_replaced(x, replaces, rest) for x in tree]
    if isinstance(tree, dict):
        return {k: _replaced(v, replaces, rest) for k, v in tree.items()}
    return tree
