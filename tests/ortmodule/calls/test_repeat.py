"""Repeat: a call is taken for an earlier one only when nothing but tensors' contents differs."""

import math

import pytest
import torch
from torch import nn

from ortmodule import ORTModule, _native


def repeat_of(*args, **kwargs):
    return _native.torch_bridge().Repeat.of(args, kwargs)


def matches(repeat, *args, **kwargs):
    return repeat.match(args, kwargs) is not None


def test_tensors_come_in_order():
    a, b, c = torch.zeros(2), torch.ones(3), torch.ones(1)
    repeat = repeat_of([a, {"k": b}], 3, c=(c, None, "s", 1.5, True))
    given = [torch.randn(2), torch.randn(3), torch.randn(1)]
    found = repeat.match(([given[0], {"k": given[1]}], 3), {"c": (given[2], None, "s", 1.5, True)})
    assert all(x is y for x, y in zip(found, given, strict=True)) and len(found) == 3


X = torch.zeros(2, 3)
OTHERS = {
    "another size": ([torch.zeros(3, 3)], {}),
    "another dtype": ([torch.zeros(2, 3, dtype=torch.float64)], {}),
    "requires_grad": ([torch.zeros(2, 3, requires_grad=True)], {}),
    "strides": ([torch.zeros(3, 2).t()], {}),
    "a parameter": ([nn.Parameter(X.clone(), requires_grad=False)], {}),
    "another argument": ([X, 1], {}),
    "by keyword": ([], {"x": X}),
    "no argument": ([], {}),
    "a list of it": ([[X]], {}),
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_tensor_is_another_call(what):
    args, kwargs = OTHERS[what]
    repeat = repeat_of(X)
    assert matches(repeat, torch.ones(2, 3))
    assert not matches(repeat, *args, **kwargs)


CONSTANTS = [0, 1, True, False, None, 0.0, -0.0, 1.0, "0", "", 10**30, (), [], {}, (0,), {"a": 0}]


@pytest.mark.parametrize("one", range(len(CONSTANTS)))
def test_constants_by_type_and_value(one):
    repeat = repeat_of(CONSTANTS[one])
    for other, value in enumerate(CONSTANTS):
        assert matches(repeat, value) == (one == other)


def test_nan_equals_nan():
    assert matches(repeat_of(math.nan), float("nan"))


def test_order_of_keys_counts():
    assert not matches(repeat_of(a=X, b=1), b=1, a=X)


def test_which_tensors_are_one():
    a, b = torch.zeros(2), torch.zeros(2)
    apart, one, shared = repeat_of(a, b), repeat_of(a, a), repeat_of(a, a.view(2))
    for repeat, args in ((apart, (a, b)), (one, (b, b)), (shared, (b, b.view(2)))):
        assert [matches(r, *args) for r in (apart, one, shared)].count(True) == 1
        assert matches(repeat, *args)


@pytest.mark.parametrize(
    "mode",
    [
        torch.no_grad,
        torch.inference_mode,
        lambda: torch.autocast("cpu"),
        lambda: torch.autocast("cpu", torch.float16),
    ],
    ids=["no_grad", "inference_mode", "autocast", "autocast_float16"],
)
def test_modes_are_part_of_the_call(mode):
    repeat = repeat_of(X)
    with mode():
        assert not matches(repeat, X)
        inside = repeat_of(X)
    assert not matches(inside, X)


def test_default_dtype_is_part_of_the_call():
    repeat = repeat_of(X)
    torch.set_default_dtype(torch.float64)
    try:
        assert not matches(repeat, X)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("only_warns", [False, True])
def test_deterministic_algorithms_are_part_of_the_call(only_warns):
    repeat = repeat_of(X)
    torch.use_deterministic_algorithms(True, warn_only=only_warns)
    try:
        assert not matches(repeat, X)
    finally:
        torch.use_deterministic_algorithms(False)
    assert matches(repeat, X)


class Mine(torch.Tensor):
    pass


@pytest.mark.parametrize("value", [object(), 1j, {1: X}, {3}, X.as_subclass(Mine), slice(3)])
def test_other_values_always_take_the_slow_path(value):
    assert repeat_of(value) is None


def test_a_repeated_call_sees_a_changed_module_and_a_global_hook():
    module = nn.Linear(3, 2)
    ours = ORTModule(module)
    x = torch.randn(2, 3)
    for _ in range(2):
        torch.testing.assert_close(ours(x), module(x))
    calls = []
    hook = nn.modules.module.register_module_forward_hook(lambda m, *_: calls.append(type(m)))
    try:
        ours(x)
    finally:
        hook.remove()
    assert any(issubclass(kind, nn.Linear) for kind in calls)
    torch.testing.assert_close(ours(x), module(x))


def test_a_negative_view_is_read_as_what_it_shows():
    module = nn.Linear(3, 2)
    ours = ORTModule(module)
    x = torch.randn(2, 3)
    for given in (x, torch._neg_view(x), torch._neg_view(x.t()).t()):
        torch.testing.assert_close(ours(given), module(given))
