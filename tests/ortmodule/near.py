"""A step in low precision against eager's, with eager in float64 as the truth of both."""

import contextlib
import copy

import torch
from pairs import options

from ortmodule import ORTModule


def autocast(dtype):
    """Autocast to `dtype`; None: nothing."""
    return torch.autocast("cpu", dtype) if dtype is not None else contextlib.nullcontext()


def check_step(module, *args, dtype=None):
    """One forward and backward, captured without fallback: types as eager's, errors at most twice
    eager's and an ulp. Gives the report."""
    eager, exact = copy.deepcopy(module), copy.deepcopy(module).double()
    ours = ORTModule(module, options(fallback="error"))
    theirs = _step(eager, args, dtype)
    truth = _step(exact, [a.double() if a.is_floating_point() else a for a in args], None)
    for name, mine in _step(ours, args, dtype).items():
        check_near(name, mine, theirs[name], truth[name])
    return ours.explain()


def check_truth(module, *args, dtype=None):
    """Where eager itself is wrong in low precision: one forward and backward, captured without
    fallback, are within four units in the last place of what is largest in float64's."""
    exact = copy.deepcopy(module).double()
    truth = _step(exact, [a.double() if a.is_floating_point() else a for a in args], None)
    for name, mine in _step(ORTModule(module, options(fallback="error")), args, dtype).items():
        allowed = 4 * torch.finfo(dtype or mine.dtype).eps * truth[name].abs().max()
        assert (mine.double() - truth[name]).abs().max() <= allowed, name


def check_near(name, mine, theirs, truth):
    assert (mine is None) == (theirs is None), name
    if mine is None:
        return
    assert mine.dtype == theirs.dtype and mine.shape == theirs.shape, (name, mine.dtype)
    assert torch.equal(mine.isfinite(), theirs.isfinite()), name
    ulp = torch.finfo(mine.dtype).eps * truth.abs().max()
    allowed = 2 * (theirs.double() - truth).abs().max() + ulp
    assert (mine.double() - truth).abs().max() <= allowed, name


def _step(module, args, dtype):
    leaves = [a.detach().clone().requires_grad_(a.is_floating_point()) for a in args]
    with autocast(dtype):
        out = module(*leaves)
    outs = _tensors(out)
    torch.manual_seed(3)
    weights = [torch.randn(o.shape, dtype=torch.float64).bfloat16().to(o.dtype) for o in outs]
    torch.autograd.backward(outs, weights)
    found = {f"output {i}": o.detach() for i, o in enumerate(outs)}
    found |= {f"gradient of input {i}": leaf.grad for i, leaf in enumerate(leaves)}
    return found | {f"gradient of {name}": p.grad for name, p in module.named_parameters()}


def _tensors(out):
    return [t for item in out for t in _tensors(item)] if isinstance(out, tuple) else [out]
