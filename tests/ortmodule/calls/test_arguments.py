"""What forward takes and gives beside tensors: containers, objects, arrays, modules, functions."""

import collections
import copy
import dataclasses
import enum
import functools
import types
from typing import NamedTuple

import numpy as np
import pytest
import torch
from pairs import Net, Pair, close, options
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import BatchEncoding
from transformers.modeling_outputs import BaseModelOutput

from ortmodule import ORTModule
from ortmodule.calls import tree
from ortmodule.calls.containers import kind_of


class Colour(enum.Enum):
    RED, BLUE = 1, 2


class Own(collections.UserDict):
    """A mapping that is no dict."""


class Items(dict):
    """Its items are its attributes."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self


class Tagged(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.tag = 3


class Stack(list):
    """A list with an attribute."""

    top = None


class Ordered(collections.OrderedDict):
    pass


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    scale: float = 2.0
    factor = 1.5  # the class's

    def scaled(self):
        return self.x * self.scale * self.factor


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    names: tuple = ("a",)


@dataclasses.dataclass(slots=True)
class Slots:
    x: torch.Tensor
    scale: float = 2.0


class Plain:
    def __init__(self, x):
        self.x, self.rest = x, [x, 2]

    def scaled(self):
        return self.x + self.rest[0] * self.rest[1]


class Typed(NamedTuple):
    x: torch.Tensor
    scale: int = 3

    def scaled(self):
        return self.x * self.scale


@dataclasses.dataclass
class Output(BaseModelOutput):
    extra: torch.Tensor = None
    note: str = None


def shape(value, seen=()):
    """What a value is made of; its tensors are compared apart."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype, value.requires_grad
    if id(value) in seen:
        return "again"
    seen = (*seen, id(value))
    items = []
    if isinstance(value, dict):
        items = [(k, shape(v, seen)) for k, v in value.items()]
    elif isinstance(value, (list, tuple, collections.deque)):
        items = [shape(v, seen) for v in value]
    elif isinstance(value, np.ndarray):
        items = [value.dtype, value.tolist()]
    elif tree.is_constant(value) or isinstance(value, (set, frozenset)):
        items = [value]
    state = {n: getattr(value, n) for n in getattr(type(value), "__slots__", ()) if n != "__dict__"}
    state |= getattr(value, "__dict__", {}) if not callable(value) else {}
    return type(value), items, [(k, shape(v, seen)) for k, v in state.items()]


def tensors_of(value):
    if isinstance(value, (tuple, list)):
        return [t for item in value for t in tensors_of(item)]
    known = isinstance(value, torch.Tensor) or kind_of(value) is not None
    return tree.flatten(value)[0] if known else []


def both(function, make, steps=3, captures=1, module=None):
    """Three steps of a module and its twin, each with arguments of its own, which are compared
    afterwards as the results are. `captures` None: not whole."""
    pair = Pair(module or Net(function))
    for step in range(steps):
        found = []
        for net in (pair.eager, pair.ours):
            net.zero_grad()
            torch.manual_seed(step)
            args = make(step)
            torch.manual_seed(9)
            result = net(*args)
            sum(t.square().sum() for t in tensors_of(result) if t.requires_grad).backward()
            found.append((result, args))
        assert shape(found[1]) == shape(found[0])
        for ours, theirs in zip(*map(tensors_of, found), strict=True):
            close(ours, theirs, "a tensor")
        pair.compare()
    if captures is not None:
        pair.through_engine(captures)
    return pair


def x():
    return torch.randn(4, 3)


GIVEN = {
    "user_dict": (lambda net, d: net.first(d["x"]) * d["k"], lambda: Own(x=x(), k=2)),
    "batch_encoding": (
        lambda net, d: net.first(d["x"]) + d.x.sum(),
        lambda: BatchEncoding({"x": x()}),
    ),
    "items_as_attributes": (lambda net, d: net.first(d.x) + d["x"].sum(), lambda: Items(x=x())),
    "dict_with_attribute": (lambda net, d: net.first(d["x"]) * d.tag, lambda: Tagged(x=x())),
    "list_subclass": (
        lambda net, s: net.first(s[0]) if s.top is None else s[0],
        lambda: Stack([x()]),
    ),
    "ordered_subclass": (lambda net, d: net.first(d["x"]), lambda: Ordered(x=x())),
    "counter": (lambda net, a, c: net.first(a) * c["q"], lambda: (x(), collections.Counter("qqa"))),
    "deque": (
        lambda net, d: net.first(d[0]) + d[-1].sum(),
        lambda: collections.deque([x(), x()], 3),
    ),
    "namespace": (lambda net, c: net.first(c.x) * c.k, lambda: types.SimpleNamespace(x=x(), k=3.0)),
    "dataclass": (lambda net, b: net.first(b.scaled()), lambda: Batch(x())),
    "frozen": (lambda net, b: net.first(b.x), lambda: Frozen(x())),
    "slots": (lambda net, b: net.first(b.x) * b.scale, lambda: Slots(x())),
    "object": (lambda net, b: net.first(b.scaled()), lambda: Plain(x())),
    "named_tuple": (lambda net, t: net.first(t.scaled()), lambda: (Typed(x()),)),
    "size": (lambda net, a, s: net.first(a).view(s), lambda: (x(), torch.Size([2, 8]))),
    "model_output": (
        lambda net, o: net.first(o.last_hidden_state) + o[0].sum(),
        lambda: BaseModelOutput(last_hidden_state=x(), hidden_states=(x(), None)),
    ),
    "function": (lambda net, a, f: f(net.first(a)), lambda: (x(), torch.tanh)),
}


