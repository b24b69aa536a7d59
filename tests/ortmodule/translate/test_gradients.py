"""Each rule of the translator with gradients, on the engine's cpu provider, against eager's."""

import pytest
import torch
from gradient_samples import CALLS, OF_GROUPS, OF_LATE_SIZES, OF_MODULES, WITHOUT
from op_samples import OPS
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves
from verdict import check, filled, leaves_of

from ortmodule.errors import NotCapturable
from ortmodule.translate.registry import RULES
from ortmodule.translate.writes import functional_name

# torch has no gradient for these arguments, so they come without; None: for none of them.
CONSTANT = {
    "nll_loss": (2,), "bce_logits": (2,), "binary_floor_divide": None, "scalar_floor_divide": None,
    "in_place": None, "scatter": None, "detach_copy.default": None, "bernoulli.p": None,
    "scatter.reduce": None, "scatter.value_reduce": None,
}  # fmt: skip
# What the engine or torch has no gradient for, and so refuses: the norm 0.
REFUSED = {"vector_norms"}
# Its values are whatever the memory held.
UNINITIALISED = {"empty_like.default"}


def named(name: str):
    """A function of tensors and its arguments, for an entry of either table."""
    if name in OPS:
        function, *args = OPS[name]
    else:
        *args, kwargs = CALLS[name] if isinstance(CALLS[name][-1], dict) else (*CALLS[name], {})
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload)

        def function(*xs):
            return op(*xs, **kwargs)

    constant = CONSTANT.get(name, ())
    tensors, tree = leaves_of(args)
    tensors = [x.detach().clone() for x in tensors]
    for k, x in enumerate(tensors):
        x.requires_grad_(x.is_floating_point() and constant is not None and k not in constant)

    def flat(*xs):
        found = [x for x in tree_leaves(function(*filled(tree, xs))) if isinstance(x, torch.Tensor)]
        return [torch.zeros_like(x) for x in found] if name in UNINITIALISED else found

    return flat, tensors


@pytest.mark.parametrize("name", [*OPS, *CALLS])
def test_gradient(name):
    function, tensors = named(name)
    if name in REFUSED:
        with pytest.raises(NotCapturable):
            check(function, tensors)
        return
    check(function, tensors, rtol=1e-4, atol=1e-5)


def test_every_rule_has_a_sample():
    seen = set()
    for name in (*OPS, *CALLS):
        function, tensors = named(name)
        traced = make_fx(
            lambda *xs, f=function: list(f(*xs)), pre_dispatch=True, tracing_mode="fake",
            _allow_non_fake_inputs=True,
        )(*tensors)  # fmt: skip
        names = [str(n.target).removeprefix("aten.") for n in traced.graph.nodes]
        seen |= {*names, *map(functional_name, names)}
    assert set(RULES) - seen == OF_MODULES | OF_LATE_SIZES | OF_GROUPS | set(WITHOUT)
