"""Autocast as part of a capture: what is cast, where, and how often."""

import itertools
import re

import pytest
import torch
from autocast_samples import CAST, NONE, OTHERS
from captured import Function, captured
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

HALVES = [torch.bfloat16, torch.float16]
_NAMES = {1: torch.float32, 10: torch.float16, 11: torch.float64, 16: torch.bfloat16}


class _Copies(TorchDispatchMode):
    """Counts what each of the given tensors is cast to."""

    def __init__(self, given):
        super().__init__()
        self.given, self.casts = {id(x): i for i, x in enumerate(given)}, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        number = self.given.get(id(args[0])) if args else None
        if func is torch.ops.aten._to_copy.default and number is not None:
            self.casts.add((number, kwargs["dtype"]))
        return func(*args, **(kwargs or {}))


def graph_casts(found):
    """(number of a user's tensor, dtype) of each Cast that reads one."""
    header = re.findall(r"(%[^:\s,(]+): \S+\[[^\]]*\] \w+", found.graph.text().splitlines()[0])
    ids = dict(zip(header, found.inputs, strict=True))
    casts = re.findall(r" = Cast\((%\S+)\) {to=(\d+)", found.graph.text())
    read = [(ids[x], _NAMES.get(int(to))) for x, to in casts if x in ids]
    return {(given.index, dtype) for given, dtype in read if given.role == "user"}


def floats(change):
    return lambda x: change(x) if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def variants(args, half):
    """All float32, all half, and every other one half."""
    for kinds in ([torch.float32], [half], [torch.float32, half], [half, torch.float32]):
        dtypes = itertools.cycle(kinds)
        yield tree_map(floats(lambda x: x.to(next(dtypes), copy=True)), args)  # noqa: B023


def operator(name):
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def eager_of(op, args, half, enabled):
    given = [x for x in tree_flatten(args)[0] if isinstance(x, torch.Tensor)]
    with (
        torch.autocast("cpu", half, enabled=enabled, cache_enabled=False),
        _Copies(given) as copies,
    ):
        out = op(*args)
    return [x.dtype for x in tree_flatten(out)[0]], copies.casts


@pytest.mark.parametrize("half", HALVES, ids=["bfloat16", "float16"])
@pytest.mark.parametrize("name", [*CAST, *OTHERS])
def test_casts_and_dtypes_are_eagers(name, half):
    op, tried = operator(name), 0
    for args in variants((CAST | OTHERS)[name], half):
        try:
            _, own = eager_of(op, args, half, enabled=False)
            dtypes, casts = eager_of(op, args, half, enabled=True)
        except (RuntimeError, NotImplementedError):
            continue  # torch refuses these dtypes
        tried += 1
        with torch.autocast("cpu", half), torch.no_grad():
            found = captured(Function(lambda *given: op(*given)), *args)
        assert [str(v.dtype) for v in map(found.graph.outputs.__getitem__, places(found))] == [
            str(d).removeprefix("torch.") for d in dtypes
        ]
        assert casts - own <= graph_casts(found), found.graph.text()
    assert tried


def places(found):
    return [found.outputs[i].output for i in found.places]


def test_every_kernel_of_autocast_has_a_sample():
    kernels = torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCPU")
    known = {*CAST, *(name for names in NONE.values() for name in names)}
    ours = {name.removeprefix("aten::").removesuffix(".default") for name in kernels}
    assert ours <= known