@pytest.mark.parametrize("name", GIVEN)
def test_given(name):
    function, make = GIVEN[name]

    def arguments(_step):
        made = make()
        return made if type(made) is tuple else (made,)

    both(function, arguments)


def with_more(net, a):
    output = BaseModelOutput(last_hidden_state=net.first(a))
    output.apart = a + 1
    output["beside"] = a * 2
    return output


RETURNED = {
    "user_dict": lambda net, a: Own(y=net.first(a), n=1),
    "batch_encoding": lambda net, a: BatchEncoding({"y": net.first(a)}),
    "dict_with_attribute": lambda net, a: Tagged(y=net.first(a)),
    "default_dict": lambda net, a: collections.defaultdict(list, y=net.first(a)),
    "set": lambda net, a: (net.first(a), {1, 2}, frozenset("ab")),
    "namespace": lambda net, a: types.SimpleNamespace(y=net.first(a)),
    "output_with_fields": lambda net, a: Output(
        last_hidden_state=net.first(a), extra=a * 2, note="n"
    ),
    "output_with_more": with_more,
    "nested_output": lambda net, a: BaseModelOutput(
        last_hidden_state=net.first(a),
        hidden_states=(a, None, BaseModelOutput(attentions=(a * 2,))),
    ),
    "array": lambda net, a: (net.first(a), np.arange(3)),
}


@pytest.mark.parametrize("name", RETURNED)
def test_returned(name):
    both(RETURNED[name], lambda _: (x(),))


@pytest.mark.parametrize("kind", [set, frozenset])
def test_what_is_in_a_set_tells_calls_apart(kind):
    both(
        lambda net, a, s: net.first(a) * (2 if "a" in s else 1),
        lambda step: (x(), kind({"a", "b"} if step % 2 else {"b"})),
        captures=2,
    )


@pytest.mark.parametrize("order", [(7, 15), (15, 7)])
@pytest.mark.parametrize("kind", [set, frozenset])
def test_a_set_whose_items_collide(kind, order):
    """7 and 15 want one place in a table of eight: the second goes before the first."""
    value = kind(order)
    leaves, spec = tree.flatten(value)
    again = tree.unflatten(spec, leaves)
    assert list(again) == list(value) and type(again) is kind


def test_an_enum_tells_calls_apart():
    both(
        lambda net, a, c: net.first(a) * (2 if c is Colour.RED else 1),
        lambda step: (x(), Colour(1 + step % 2)),
        captures=2,
    )


def test_a_class_of_an_argument_that_changes_is_noticed(monkeypatch):
    pair = Pair(Net(lambda net, b: net.first(b.scaled())))
    for factor in (1.0, 2.0, 3.0):
        monkeypatch.setattr(Batch, "factor", factor)
        given = x()
        close(pair.ours(Batch(given)), pair.eager(Batch(given)), "the output")
    pair.through_engine(3)


def test_keys_of_other_types_tell_calls_apart():
    pair = Pair(Net(lambda net, d: net.first(next(iter(d.values()))) * len(repr(next(iter(d))))))
    given = x()
    for key in (1, True, 1.0):
        close(pair.ours({key: given}), pair.eager({key: given}), "the output")


def test_a_list_that_holds_itself():
    pair = Pair(Net(lambda net, a: net.first(a[0]) * len(a[1])))
    given = [x()]
    given.append(given)
    for _ in range(3):
        close(pair.ours(given), pair.eager(given), "the output")
    pair.through_engine(1)


