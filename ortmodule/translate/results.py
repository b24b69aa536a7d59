"""What an op gave, as Refs: a view looks at its base's storage, anything else has one of its own.

Called by translator.py after each op; compares with what torch says of the traced result.
"""

from collections.abc import Sequence
from typing import Any

import torch

from ..records.autograd_history import storage_key
from ..torch_internals.trees import tree_flatten, tree_unflatten
from .emit import WITH_GRADIENT, dtype_name
from .refs import Link, Ref, Storage, any_tainted, leaves
from .registry import INVERSES, functional_op

# These return their argument itself where there is nothing to do; other views are tensors anew.
_THEMSELVES = {
    "contiguous.default", "lift.default", "lift_fresh.default", "resolve_conj.default",
    "resolve_neg.default", "conj.default", "real.default", "to.dtype", "to.dtype_layout",
    "to.device", "to.other", "type_as.default", "flatten.using_ints", "positive.default",
    "sum_to_size.default", "atleast_1d.default", "atleast_2d.default", "atleast_3d.default",
}  # fmt: skip
# Off, the first copies its argument, the others return it; traced it is the other way round.
_COPIES = {"native_dropout.default"}
_DROPOUTS = {
    "dropout.default", "feature_dropout.default", "alpha_dropout.default",
    "feature_alpha_dropout.default",
}  # fmt: skip
# They read no more of their argument than its sizes and dtype.
_NEW = {
    f"{name}.default"
    for name in (
        "empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like",
        "new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided",
    )
}  # fmt: skip


def wrapped(t: Any, outs: Any, name: str, args: Sequence, kwargs: dict) -> Any:
    """Makes Refs of an op's values: views look at their base's storage."""
    val = t.node.meta["val"]
    tainted = name not in _NEW and any_tainted((args, kwargs))
    if isinstance(val, (list, tuple)):
        traced, spec = tree_flatten(val)  # a list may be one of several outputs
        outs = list(outs) if isinstance(outs, (list, tuple)) else [outs]
        refs = [
            None if v is None or o is None else _ref(t, o, v, name, args, kwargs, tainted, i)
            for i, (o, v) in enumerate(zip(outs, traced, strict=True))
        ]
        return tree_unflatten(refs, spec)
    if isinstance(outs, (list, tuple)):
        outs = outs[0]
    return _ref(t, outs, val, name, args, kwargs, tainted, None)


def _ref(t, value, val, name, args, kwargs, tainted, index) -> Ref:
    value = _checked(t, value, val, name)
    key = storage_key(val)
    base = args[0] if args and isinstance(args[0], Ref) else None
    if base is not None and name in _DROPOUTS and value is base.read(t):
        base.also |= {key}
        return base
    shared = key is not None and base is not None and (base.key == key or key in base.also)
    if shared and name not in _COPIES:
        same = value is base.read(t)
        if same and name in _THEMSELVES:
            return base
        base.storage.fixed = True
        if same and name not in INVERSES:
            link = link_of(t, "alias.default", (), {}, None)
        else:
            rest = tuple(t.read(list(args[1:])))
            link = link_of(t, name, rest, t.read(kwargs), index)
        return Ref(base.storage, (*base.links, link), key, value)
    if key is not None and any(isinstance(a, Ref) and a.key == key for a in leaves(args)):
        t.unlinked.add(key)
    tainted = tainted and value.dtype in WITH_GRADIENT and flows_to(t, index or 0)
    storage = Storage(value, tainted, traced=val)
    t.storages_in_region.append(storage)
    return Ref(storage, (), key, value)


def flows_to(t: Any, index: int) -> bool:
    """Whether a gradient flows to the running op's output number `index`."""
    return t.flows is None or t.flows[index]


def link_of(t: Any, name: str, args: tuple, kwargs: dict, index: int | None) -> Link:
    """The running op as a view op."""
    target, graded = functional_op(name, t.target), t.no_grad_depth == 0
    return Link(name, t.node, target, args, kwargs, index, graded)


def _checked(t: Any, value: Any, val: torch.Tensor, name: str) -> Any:
    dtype = dtype_name(val.dtype)
    if value.rank == val.dim():
        t.learn(value, val)
    dims = t.dims_of(val)
    if value.dtype != dtype or value.rank != len(dims):
        raise AssertionError(
            f"[{name}] translated to {value.dtype}{value.dims}, torch says {dtype}{dims}"
        )
    if list(value.dims) == dims or name == "_shape_as_tensor.default":
        return value
    for ours, theirs in zip(value.dims, dims, strict=False):
        if isinstance(ours, int) and isinstance(theirs, int) and ours != theirs:
            raise AssertionError(
                f"[{name}] translated to {value.dtype}{value.dims}, torch says {dtype}{dims}"
            )
    return t.reshape(value, dims)
