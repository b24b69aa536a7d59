"""What is changed between the calls of a module in parts, where no guard of Dynamo's holds it."""

import threading
import types
import warnings

import pytest
import torch
from pairs import Pair
from torch import nn

THREADS = threading.local()
THREADS.scale = 2.0


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def cut(h):
    return h * 2 if h.sum() > 1e9 else h


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Sigmoid())

    def forward(self, x):
        return cut(self.first(x)) * 2


class Answering(Net):
    """Has what its own __getattr__ says."""

    def __init__(self):
        super().__init__()
        self.answers = {"scale": 2.0}

    def __getattr__(self, name):
        answers = self.__dict__.get("answers", {})
        return answers[name] if name in answers else super().__getattr__(name)

    def forward(self, x):
        return cut(self.first(x)) * self.scale


class Asking(Net):
    """Each of its attributes goes through its own __getattribute__."""

    scale = 2.0

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        return found * 10 if name == "scale" else found

    def forward(self, x):
        return cut(self.first(x)) * self.scale


class OfThread(Net):
    """Reads what a thread has of its own, which C looks up."""

    def forward(self, x):
        return cut(self.first(x)) * THREADS.scale


class Nested(Net):
    def __init__(self):
        super().__init__()
        self.inner = Answering()

    def forward(self, x):
        return self.inner(cut(self.first(x)))


class Largest(Net):
    def forward(self, x):
        return cut(self.first(x)) * max(2.0, 1.0)


def sine(module, x):
    return cut(module.first(x)).sin()


def own_forward(module):
    module.forward = types.MethodType(sine, module)


def plain_forward(module):
    module.forward = lambda x: sine(module, x) * 3


def own_scale(module):
    vars(module)["scale"] = 5.0


def inner_scale(module):
    own_scale(module.inner)


def own_bias(module):
    vars(module.first[2])["bias"] = torch.ones(3)


def own_layer(module):
    vars(module)["first"] = nn.Softplus()


def own_of_thread(_module):
    THREADS.scale = 5.0


def own_largest(_module):
    globals()["max"] = lambda a, b: 7.0


CHANGES = {
    "forward_as_a_method": (Net, own_forward, lambda module: vars(module).pop("forward")),
    "forward_as_a_function": (Net, plain_forward, lambda module: vars(module).pop("forward")),
    "an_attribute_that_was_looked_up": (
        Answering, own_scale, lambda module: vars(module).pop("scale")),
    "one_of_a_submodule": (
        Nested, inner_scale, lambda module: vars(module.inner).pop("scale")),
    "an_attribute_that_hides_a_parameter": (
        Net, own_bias, lambda module: vars(module.first[2]).pop("bias")),
    "an_attribute_that_hides_a_submodule": (
        Net, own_layer, lambda module: vars(module).pop("first")),
    "a_local_of_the_thread": (
        OfThread, own_of_thread, lambda _module: setattr(THREADS, "scale", 2.0)),
    "a_global_named_like_a_builtin": (
        Largest, own_largest, lambda _module: globals().pop("max", None)),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_it_is_noticed(name):
    """Two calls, two with the change, and two without it again."""
    pair = changed_and_back(*CHANGES[name])
    assert pair.report.captures and not pair.report.fallbacks, pair.report


def test_what_asks_for_attributes_itself_is_eagers():
    pair = changed_and_back(Asking, own_scale, lambda module: vars(module).pop("scale"))
    pair.fell_back("__getattribute__")


def changed_and_back(make, change, back):
    pair = Pair(make())
    for edit in (lambda module: None, change, back):
        pair.each(edit)
        for _ in range(2):
            pair.step(torch.linspace(-2, 3, 15).reshape(5, 3))
    return pair