@pytest.mark.parametrize("read", [torch.from_numpy, torch.as_tensor, lambda a: float(a.sum())])
def test_an_array_is_read_as_it_is(read):
    array = np.ones(4, np.float32)
    pair = Pair(Net(lambda net, a, n: net.first(a) * read(n)))
    for value in (1, 1, 2, 3, 4, 4, 1):
        array[0] = value
        pair.step(x(), array)


def test_numpys_scalars():
    both(lambda net, a, n: net.first(a) * n, lambda step: (x(), np.float32(1.5 + step)), captures=3)


def test_a_modules_parameters_get_gradients():
    pair = Pair(Net(lambda net, a, other: torch.tanh(other(torch.tanh(net.first(a)))).exp()))
    others = [nn.Linear(4, 4)]
    others.append(copy.deepcopy(others[0]))
    for step in range(5):
        for net, other in zip((pair.eager, pair.ours), others, strict=True):
            other.weight.requires_grad_(step != 2)
            other.bias.data.add_(step == 3)
            other.zero_grad()
            net.zero_grad()
            torch.manual_seed(step)
            net(x(), other).square().sum().backward()
        pair.compare()
        for eager, ours in zip(others[0].parameters(), others[1].parameters(), strict=True):
            assert (eager.grad is None) == (ours.grad is None)
            if eager.grad is not None:
                close(ours.grad, eager.grad, "a gradient of the other module")


def test_functions_of_each_call():
    both(lambda net, a, f: f(net.first(a)), lambda s: (x(), lambda t: t * (s + 1)), captures=None)
    both(
        lambda net, a, f: f(net.first(a)),
        lambda s: (x(), functools.partial(torch.mul, other=s + 2.0)),
        captures=None,
    )


def test_a_generator_draws_as_in_eager():
    pair = Pair(Net(lambda net, a, g: net.first(a) * torch.rand(4, generator=g)))
    generators = [torch.Generator().manual_seed(3) for _ in range(2)]
    for _ in range(3):
        given = x()
        results = [n(given, g) for n, g in zip((pair.eager, pair.ours), generators, strict=True)]
        close(results[1], results[0], "the output")


def test_iterators_are_used_up_as_in_eager():
    pair = Pair(Net(lambda net, a, numbers: sum(net.first(a) * n for n in numbers)))
    for make in (lambda: iter([1, 2, 3]), lambda: (n for n in (1, 2, 3))):
        for _ in range(2):
            given, iterators = x(), [make(), make()]
            results = [n(given, i) for n, i in zip((pair.eager, pair.ours), iterators, strict=True)]
            close(results[1], results[0], "the output")
            assert [list(i) for i in iterators] == [[], []]


