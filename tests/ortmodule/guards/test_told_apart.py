"""Values that == takes as equal, or that no size can be, changed between calls: each call is
eager's, whole and in parts, as an attribute and as an argument."""

import collections
import datetime
import decimal
import enum
import fractions
import functools
import math
import operator
import pathlib
import uuid

import numpy as np
import pytest
import torch
from pairs import Net, Pair
from torch.nn.attention.bias import causal_lower_right


class One(enum.IntEnum):
    ONE = 1


class Text(str):
    pass


class Index:
    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


Named, Other = collections.namedtuple("Named", "a b"), collections.namedtuple("Other", "c d")
TEXTS = ["".join(["te", "xt!"]) for _ in range(2)]
NUMBERS = [int("12345"), int("12345")]
TUPLES = [tuple(map(int, "12")) for _ in range(2)]
PARAMETERS = [torch.nn.Parameter(torch.ones(4)) for _ in range(2)]
BIG = [2**70, 2**70 + 1, 5, -(2**80)]


def of_key(k):
    return len(str(next(iter(k))))


def twice_if(asks):
    return lambda h, k: h * (2 if asks(k) else 3)


CASES = {
    "the sign of zero": ([0.0, -0.0], lambda h, k: h * math.copysign(1.0, k)),
    "the sign of zero, computed with": ([0.0, -0.0], lambda h, k: (h * 0 + 1) / (h.abs() * k)),
    "in a list": ([[0.0], [-0.0]], lambda h, k: h * math.copysign(1.0, k[0])),
    "in a tuple": ([(0.0, 1), (-0.0, 1)], lambda h, k: h * math.copysign(1.0, k[0])),
    "in a dict": ([{"a": 0.0}, {"a": -0.0}], lambda h, k: h * math.copysign(1.0, k["a"])),
    "of a part": ([0j, complex(0, -0.0)], lambda h, k: h * math.copysign(1.0, k.imag)),
    "a key": ([{0.0: 2}, {-0.0: 2}], lambda h, k: h * of_key(k)),
    "a key's type": ([{True: 2}, {1: 2}, {1.0: 2}], lambda h, k: h * of_key(k)),
    "a type": ([True, 1, 1.0, One.ONE], lambda h, k: h * len(type(k).__name__)),
    "a type in a tuple": ([(True,), (1,), (1.0,)], lambda h, k: h * len(str(k[0]))),
    "a type in a set": ([{True}, {1}, {1.0}], lambda h, k: h * of_key(k)),
    "a frozen set": ([frozenset({True}), frozenset({1})], lambda h, k: h * of_key(k)),
    "a text's type": (["a", Text("a")], twice_if(lambda k: type(k) is str)),
    "a tuple's type": ([(1, 2), Named(1, 2), Other(1, 2)], twice_if(lambda k: hasattr(k, "a"))),
    "no number": ([math.nan, 1.0, math.nan, math.inf], twice_if(lambda k: k != k)),
    "which of them": ([math.nan, float("nan")], twice_if(lambda k: k is math.nan)),
    "which of them is in": ([[math.nan], [float("nan")]], twice_if(lambda k: math.nan in k)),
    "which text": (TEXTS, twice_if(lambda k: k is TEXTS[0])),
    "which integer": (NUMBERS, twice_if(lambda k: k is NUMBERS[0])),
    "which tuple": (TUPLES, twice_if(lambda k: k is TUPLES[0])),
    "one text": ([TEXTS[:1] * 2, TEXTS], twice_if(lambda k: k[0] is k[1])),
    "one integer": ([tuple(NUMBERS[:1] * 2), tuple(NUMBERS)], twice_if(lambda k: k[0] is k[1])),
    "one list": ([[[1]] * 2, [[1], [1]]], twice_if(lambda k: k[0] is k[1])),
    "which parameter": (
        [(p,) for p in PARAMETERS], twice_if(lambda k: any(p is PARAMETERS[0] for p in k)),
    ),
    "a large integer": (BIG, lambda h, k: h * (k % 7)),
    "a large integer's float": (BIG, lambda h, k: h * (float(k) * 1e-20)),
    "an integer in eight bytes": (
        [2**63 - 1, -(2**63), 2**53 + 1], lambda h, k: h * (torch.full((4,), k) % 1001),
    ),
    "a decimal": ([decimal.Decimal("1.5"), decimal.Decimal("1.50")], lambda h, k: h * len(str(k))),
    "a bound": ([Index(2), Index(3)], lambda h, k: h[:, :k] * 2),
}  # fmt: skip


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_values(name, held, parts):
    values, compute = CASES[name]

    def forward(net, x, k=None):
        h = net.first(x)
        if parts and h.sum() > 1e9:
            h = h * 2
        return compute(h, net.k if held else k)

    pair = Pair(Net(forward))
    for value in [*values, *values]:
        pair.each(lambda m, v=value: setattr(m, "k", v))
        pair.step(torch.ones(2, 3), *([] if held else [value]))


