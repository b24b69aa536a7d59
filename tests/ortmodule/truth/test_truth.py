"""Every case of the table: all calls are eager's, or reported as eager, and equal."""

import warnings

import pytest
import torch
from torch import nn

import ortmodule.capture.stages
from ortmodule import ORTModule
from ortmodule.errors import NeedsCut

from . import (  # noqa: F401  each adds its cases
    asked,
    attention,
    changed,
    first,
    held,
    layout,
    named,
    numpys,
    packages,
    read,
    returned,
    standard,
    through,
    written,
)  # fmt: skip
from .table import CASES

# The number that a case is told, and whether the input requires a gradient: each number comes where
# another one's call has made a capture.
CALLS = ((0, False), (1, False), (2, False), (1, True), (0, False))


def observe(entry, wrap):
    """What can be seen of some calls, and the model."""
    torch.manual_seed(0)
    found = entry.factory()
    model = wrap(found.module)
    seen = []
    for i, requires_grad in CALLS:
        found.before(found.module, i)
        found.module.zero_grad()
        x = torch.linspace(-2, 3, 15).reshape(5, 3).requires_grad_(requires_grad)
        seen.append(_call(found, model, x, i))
        seen[-1]["x"] = (x.detach().clone(), x.grad)
        seen[-1]["state"] = _plain(found.state())
        seen[-1]["random"] = torch.random.get_rng_state().sum()
        seen[-1]["parameters"] = {
            n: (p.detach().clone(), p.grad) for n, p in found.module.named_parameters()
        }
        seen[-1]["buffers"] = {n: b.clone() for n, b in found.module.named_buffers()}
        seen[-1]["attributes"] = _plain(
            {k: v for k, v in vars(found.module).items() if k[:1] != "_" and k != "body"}
        )
    return seen, model


def _call(found, model, x, i):
    try:
        result = found.call(model, x, i)
    except Exception as error:
        return {"error": type(error), "message": str(error).partition("\n")[0]}
    tensors = [t for t in _tensors(result) if t.requires_grad]
    if tensors:
        sum((t * t).sum() for t in tensors).backward()
    return {"result": _plain(result), "requires": [t.requires_grad for t in _tensors(result)]}


def _tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in _tensors(item)]
    return []


def _plain(value):
    """Values that compare: tensors detached, objects as what they hold."""
    if isinstance(value, torch.Tensor):
        assert type(value) in (torch.Tensor, nn.Parameter), type(value)
        return value.detach().clone()
    if isinstance(value, dict):
        return type(value).__name__, {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set)) or type(value).__name__ == "deque":
        return type(value).__name__, [_plain(v) for v in value]
    if isinstance(value, (int, float, str, bytes, bool, type(None))):
        return value
    return type(value).__name__


def same(a, b):
    if isinstance(a, torch.Tensor):
        return (
            isinstance(b, torch.Tensor)
            and (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
            and torch.allclose(a.detach(), b.detach(), rtol=1e-4, atol=1e-6, equal_nan=True)
        )
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def compared(entry):
    """The report of calls that were eager's in all that can be seen, and whether all raised."""
    theirs, _ = observe(entry, lambda module: module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, model = observe(entry, ORTModule)
    report = model.explain()
    for i, (a, b) in enumerate(zip(theirs, ours, strict=True)):
        for key in a:
            assert key in b and same(a[key], b[key]), (i, key, a[key], b.get(key), str(report))
    return report, all("error" in a for a in theirs)


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    entry = CASES[name]
    report, raised = compared(entry)
    assert report.captures or not entry.captured, str(report)
    if not entry.captured:  # by one trace, but it may be by Dynamo's
        assert report.captures or report.reasons() or report.warm_ups or raised
    elif not entry.partly:
        assert not report.fallbacks and not report.not_whole, str(report)


# Dynamo refers to tensors weakly, and torch swaps none that somebody refers to.
NOT_IN_PARTS = {"held.weights_swapped"}


@pytest.fixture
def parts_alone(monkeypatch):
    """Nothing can be captured whole, and a cut may help."""
    trace = ortmodule.capture.stages.trace

    def of_parts_alone(module, *rest):
        if not isinstance(module, torch.fx.GraphModule):
            raise NeedsCut("for a test")
        return trace(module, *rest)

    monkeypatch.setattr(ortmodule.capture.stages, "trace", of_parts_alone)


IN_PARTS = sorted(n for n in CASES.keys() - NOT_IN_PARTS if not n.endswith("_cut"))


# A case takes a second or two: an eighth of them each time, the others in `make long`. Of an enum,
# as Dynamo takes its members for constants.
OF_ENUMS = ("a_class", "a_tuple", "a_value", "an_attribute_of_a_member")
ALWAYS = {f"held.{name}_of_an_enum" for name in OF_ENUMS}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.long] if i % 8 and n not in ALWAYS else [])
        for i, n in enumerate(IN_PARTS)
    ],
)
def test_case_in_parts(name, parts_alone):
    """The same where nothing can be captured whole."""
    compared(CASES[name])


@pytest.mark.parametrize(
    "name",
    [
        "read.attribute",
        "returned.a_named_tuple",
        "layout.a_column",
        "held.a_class_of_an_enum",
        "held.a_tuple_of_an_enum",
    ],
)
def test_in_parts_the_engine_runs(name, parts_alone):
    """A refusal that leaves a module to eager would make equal whatever parts do."""
    report, _ = compared(CASES[name])
    assert report.captures, str(report)


def test_enough_is_captured():
    assert len(CASES) >= 150
    assert sum(entry.captured and not entry.partly for entry in CASES.values()) >= 100