class Recurrent(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.gru = nn.GRU(3, 4, num_layers=2, bidirectional=True)
        self.function = function

    def forward(self, *args):
        return self.function(self, *args)


LENGTHS = ([3, 2, 2], [4, 4, 1], [4, 2, 1], [2, 3, 3])


@pytest.mark.parametrize(
    "function",
    [
        lambda net, p: net.lstm(p)[0].data,
        lambda net, p: net.lstm(p)[1][0],
        lambda net, p: net.lstm(p)[0],
        lambda net, p: net.lstm(p.data)[0],
    ],
)
def test_a_packed_sequence(function):
    def packed(step):
        lengths = torch.tensor(LENGTHS[step])
        return (pack_padded_sequence(torch.randn(3, 4, 3), lengths, True, enforce_sorted=False),)

    both(None, packed, steps=4, captures=None, module=Recurrent(function))


@pytest.mark.parametrize("make", [list, torch.tensor])
def test_a_sequence_packed_within(make):
    def function(net, a, lengths):
        packed = pack_padded_sequence(a, lengths, enforce_sorted=False)
        return pad_packed_sequence(net.gru(packed)[0])[0]

    arguments = lambda step: (torch.randn(4, 3, 3), make(LENGTHS[step]))  # noqa: E731
    both(None, arguments, steps=4, captures=None, module=Recurrent(function))


CHANGED = {
    "append": lambda net, d: d["list"].append(net.first(d["x"])) or d["list"][-1] * 2,
    "pop": lambda net, d: net.first(d["list"].pop() + d["x"]),
    "update": lambda net, d: d.update(y=net.first(d["x"]), n=d["n"] + 1) or d["y"] * 2,
    "delete": lambda net, d: (d.pop("n"), net.first(d["x"]))[1],
    "reorder": lambda net, d: (d.update(x=d.pop("x")), net.first(d["x"]))[1],
    "attribute": lambda net, d: setattr(d["o"], "y", net.first(d["o"].x)) or d["o"].y * 2,
    "deque": lambda net, d: (d["q"].append(net.first(d["x"])), d["q"][-1] * 2)[1],
    "default": lambda net, d: net.first(d["x"]) + len(d["dd"]["new"]),
    "set": lambda net, d: (d["set"].add("b"), net.first(d["x"]))[1],
    "in_place": lambda net, d: (d["t"].add_(1), net.first(d["x"]))[1],
    "stored_and_written": lambda net, d: (d.update(z=d["t"]), d["t"].add_(1), net.first(d["x"]))[2],
    "nested": lambda net, d: (d["list"].append({"y": [d["x"] * 2]}), net.first(d["x"]))[1],
    "returned": lambda net, d: (d, d["list"], net.first(d["x"])),
    "changed_and_returned": lambda net, d: (d["list"].append(net.first(d["x"])), d, d["list"]),
    "a_cycle": lambda net, d: (d.update(self=d), net.first(d["x"]))[1],
    "a_view": lambda net, d: (d.update(v=net.first(d["x"])[:2]), net.first(d["x"]))[1],
}


def state(_step):
    given = x()
    made = {"x": given, "list": [torch.randn(4, 3)], "n": 3, "o": Plain(given), "set": {"a"}}
    made |= {"q": collections.deque([given], maxlen=1), "dd": collections.defaultdict(list)}
    return ({**made, "t": torch.randn(2)},)


@pytest.mark.parametrize("name", CHANGED)
def test_what_forward_changes_in_its_arguments(name):
    both(CHANGED[name], state)


def test_the_callers_own_object_is_given_back():
    ours = ORTModule(
        Net(lambda net, d: (d["list"].append(net.first(d["x"])), d, d["list"])), options()
    )
    for step in range(3):
        (given,) = state(step)
        inner = given["list"]
        _, outer, same = ours(given)
        assert outer is given and same is inner and given["list"] is inner and len(inner) == 2
    assert ours.explain().captures == 1 and not ours.explain().fallbacks


def test_one_list_given_twice_is_one():
    function = lambda net, a, b: (a.append(net.first(a[0])), net.first(a[0]) * len(b))[1]  # noqa: E731
    pair = Pair(Net(function))
    for twice in (True, False, True, False):
        given = x()
        for net in (pair.eager, pair.ours):
            one = [given]
            other = one if twice else [given]
            result = net(one, other)
            assert len(one) == 2 and len(other) == 1 + twice
            close(result, pair.eager.first(given) * len(other), "the output")
    pair.through_engine(2)


def test_gradients_reach_what_an_earlier_call_stored():
    function = lambda net, a, memory: (memory.append(net.first(a)), sum(memory))[1]  # noqa: E731
    pair = Pair(Net(function))
    for net in (pair.eager, pair.ours):
        torch.manual_seed(3)
        memory = []
        for _ in range(3):
            result = net(x(), memory)
        assert len(memory) == 3 and all(t.requires_grad for t in memory)
        result.square().sum().backward()
    pair.compare()


def test_an_argument_that_the_module_refers_to_as_well():
    def function(net, a, memory):
        memory.append(a)
        return net.first(a) * len(net.memory)

    pair = Pair(Net(function))
    for net in (pair.eager, pair.twin):
        net.memory = []
    for own in (False, True, True, False):
        given = x()
        results = [net(given, net.memory if own else []) for net in (pair.eager, pair.ours)]
        close(results[1], results[0], "the output")
        assert len(pair.eager.memory) == len(pair.twin.memory)


def test_nothing_is_changed_where_a_call_fails():
    def function(net, a, memory):
        memory.append(a)
        return net.first(a)

    pair = Pair(Net(function))
    pair.ours(x(), [])
    for net in (pair.eager, pair.ours):
        memory = []
        with pytest.raises(RuntimeError):
            net(torch.randn(4, 5), memory)
        assert len(memory) == 1  # eager's append came before its error


TEXTS = {
    "returned": lambda net, x: f"n{x.shape[0]}",
    "as_a_key": lambda net, x: {f"n{x.shape[0]}": x.shape[0]},
    "by_str": lambda net, x: "n" + str(x.shape[0]),
    "by_repr": lambda net, x: repr(x.shape[0]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_of_a_size_is_the_numbers(name):
    class Told(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.cache = nn.Linear(3, 4), {}

        def forward(self, x):
            self.cache[f"k{x.shape[0]}"] = x.shape[0]
            return self.linear(x), TEXTS[name](self, x)

    eager = Told()
    ours = ORTModule(copy.deepcopy(eager), options())
    for rows in (5, 5, 6, 5):
        x = torch.randn(rows, 3)
        assert ours(x)[1] == eager(x)[1]
        assert ours.module.cache == eager.cache
        assert all(type(value) is int for value in ours.module.cache.values())