def test_integers_that_no_double_holds():
    k = 2**53 + 1

    def forward(net, x, i):
        first = net.first(x).sum() * 0
        made = i + k, i * k, i.clamp(max=k), torch.where(i > 0, k, i), i % k, torch.full((3,), k)
        return torch.stack([first.long() + m for m in (*made, (i == k) * 1, i.add(i, alpha=k))])

    pair = Pair(Net(forward))
    i = torch.tensor([1, k, -5])
    with torch.no_grad():
        assert torch.equal(pair.ours(torch.ones(2, 3), i), pair.eager(torch.ones(2, 3), i))
    pair.through_engine()


def test_decimals_in_another_context():
    pair = Pair(Net(lambda net, x: net.first(x) * float(net.k / 3)))
    pair.each(lambda m: setattr(m, "k", decimal.Decimal(2)))
    for precision in (28, 2, 28):
        with decimal.localcontext() as context:
            context.prec = precision
            pair.step(torch.ones(2, 3))
    pair.fell_back("decimal.Decimal")


def test_the_order_of_one_dict_whose_keys_are_equal():
    pair = Pair(Net(lambda net, x: net.first(x) * of_key(net.k)))
    pair.each(lambda m: setattr(m, "k", {True: 2}))
    pair.step(torch.ones(2, 3))
    for key in (1, 1.0, True):
        pair.each(lambda m, key=key: (m.k.clear(), m.k.update({key: 2})))
        pair.step(torch.ones(2, 3))


@pytest.mark.parametrize("parts", [False, True])
def test_a_bias_that_forward_makes(parts):
    def forward(net, x):
        q = net.first(x)
        q = q * 2 if parts and q.sum() > 1e9 else q
        bias = causal_lower_right(x.shape[0], x.shape[0])
        return torch.nn.functional.scaled_dot_product_attention(*[q[None, None]] * 3, bias)

    pair = Pair(Net(forward))
    for size in (4, 4, 5, 4):
        pair.step(torch.randn(size, 3))
    pair.fell_back("forward makes a CausalBias, which parts do not follow")


REASONS = {
    "forward asks by `is` which object a value is, which parts do not hold": (
        True, lambda net, x, k: net.first(x) * (2 if k is TEXTS[0] else 3),
    ),
    "forward asks by `is` or `in` for an object, and an argument has a str, of which equal ones "
    "are several objects": (False, lambda net, x, k: net.first(x) * (2 if k is TEXTS[0] else 3)),
}  # fmt: skip


@pytest.mark.parametrize("reason", REASONS)
def test_why_it_is_eager(reason):
    parts, compute = REASONS[reason]

    def forward(net, x, k):
        if parts and x.sum() > 1e9:
            x = x * 2
        return compute(net, x, k)

    pair = Pair(Net(forward))
    for text in (*TEXTS, *TEXTS):
        pair.step(torch.ones(2, 3), text)
    pair.fell_back(reason)


class Asked:
    def __init__(self):
        self.store = {"z": 2.0}

    def __getattr__(self, name):
        try:
            return self.__dict__["store"][name]
        except KeyError:
            raise AttributeError(name) from None


class Tripled:
    def __get__(self, holder, _of=None):
        return holder.__dict__.get("_z", 1.0) * 3

    def __set__(self, holder, value):
        holder.__dict__["_z"] = value


class Described:
    z = Tripled()


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("make", [Asked, Described])
def test_an_attribute_that_comes(make, parts):
    def forward(net, x):
        h = net.first(x)
        if parts and h.sum() > 1e9:
            h = h * 2
        return h * net.o.z

    pair = Pair(Net(forward))
    pair.each(lambda m: setattr(m, "o", make()))
    for value in (None, None, 5.0, 7.0):
        if value is not None:
            pair.each(lambda m, v=value: setattr(m.o, "z", v))
        pair.step(torch.ones(2, 3))


MADE_ANEW = {
    "device": lambda: torch.device("cpu"),
    "size": lambda: torch.Size([1, 2]),
    "float": lambda: float("1.5"),
    "fraction": lambda: fractions.Fraction(1, 3),
    "date": lambda: datetime.date(2020, 1, 2),
    "timedelta": lambda: datetime.timedelta(3),
    "path": lambda: pathlib.Path("a/b"),
    "uuid": lambda: uuid.UUID(int=3),
    "numpy scalar": lambda: np.float32(3),
    "numpy float": lambda: np.float64(3.5),
    "numpy dtype": lambda: np.dtype([("a", "f4")]),
    "partial": lambda: functools.partial(max, 1),
}
ASKING = {
    "is": lambda a, b: a is b,
    "is not": lambda a, b: a is not b,
    "operator": lambda a, b: operator.is_(a, b),
}


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("asks", ASKING)
@pytest.mark.parametrize("kind", MADE_ANEW)
def test_which_of_two_equal_values(kind, asks, given):
    make, is_one = MADE_ANEW[kind], ASKING[asks]

    def forward(net, x, value):
        return net.first(x) * (2 if is_one(net.kept, value or net.other) else 3)

    pair = Pair(Net(forward))
    first = make()
    pair.each(lambda m: m.__dict__.update(kept=first, other=first))
    for value in (first, first, make(), first):
        if not given:
            pair.each(lambda m, v=value: m.__dict__.update(other=v))
        pair.step(torch.ones(2, 3), value if given else None)


def test_the_unit_of_a_date_of_numpys():
    def forward(net, x):
        return net.first(x) * len(str(net.day))

    pair = Pair(Net(forward))
    for unit in ("D", "s", "D"):
        pair.each(lambda m, u=unit: m.__dict__.update(day=np.datetime64(1, u)))
        pair.step(torch.ones(2, 3))


class Thing:
    """An object that is equal to itself alone."""


HELD = {"list": lambda: [1], "dict": lambda: {"a": 1}, "object": Thing, "array": lambda: np.ones(2)}
WHICH = {
    "is": lambda net, value: value is net.kept,
    "is not": lambda net, value: value is not net.kept,
    "operator": lambda net, value: operator.is_(value, net.kept),
    "in": lambda net, value: value in (net.kept, 1),
    "==": lambda net, value: value == net.kept,
    "eq": lambda net, value: operator.eq(value, net.kept),
}
_BY_VALUE = [("array", asks) for asks in ("in", "==", "eq")]  # of its elements: no one truth


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("at_first", [False, True])
@pytest.mark.parametrize(
    ("kind", "asks"), [(k, a) for k in HELD for a in WHICH if (k, a) not in _BY_VALUE]
)
def test_what_the_module_holds_is_given(kind, asks, at_first, parts):
    asked, make = WHICH[asks], HELD[kind]

    def forward(net, x, value):
        h = net.first(x)
        if parts and h.sum() > 1e9:
            h = h * 2
        return h * (2 if asked(net, value) else 3)

    pair = Pair(Net(forward))
    kept, other = make(), make()
    pair.each(lambda m: m.__dict__.update(kept=kept))
    for given in (kept, other, kept) if at_first else (other, kept, other):
        pair.step(torch.ones(2, 3), given)
